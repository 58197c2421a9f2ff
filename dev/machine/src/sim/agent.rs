//! The agent of a played guest: the same answers as the real one, on the machine's own address.
//!
//! It serves until `up` is cancelled; then every connection is cut at once, as when a machine dies.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use subtle::ConstantTimeEq as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::guest::{Answer, Guest, Phase, Report};
use super::rules::AgentFault;

/// The longest that `/ready` holds an answer.
const LONGEST_WAIT: Duration = Duration::from_secs(25);
/// The largest body that `/exec` reads.
const BODY: usize = 1 << 20;
/// The exit code of a script that was stopped by its limit, as `timeout(1)` has it.
const TIMED_OUT: i32 = 124;

type Reply = Response<BoxBody<Bytes, Infallible>>;

/// Why a connection ends without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the agent dropped the connection")]
struct Dropped;

/// Accepts until `up` is cancelled.
pub(super) async fn serve(
    listener: TcpListener,
    guest: Arc<Guest>,
    tracker: TaskTracker,
    up: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            () = up.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        // A connection that broke before we took it is the caller's affair; no descriptor left is ours, and passes.
        let Ok((stream, _)) = accepted else {
            tokio::task::yield_now().await;
            continue;
        };
        let (guest, up) = (Arc::clone(&guest), up.clone());
        tracker.spawn(async move {
            tokio::select! {
                () = up.cancelled() => {}
                () = connection(stream, guest) => {}
            }
        });
    }
}

async fn connection(mut stream: TcpStream, guest: Arc<Guest>) {
    match guest.behaviour.agent {
        Some(AgentFault::Silent) => std::future::pending().await,
        Some(AgentFault::Garbage) => {
            let _gone = stream.write_all(b"\x00\xff\x00 this is no HTTP\r\n\r\n").await;
            return;
        }
        None
        | Some(AgentFault::Absent | AgentFault::Endless | AgentFault::Redirect | AgentFault::Unauthorized) => {
        }
    }
    let service = hyper::service::service_fn(move |request| {
        let guest = Arc::clone(&guest);
        async move { answer(request, &guest).await }
    });
    // The caller may go away at any time, and a scripted drop is an error too: nothing to do about either.
    let _gone =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, guest: &Guest) -> Result<Reply, Dropped> {
    match guest.behaviour.agent {
        Some(AgentFault::Endless) => return Ok(endless()),
        Some(AgentFault::Redirect) => {
            let mut reply = text(StatusCode::FOUND, "");
            let elsewhere = http::HeaderValue::from_static("http://127.0.0.1:1/stolen");
            reply.headers_mut().insert(header::LOCATION, elsewhere);
            return Ok(reply);
        }
        Some(AgentFault::Unauthorized) => return Ok(text(StatusCode::UNAUTHORIZED, "unauthorized\n")),
        None | Some(AgentFault::Absent | AgentFault::Silent | AgentFault::Garbage) => {}
    }
    let (parts, body) = request.into_parts();
    if parts.uri.path() == "/healthz" && parts.method == Method::GET {
        return Ok(text(StatusCode::OK, "ok\n"));
    }
    if !authorized(&parts.headers, guest.settings.token.as_deref()) {
        return Ok(text(StatusCode::UNAUTHORIZED, "unauthorized\n"));
    }
    match (parts.method, parts.uri.path()) {
        (Method::GET, "/ready") => {
            Ok(json(StatusCode::OK, &ready(guest, parts.uri.query().unwrap_or("")).await))
        }
        (Method::POST, "/exec") => exec(guest, body).await,
        (Method::POST, "/tty") => Ok(tty(guest, body).await),
        _ => Ok(text(StatusCode::NOT_FOUND, "not found\n")),
    }
}

fn authorized(headers: &HeaderMap, token: Option<&str>) -> bool {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match (given.and_then(|value| value.strip_prefix("Bearer ")), token) {
        (Some(given), Some(token)) => bool::from(given.as_bytes().ct_eq(token.as_bytes())),
        (None, _) | (_, None) => false,
    }
}

/// Holds the answer until the phase is another than the caller knows, or its patience ends.
async fn ready(guest: &Guest, query: &str) -> Report {
    let mut wait = Duration::ZERO;
    let mut known: Option<String> = None;
    for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        match key {
            "wait" => wait = value.parse().map_or(Duration::ZERO, Duration::from_secs_f64_checked),
            "phase" => known = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut report = guest.report.subscribe();
    let known = known.unwrap_or_else(|| phase_word(report.borrow().phase).to_owned());
    let changed = report.wait_for(|report| phase_word(report.phase) != known);
    // Whether it changed or the time is up, the answer is what holds now.
    let _either = tokio::time::timeout(wait.min(LONGEST_WAIT), changed).await.is_ok();
    guest.report.borrow().clone()
}

/// Seconds as a caller writes them, nonsense being none at all.
trait Seconds {
    fn from_secs_f64_checked(seconds: f64) -> Self;
}

impl Seconds for Duration {
    fn from_secs_f64_checked(seconds: f64) -> Self {
        Self::try_from_secs_f64(seconds).unwrap_or(Self::ZERO)
    }
}

fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Booting => "booting",
        Phase::Preparing => "preparing",
        Phase::Ready => "ready",
        Phase::Failed => "failed",
    }
}

async fn exec(guest: &Guest, body: Incoming) -> Result<Reply, Dropped> {
    #[derive(Deserialize)]
    struct Call {
        id: String,
        script: String,
        #[serde(default = "default_limit")]
        timeout_ms: u64,
    }
    let Some(call) = read::<Call>(body).await else {
        return Ok(text(StatusCode::BAD_REQUEST, "bad request\n"));
    };
    if let Some(known) = guest.answered(&call.id) {
        return Ok(json(StatusCode::OK, &known));
    }
    let limit = Duration::from_millis(call.timeout_ms);
    let Ok(_alone) = tokio::time::timeout(limit, guest.exec.lock()).await else {
        return Ok(json(StatusCode::CONFLICT, &serde_json::json!({"error": "busy"})));
    };
    if let Some(known) = guest.answered(&call.id) {
        return Ok(json(StatusCode::OK, &known));
    }
    let scripted = guest.script(&call.script);
    let timed_out = scripted.delay > limit;
    tokio::time::sleep(scripted.delay.min(limit)).await;
    if scripted.drops {
        return Err(Dropped);
    }
    let answer = Answer {
        id: call.id,
        exit_code: if timed_out { TIMED_OUT } else { scripted.exit_code },
        output: scripted.output,
        truncated: scripted.truncated,
        timed_out,
    };
    guest.keep(&answer);
    Ok(json(StatusCode::OK, &answer))
}

fn default_limit() -> u64 {
    30_000
}

async fn tty(guest: &Guest, body: Incoming) -> Reply {
    #[derive(Deserialize)]
    struct Size {
        rows: u16,
        cols: u16,
    }
    match read::<Size>(body).await {
        Some(size) if size.rows > 0 && size.cols > 0 => {
            guest.resize(size.rows, size.cols);
            text(StatusCode::NO_CONTENT, "")
        }
        Some(_) | None => text(StatusCode::BAD_REQUEST, "bad request\n"),
    }
}

async fn read<T: serde::de::DeserializeOwned>(body: Incoming) -> Option<T> {
    let bytes = Limited::new(body, BODY).collect().await.ok()?.to_bytes();
    serde_json::from_slice(&bytes).ok()
}

fn text(status: StatusCode, text: &'static str) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *reply.status_mut() = status;
    reply
}

fn json<T: serde::Serialize>(status: StatusCode, value: &T) -> Reply {
    let bytes = serde_json::to_vec(value).expect("plain data with string keys is always JSON");
    let mut reply = Response::new(Full::new(Bytes::from(bytes)).boxed());
    *reply.status_mut() = status;
    let kind = http::HeaderValue::from_static("application/json");
    reply.headers_mut().insert(header::CONTENT_TYPE, kind);
    reply
}

fn endless() -> Reply {
    let chunk = Bytes::from_static(&[b'x'; 4096]);
    let stream = futures::stream::repeat_with(move || Ok(Frame::data(chunk.clone())));
    Response::new(BodyExt::boxed(StreamBody::new(stream)))
}
