//! The agent's caller against answers that a student could make their machine give.

use std::{net::SocketAddr, time::Duration};

use lab_readiness::{
    agent::{self, Error, Report},
    decide::Cause,
};
use secrecy::SecretString;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::mpsc,
};

/// A server that says `answer` to whoever comes, then `flood` over and over if there is one. It tells what it read.
async fn server(answer: Vec<u8>, flood: Option<Vec<u8>>) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, asked) = mpsc::unbounded_channel();
    tokio_util::task::TaskTracker::new().spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 65536];
            let read = stream.read(&mut request).await.unwrap_or(0);
            let _ = tell.send(String::from_utf8_lossy(&request[..read]).into_owned());
            let _ = stream.write_all(&answer).await;
            if let Some(flood) = &flood {
                while stream.write_all(flood).await.is_ok() {}
            } else if !answer.is_empty() {
                let _ = stream.shutdown().await;
            } else {
                // Accepted and never answered: until the caller goes.
                let _ = stream.read(&mut request).await;
            }
        }
    });
    (address, asked)
}

fn token() -> SecretString {
    SecretString::from("secret-token".to_owned())
}

fn http(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

async fn ready(answer: Vec<u8>, flood: Option<Vec<u8>>) -> Result<Report, Error> {
    let (address, _asked) = server(answer, flood).await;
    agent::ready(address, &token(), Duration::ZERO, None).await
}

#[tokio::test]
async fn an_honest_agent_is_understood() {
    for (body, want) in [
        (r#"{"phase":"booting","cause":null,"exit_code":null,"log_tail":""}"#, Report::Booting),
        (r#"{"phase":"preparing"}"#, Report::Preparing),
        (r#"{"phase":"ready","exit_code":0,"more":[1,2]}"#, Report::Ready),
        (
            r#"{"phase":"failed","cause":"exit_status","exit_code":3,"log_tail":"a\u0000b"}"#,
            Report::Failed { cause: Cause::ExitStatus, exit_code: Some(3), log_tail: "ab".into() },
        ),
        (
            r#"{"phase":"failed","cause":"a new one","exit_code":null,"log_tail":""}"#,
            Report::Failed { cause: Cause::Unknown, exit_code: None, log_tail: String::new() },
        ),
    ] {
        assert_eq!(ready(http("200 OK", body), None).await.unwrap(), want, "{body}");
    }
}

#[tokio::test]
async fn the_question_names_the_phase_that_is_known_and_carries_the_token() {
    let (address, mut asked) = server(http("200 OK", r#"{"phase":"ready"}"#), None).await;
    agent::ready(address, &token(), Duration::from_secs(60), Some("booting")).await.unwrap();
    let request = asked.recv().await.unwrap();
    assert!(request.starts_with("GET /ready?wait=25&phase=booting HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("authorization: Bearer secret-token\r\n"), "{request}");
}

#[tokio::test]
async fn answers_of_a_wrong_form_are_refused() {
    let longer = format!("{}x", r#"{"phase":"ready"}"#);
    for (answer, word) in [
        (http("200 OK", ""), "malformed_answer"),
        (http("200 OK", "ready"), "malformed_answer"),
        (http("200 OK", r#"{"phase":"rooted"}"#), "malformed_answer"),
        (http("200 OK", r#"{"phase":7}"#), "malformed_answer"),
        (http("200 OK", &longer), "malformed_answer"),
        (http("200 OK", &"[".repeat(20_000)), "malformed_answer"),
        (http("401 Unauthorized", ""), "unauthorized"),
        (http("500 Oops", r#"{"phase":"ready"}"#), "malformed_answer"),
        (http("204 No Content", ""), "malformed_answer"),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), "no_answer"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{".to_vec(), "malformed_answer"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 17\r\n\r\n{}".to_vec(), "no_answer"),
    ] {
        let error = ready(answer.clone(), None).await.unwrap_err();
        assert_eq!(error.word(), word, "{}: {error}", String::from_utf8_lossy(&answer));
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_the_token_goes_nowhere_else() {
    let (elsewhere, mut visited) = server(http("200 OK", r#"{"phase":"ready"}"#), None).await;
    let answer =
        format!("HTTP/1.1 302 Found\r\nlocation: http://{elsewhere}/ready\r\ncontent-length: 0\r\n\r\n");
    let error = ready(answer.into_bytes(), None).await.unwrap_err();
    assert!(matches!(error, Error::Status(status) if status.as_u16() == 302));
    assert!(visited.try_recv().is_err());
}

#[tokio::test]
async fn headers_and_bodies_without_end_are_cut_off_early() {
    let started = std::time::Instant::now();
    let headers = ready(b"HTTP/1.1 200 OK\r\n".to_vec(), Some(b"x-a: bbbbbbbbbbbbbbbb\r\n".to_vec())).await;
    assert_eq!(headers.unwrap_err().word(), "no_answer");
    let one = ready(b"HTTP/1.1 200 OK\r\nx-a: ".to_vec(), Some(vec![b'b'; 4096])).await;
    assert_eq!(one.unwrap_err().word(), "no_answer");
    let body = b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n".to_vec();
    assert!(matches!(ready(body, Some(vec![b' '; 4096])).await, Err(Error::Body(_))));
    let chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let chunk = b"400\r\n".iter().copied().chain([b' '; 1024]).chain(*b"\r\n").collect();
    assert!(matches!(ready(chunks, Some(chunk)).await, Err(Error::Body(_))));
    // No time-out was needed for any of them.
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
}

#[tokio::test]
async fn compressed_answers_are_not_unpacked() {
    let mut answer = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n".to_vec();
    answer.extend([0x1f, 0x8b, 8, 0]);
    assert!(matches!(ready(answer, None).await, Err(Error::Malformed(_))));
}

#[tokio::test]
async fn silence_and_endless_preliminaries_end_in_time() {
    let started = std::time::Instant::now();
    let continues = b"HTTP/1.1 100 Continue\r\n\r\n".to_vec();
    let (silent, endless) = tokio::join!(ready(vec![], None), ready(continues.clone(), Some(continues)));
    assert!(matches!(silent, Err(Error::TimedOut)));
    assert!(endless.is_err());
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
}

#[tokio::test]
async fn nobody_listening_is_told_at_once() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = agent::ready(address, &token(), Duration::ZERO, None).await.unwrap_err();
    assert!(matches!(error, Error::Connect(_)));
}

#[tokio::test]
async fn a_log_tail_and_an_output_are_cut_to_their_limits() {
    let tail = format!(r#"{{"phase":"failed","cause":"timeout","log_tail":"{}end"}}"#, "ä".repeat(5000));
    match ready(http("200 OK", &tail), None).await.unwrap() {
        Report::Failed { log_tail, .. } => {
            assert!(log_tail.len() <= agent::LOG_TAIL && log_tail.ends_with("end"));
        }
        other => panic!("{other:?}"),
    }
    let output = format!(r#"{{"id":"1","exit_code":0,"output":"{}"}}"#, "x".repeat(100_000));
    let (address, _asked) = server(http("200 OK", &output), None).await;
    let second = Duration::from_secs(2);
    let graded = agent::exec(address, &token(), "1", "true", second, second).await.unwrap();
    assert_eq!((graded.output.len(), graded.truncated), (agent::OUTPUT, true));
}

#[tokio::test]
async fn a_busy_agent_and_a_small_terminal_have_their_words() {
    let second = Duration::from_secs(2);
    let (address, _asked) = server(http("409 Conflict", r#"{"error":"busy"}"#), None).await;
    let busy = agent::exec(address, &token(), "1", "true", second, second).await.unwrap_err();
    assert_eq!(busy.word(), "busy");
    let (address, mut asked) = server(http("204 No Content", ""), None).await;
    agent::tty(address, &token(), 40, 120, second).await.unwrap();
    assert!(asked.recv().await.unwrap().ends_with(r#"{"cols":120,"rows":40}"#));
}
