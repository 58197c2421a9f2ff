//! The dial against a server that speaks as KubeVirt does.

use std::{net::SocketAddr, time::Duration};

use futures::{SinkExt as _, StreamExt as _};
use lab_kubevirt::console::{self, Error, PROTOCOL, Refusal};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::tungstenite::{
    Message,
    handshake::server::{ErrorResponse, Request, Response},
};

const LIMIT: Duration = Duration::from_secs(10);

async fn listen() -> (TcpListener, kube::Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at: SocketAddr = listener.local_addr().unwrap();
    let mut config = kube::Config::new(format!("http://{at}").parse().unwrap());
    config.default_retry = false;
    config.auth_info.token = Some("secret-token".to_owned().into());
    (listener, kube::Client::try_from(config).unwrap())
}

#[expect(clippy::result_large_err, reason = "the callback's type is tungstenite's")]
async fn greet(stream: TcpStream, protocol: Option<&str>) {
    let answer = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        assert_eq!(request.headers()["authorization"], "Bearer secret-token");
        assert_eq!(request.headers()["accept"], "application/json, */*");
        assert_eq!(request.headers()["sec-websocket-protocol"], PROTOCOL);
        if let Some(protocol) = protocol {
            response.headers_mut().insert("sec-websocket-protocol", protocol.parse().unwrap());
        }
        Ok(response)
    };
    let mut socket = tokio_tungstenite::accept_hdr_async(stream, answer).await.unwrap();
    while let Some(Ok(message)) = socket.next().await {
        if message.is_binary() {
            socket.send(message).await.unwrap();
        }
    }
}

#[tokio::test]
async fn bytes_go_both_ways() {
    let (listener, client) = listen().await;
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        greet(stream, Some(PROTOCOL)).await;
    };
    let viewer = async {
        let mut stream = console::dial(&client, "ttlab", "lab-x-main", None, LIMIT).await.unwrap();
        stream.send(Message::binary(b"\x1b[?2004h\xff".to_vec())).await.unwrap();
        let echoed = stream.next().await.unwrap().unwrap();
        assert_eq!(echoed.into_data().as_ref(), b"\x1b[?2004h\xff");
        stream.close(None).await.unwrap();
    };
    tokio::join!(server, viewer);
}

#[tokio::test]
async fn a_server_that_chose_another_protocol_is_refused() {
    let (listener, client) = listen().await;
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        greet(stream, None).await;
    };
    let viewer = async {
        let error = console::dial(&client, "ttlab", "lab-x-main", None, LIMIT).await.unwrap_err();
        assert!(matches!(error, Error::Handshake { .. }), "{error:?}");
        assert!(!error.may_pass());
    };
    tokio::join!(server, viewer);
}

#[tokio::test]
async fn a_refusal_is_typed_and_carries_the_words_of_the_server() {
    let (listener, client) = listen().await;
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).await.unwrap() > 0);
        let body = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"VMI is not running","reason":"BadRequest","code":400}"#;
        let head = format!("HTTP/1.1 400 Bad Request\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    };
    let viewer = async {
        let error = console::dial(&client, "ttlab", "lab-x-main", None, LIMIT).await.unwrap_err();
        let Error::Refused { refusal, message, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*refusal, message.as_str()), (Refusal::NotRunning, "VMI is not running"));
        assert!(error.may_pass());
    };
    tokio::join!(server, viewer);
}

#[tokio::test]
async fn silence_is_bounded() {
    let (_listener, client) = listen().await;
    let limit = Duration::from_millis(50);
    let error = console::dial(&client, "ttlab", "lab-x-main", None, limit).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }) && error.may_pass(), "{error:?}");
}
