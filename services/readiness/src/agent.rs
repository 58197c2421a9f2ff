//! Calls to the agent inside a student's machine. The student is root in there, so every answer is hostile until shown
//! otherwise: no redirect is followed, no proxy asked, nothing decompressed; header, body and time are bounded, and text
//! is cut to its limit as valid UTF-8.
//!
//! A connection that is accepted proves nothing: a user-mode network accepts before the guest listens. Only an answer
//! counts.

use std::{net::SocketAddr, pin::pin, time::Duration};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use tokio::net::TcpStream;

use crate::decide::Cause;

/// A connection in the cluster's network takes milliseconds; one that hangs hangs for ever.
const CONNECT: Duration = Duration::from_secs(2);
/// Beyond the time for which the agent was told to hold its answer.
const SLACK: Duration = Duration::from_secs(4);
/// The longest time for which the agent holds an answer.
pub const MAX_WAIT: Duration = Duration::from_secs(25);
/// Status line and headers together; the smallest that hyper takes is 8192.
const MAX_HEADER: usize = 8192;
/// Number of headers.
const MAX_HEADERS: usize = 32;
/// A log tail of 4096 bytes, each escaped to six.
const MAX_REPORT: usize = 32 * 1024;
/// An output of 65536 bytes, each escaped to six.
const MAX_RESULT: usize = 512 * 1024;
/// Bytes of a log tail.
pub const LOG_TAIL: usize = 4096;
/// Bytes of a grader's output.
pub const OUTPUT: usize = 65536;

/// Why a call gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens.
    #[error("cannot connect to the agent")]
    Connect(#[source] std::io::Error),
    /// It took too long.
    #[error("the agent did not answer in time")]
    TimedOut,
    /// What came is no HTTP, or more header than is read.
    #[error("the agent's answer is no HTTP")]
    Protocol(#[source] hyper::Error),
    /// The body is broken off or larger than is read.
    #[error("the agent's answer cannot be read")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The agent has another token.
    #[error("the agent does not take our token")]
    Unauthorized,
    /// It works on something else.
    #[error("the agent is busy")]
    Busy,
    /// A status that the call does not have.
    #[error("the agent answered {0}")]
    Status(StatusCode),
    /// A body of another form.
    #[error("the agent's answer is malformed")]
    Malformed(#[source] serde_json::Error),
}

impl Error {
    /// One word for machines.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Connect(_) | Self::TimedOut | Self::Protocol(_) => "no_answer",
            Self::Unauthorized => "unauthorized",
            Self::Busy => "busy",
            Self::Body(_) | Self::Status(_) | Self::Malformed(_) => "malformed_answer",
        }
    }
}

/// What the agent says about the start. The order is the rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// cloud-init is at work.
    Booting,
    /// The prepare script runs.
    Preparing,
    /// All is done.
    Ready,
    /// It did not succeed.
    Failed {
        /// Why.
        cause: Cause,
        /// The script's exit code.
        exit_code: Option<i32>,
        /// End of its log.
        log_tail: String,
    },
}

impl Report {
    /// The word on the wire.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Booting => "booting",
            Self::Preparing => "preparing",
            Self::Ready => "ready",
            Self::Failed { .. } => "failed",
        }
    }

    /// Whether nothing more comes after it.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Ready | Self::Failed { .. })
    }
}

/// What a grader did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graded {
    /// Its exit code.
    pub exit_code: i32,
    /// What it printed, at most [`OUTPUT`] bytes.
    pub output: String,
    /// There was more.
    pub truncated: bool,
    /// It was stopped after its limit.
    pub timed_out: bool,
}

#[derive(Deserialize)]
struct WireReport {
    phase: String,
    #[serde(default)]
    cause: Option<String>,
    #[serde(default)]
    exit_code: Option<i32>,
    #[serde(default)]
    log_tail: String,
}

#[derive(Deserialize)]
struct WireGraded {
    exit_code: i32,
    #[serde(default)]
    output: String,
    #[serde(default)]
    truncated: bool,
    #[serde(default)]
    timed_out: bool,
}

/// Asks how the start goes. The agent holds its answer up to `wait` until its phase differs from `known`.
///
/// # Errors
/// If no answer of the right form comes in time.
pub async fn ready(
    address: SocketAddr,
    token: &SecretString,
    wait: Duration,
    known: Option<&'static str>,
) -> Result<Report, Error> {
    let wait = wait.min(MAX_WAIT);
    let known = known.map(|word| format!("&phase={word}")).unwrap_or_default();
    let path = format!("/ready?wait={}{known}", wait.as_secs());
    let (status, body) =
        call(address, token, Method::GET, &path, Bytes::new(), MAX_REPORT, wait + SLACK).await?;
    expect(status, StatusCode::OK)?;
    let report: WireReport = serde_json::from_slice(&body).map_err(Error::Malformed)?;
    match report.phase.as_str() {
        "booting" => Ok(Report::Booting),
        "preparing" => Ok(Report::Preparing),
        "ready" => Ok(Report::Ready),
        "failed" => Ok(Report::Failed {
            cause: match report.cause.as_deref() {
                Some("exit_status") => Cause::ExitStatus,
                Some("timeout") => Cause::Timeout,
                Some("cloud_init") => Cause::CloudInit,
                Some("signal") => Cause::Signal,
                Some(_) | None => Cause::Unknown,
            },
            exit_code: report.exit_code,
            log_tail: tail(&report.log_tail, LOG_TAIL),
        }),
        _ => Err(Error::Malformed(serde::de::Error::custom("an unknown phase"))),
    }
}

/// Runs a grader. A repeated id gets the first result.
///
/// # Errors
/// If no answer of the right form comes within `limit`.
pub async fn exec(
    address: SocketAddr,
    token: &SecretString,
    id: &str,
    script: &str,
    timeout: Duration,
    limit: Duration,
) -> Result<Graded, Error> {
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let body = serde_json::json!({"id": id, "script": script, "timeout_ms": timeout_ms}).to_string();
    let (status, body) = call(address, token, Method::POST, "/exec", body.into(), MAX_RESULT, limit).await?;
    if status == StatusCode::CONFLICT {
        return Err(Error::Busy);
    }
    expect(status, StatusCode::OK)?;
    let WireGraded { exit_code, output, truncated, timed_out } =
        serde_json::from_slice(&body).map_err(Error::Malformed)?;
    let cut = head(&output, OUTPUT);
    Ok(Graded { exit_code, truncated: truncated || cut.len() < output.len(), output: cut, timed_out })
}

/// Tells the serial terminal its size.
///
/// # Errors
/// If the agent does not say that it did.
pub async fn tty(
    address: SocketAddr,
    token: &SecretString,
    rows: u32,
    cols: u32,
    limit: Duration,
) -> Result<(), Error> {
    let body = serde_json::json!({"rows": rows, "cols": cols}).to_string();
    let (status, _) = call(address, token, Method::POST, "/tty", body.into(), MAX_HEADER, limit).await?;
    expect(status, StatusCode::NO_CONTENT)
}

fn expect(status: StatusCode, wanted: StatusCode) -> Result<(), Error> {
    match status {
        status if status == wanted => Ok(()),
        StatusCode::UNAUTHORIZED => Err(Error::Unauthorized),
        status => Err(Error::Status(status)),
    }
}

/// One request on a connection of its own.
async fn call(
    address: SocketAddr,
    token: &SecretString,
    method: Method,
    path: &str,
    body: Bytes,
    max_body: usize,
    limit: Duration,
) -> Result<(StatusCode, Bytes), Error> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, address.to_string())
        .header(header::AUTHORIZATION, format!("Bearer {}", token.expose_secret()))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close")
        .body(Full::new(body))
        .expect("method, path and headers are all of our own making");
    let exchange = async {
        let stream = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await;
        let stream = stream.map_err(|_| Error::TimedOut)?.map_err(Error::Connect)?;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEADER)
            .max_headers(MAX_HEADERS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(Error::Protocol)?;
        let answer = async {
            let answer = sender.send_request(request).await.map_err(Error::Protocol)?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), max_body).collect().await.map_err(Error::Body)?;
            Ok((status, body.to_bytes()))
        };
        // The connection makes progress only while it is polled; its own end is told through the answer.
        let (mut connection, mut answer) = (pin!(connection), pin!(answer));
        let mut is_open = true;
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                _ = &mut connection, if is_open => is_open = false,
            }
        }
    };
    tokio::time::timeout(limit, exchange).await.map_err(|_| Error::TimedOut)?
}

/// At most `limit` bytes from the end, whole characters, none that PostgreSQL refuses.
fn tail(text: &str, limit: usize) -> String {
    let text = text.replace('\0', "");
    let mut from = text.len().saturating_sub(limit);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].to_owned()
}

/// At most `limit` bytes from the beginning.
fn head(text: &str, limit: usize) -> String {
    let text = text.replace('\0', "");
    text[..text.floor_char_boundary(limit)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(tail("a\0äöü", 5), "öü");
        assert_eq!(tail("äöü", 100), "äöü");
        assert_eq!(head("äöü", 3), "ä");
        assert_eq!(head("äöü", 6), "äöü");
    }
}
