//! The serial console through `subresources.kubevirt.io`.

use futures::{SinkExt as _, StreamExt as _};
use http::{Method, StatusCode};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::*;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

fn console_path(name: &str) -> String {
    format!("/apis/subresources.kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachineinstances/{name}/console")
}

async fn open(lab: &Lab, name: &str) -> Result<Socket, (StatusCode, String)> {
    let mut request = format!("ws://{}{}", lab.address, console_path(name)).into_client_request().unwrap();
    let headers = request.headers_mut();
    headers.insert("Authorization", format!("Bearer {}", lab.admin).parse().unwrap());
    headers.insert("Sec-WebSocket-Protocol", "plain.kubevirt.io".parse().unwrap());
    match tokio_tungstenite::connect_async(request).await {
        Ok((socket, response)) => {
            assert_eq!(response.headers()["sec-websocket-protocol"], "plain.kubevirt.io");
            Ok(socket)
        }
        Err(Error::Http(response)) => {
            let body = response.body().clone().unwrap_or_default();
            Err((response.status(), String::from_utf8_lossy(&body).into_owned()))
        }
        Err(other) => panic!("the console cannot be opened: {other}"),
    }
}

async fn read_until(socket: &mut Socket, wanted: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(wanted) {
        let next = tokio::time::timeout(LIMIT, socket.next()).await;
        match next.unwrap_or_else(|_| panic!("no {wanted:?} in {seen:?}")) {
            Some(Ok(Message::Binary(bytes))) => seen.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("{other:?} before {wanted:?}: {seen:?}"),
        }
    }
    seen
}

async fn type_line(socket: &mut Socket, line: &str) {
    socket.send(Message::Binary(format!("{line}\r").into())).await.unwrap();
}

async fn guest(lab: &Lab, name: &str) {
    make(lab, name, |_| ()).await;
    let vmi = phase(lab, name, "Running").await;
    let address = vmi["status"]["interfaces"][0]["ipAddress"].as_str().unwrap().to_owned();
    let deadline = Instant::now() + LIMIT;
    while agent_phase(&address).await.is_none() {
        assert!(Instant::now() < deadline, "the guest never comes up");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_client_throws_the_older_out_without_a_close_frame() {
    let lab = lab().await;
    guest(&lab, "con").await;
    let mut first = open(&lab, "con").await.unwrap();
    type_line(&mut first, "echo one").await;
    read_until(&mut first, "\none\r\n").await;
    let mut second = open(&lab, "con").await.unwrap();
    let end = tokio::time::timeout(LIMIT, first.next()).await.unwrap();
    assert!(!matches!(end, Some(Ok(Message::Close(_)))), "{end:?}");
    type_line(&mut second, "echo two").await;
    read_until(&mut second, "\ntwo\r\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn text_frames_are_dropped_and_a_close_is_answered() {
    let lab = lab().await;
    guest(&lab, "con").await;
    let mut socket = open(&lab, "con").await.unwrap();
    socket.send(Message::Text("echo lost\r".into())).await.unwrap();
    type_line(&mut socket, "echo kept").await;
    let seen = read_until(&mut socket, "\nkept\r\n").await;
    assert!(!seen.contains("lost"), "{seen:?}");
    socket.close(None).await.unwrap();
    let end = tokio::time::timeout(LIMIT, socket.next()).await.unwrap();
    assert!(matches!(end, Some(Ok(Message::Close(_)))), "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_get_throws_the_client_out_too() {
    let lab = lab().await;
    guest(&lab, "con").await;
    let mut first = open(&lab, "con").await.unwrap();
    let request = lab
        .request(Method::GET, &console_path("con"))
        .header("Authorization", format!("Bearer {}", lab.admin))
        .header("Accept", "*/*")
        .body(axum::body::Body::empty())
        .unwrap();
    let answer = Lab::read(lab.send(request).await).await;
    assert_eq!(answer.code, StatusCode::BAD_REQUEST);
    assert!(answer.body.starts_with(b"Bad Request\n{\n \"kind\": \"Status\","), "{:?}", answer.body);
    let end = tokio::time::timeout(LIMIT, first.next()).await.unwrap();
    assert!(!matches!(end, Some(Ok(_))), "{end:?}");
    let mut again = open(&lab, "con").await.unwrap();
    type_line(&mut again, "echo back").await;
    read_until(&mut again, "\nback\r\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn console_of_a_machine_that_does_not_run_is_refused() {
    let lab = lab().await;
    let (code, body) = open(&lab, "nope").await.unwrap_err();
    assert_eq!(code, StatusCode::NOT_FOUND);
    assert!(body.contains(r#"virtualmachineinstance.kubevirt.io \"nope\" not found"#), "{body}");
    lab.create(&path("virtualmachines", ""), vm("pend", |_| ())).await;
    phase(&lab, "pend", "Scheduling").await;
    let (code, body) = open(&lab, "pend").await.unwrap_err();
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert!(body.contains("VMI is not running"), "{body}");
    let only_json = lab.call(Method::GET, &console_path("pend"), None).await;
    assert_eq!(only_json.code, StatusCode::NOT_ACCEPTABLE);
}

#[tokio::test(flavor = "multi_thread")]
async fn console_ends_with_its_machine() {
    let lab = lab().await;
    guest(&lab, "off").await;
    let mut socket = open(&lab, "off").await.unwrap();
    type_line(&mut socket, "poweroff").await;
    let ended = async { while let Some(Ok(_)) = socket.next().await {} };
    tokio::time::timeout(LIMIT, ended).await.unwrap();
    phase(&lab, "off", "Succeeded").await;
}

/// Sends a recorded handshake as it was sent; the status line and headers of the answer.
async fn handshake(lab: &Lab, recording: &Value, name: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let lines = recording["request"].as_array().unwrap().iter().map(|line| line.as_str().unwrap());
    let mut text = String::new();
    for line in lines {
        let line = line
            .replace(
                "namespaces/t12/virtualmachineinstances/con/",
                &format!("namespaces/{NAMESPACE}/virtualmachineinstances/{name}/"),
            )
            .replace("<token>", &lab.admin);
        text.push_str(&line);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    let mut stream = TcpStream::connect(lab.address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase())
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes_are_answered_as_recorded() {
    let lab = lab().await;
    guest(&lab, "con").await;
    for name in [
        "1206-console-ws-ok",
        "1207-console-ws-text-frame",
        "1209-console-second-client-second",
        "1212-console-ws-no-subprotocol",
        "1215-console-ws-no-token",
        "1216-console-ws-origin",
        "1217-console-ws-garbage",
        "1219-console-ws-client-ping",
    ] {
        let Some(recording) = recorded::read(name) else { return };
        let (code, head) = handshake(&lab, &recording, "con").await;
        let response = &recording["response"];
        assert_eq!(Some(u64::from(code)), response["status"].as_u64(), "{name}: {head}");
        if code != 101 {
            continue;
        }
        for line in
            response["headers"].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_lowercase())
        {
            assert!(head.contains(&line), "{name}: {line} is missing in {head}");
        }
        let is_named = |text: &str| text.contains("sec-websocket-protocol");
        let recorded = response["headers"]
            .as_array()
            .unwrap()
            .iter()
            .any(|h| is_named(&h.as_str().unwrap().to_lowercase()));
        assert_eq!(is_named(&head), recorded, "{name}: {head}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frame_that_breaks_the_protocol_is_answered_with_1002() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let lab = lab().await;
    guest(&lab, "con").await;
    let mut socket = open(&lab, "con").await.unwrap();
    let MaybeTlsStream::Plain(stream) = socket.get_mut() else { panic!("it is plain HTTP") };
    // All reserved bits and an unknown opcode.
    stream.write_all(&[0xff, 0x80, 0, 0, 0, 0]).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(LIMIT, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    let close =
        answer.iter().position(|byte| *byte == 0x88).unwrap_or_else(|| panic!("no close frame: {answer:?}"));
    assert_eq!(u16::from_be_bytes([answer[close + 2], answer[close + 3]]), 1002);
}
