//! The door in front of two small servers.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use super::*;
use crate::http::Http;

/// A server that answers each connection with what `talk` makes of the request's head, then echoes bytes.
async fn backend(tracker: &TaskTracker, head: &'static str, release: Option<Arc<Notify>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let inner = tracker.clone();
    tracker.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let release = release.clone();
            inner.spawn(async move {
                let mut buffer = vec![0; 4096];
                let mut seen = Vec::new();
                while !seen.windows(4).any(|end| end == b"\r\n\r\n") {
                    let n = stream.read(&mut buffer).await.unwrap();
                    if n == 0 {
                        return;
                    }
                    seen.extend_from_slice(&buffer[..n]);
                }
                stream.write_all(head.as_bytes()).await.unwrap();
                if let Some(release) = release {
                    stream.write_all(b"6\r\nfirst\n\r\n").await.unwrap();
                    release.notified().await;
                    stream.write_all(b"7\r\nsecond\n\r\n0\r\n\r\n").await.unwrap();
                    return;
                }
                while let Ok(n) = stream.read(&mut buffer).await {
                    if n == 0 || stream.write_all(&buffer[..n]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

async fn open(
    tracker: &TaskTracker,
    api: SocketAddr,
    console: SocketAddr,
) -> (SocketAddr, CancellationToken) {
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = probe.local_addr().unwrap();
    drop(probe);
    let closing = CancellationToken::new();
    tracker.spawn(serve(Routes { listen, api, console }, closing.clone()));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    while tokio::net::TcpStream::connect(listen).await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "the door did not open");
        tokio::task::yield_now().await;
    }
    (listen, closing)
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\napi";

#[tokio::test]
async fn bytes_of_an_open_answer_arrive_before_its_end() {
    let tracker = TaskTracker::new();
    let release = Arc::new(Notify::new());
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let api = backend(&tracker, head, Some(Arc::clone(&release))).await;
    let (listen, _closing) = open(&tracker, api, api).await;
    let request =
        crate::http::request(Method::GET, &format!("http://{listen}/api/sessions/1/events"), None, None)
            .unwrap();
    let response = Http::new().open(request).await.unwrap();
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(&first[..], b"first\n");
    release.notify_one();
    let second = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(&second[..], b"second\n");
}

#[tokio::test]
async fn the_console_is_a_tunnel_to_the_other_service() {
    let tracker = TaskTracker::new();
    let api = backend(&tracker, OK, None).await;
    let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let console = backend(&tracker, switch, None).await;
    let (listen, _closing) = open(&tracker, api, console).await;
    let mut stream = tokio::net::TcpStream::connect(listen).await.unwrap();
    let ask = format!(
        "GET /api/sessions/1/console?machine=main HTTP/1.1\r\nhost: {listen}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n"
    );
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 1024];
    while !seen.contains("\r\n\r\n") {
        let n = stream.read(&mut buffer).await.unwrap();
        assert_ne!(n, 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
    assert!(seen.starts_with("HTTP/1.1 101"), "{seen}");
    stream.write_all(b"echo \x00\xff").await.unwrap();
    let mut echoed = [0; 7];
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"echo \x00\xff");
}

#[tokio::test]
async fn a_service_that_is_down_gives_a_problem_document() {
    let tracker = TaskTracker::new();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (listen, _closing) = open(&tracker, gone, gone).await;
    let answer = Http::new().get(&format!("http://{listen}/api/labs"), Duration::from_secs(5)).await.unwrap();
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.json().unwrap()["code"], "starting");
}

#[tokio::test]
async fn a_foreign_name_is_refused_and_localhost_is_sent_on() {
    let tracker = TaskTracker::new();
    let api = backend(&tracker, OK, None).await;
    let (listen, _closing) = open(&tracker, api, api).await;
    for (host, expected) in [("evil.example".to_owned(), 421), (format!("localhost:{}", listen.port()), 307)]
    {
        let mut request =
            crate::http::request(Method::GET, &format!("http://{listen}/labs?a=b"), None, None).unwrap();
        request.headers_mut().insert(header::HOST, host.parse().unwrap());
        let answer = Http::new().send(request, Duration::from_secs(5)).await.unwrap();
        assert_eq!(answer.status.as_u16(), expected, "{host}");
        if expected == 307 {
            assert_eq!(answer.headers[header::LOCATION], format!("http://{listen}/labs?a=b"));
        }
    }
}

#[test]
fn only_a_sessions_console_goes_to_the_console_service() {
    assert!(is_console("/api/sessions/0190-ab/console"));
    for path in [
        "/api/sessions//console",
        "/api/sessions/console",
        "/api/sessions/a/b/console",
        "/api/sessions/a/console/x",
    ] {
        assert!(!is_console(path), "{path}");
    }
}
