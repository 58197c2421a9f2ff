//! The serial console of a VMI: one WebSocket through the Kubernetes API server.
//!
//! kube's own WebSocket support cannot be used: it insists on a protocol of its own, KubeVirt speaks `plain.kubevirt.io` only.
//!
//! Rules that this file keeps (all measured): the URL is never asked without upgrading, for even a plain GET throws out the
//! client that is connected; `Accept` has `*/*`, for JSON alone is answered 406; frames to KubeVirt must be BINARY, text is
//! dropped without a word. A second dial throws out the first client, whose stream then just ends.

use std::time::Duration;

use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::client::Body;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::{client::generate_key, derive_accept_key},
        protocol::{Role, WebSocketConfig},
    },
};

/// KubeVirt's protocol: raw bytes in binary frames, no channel byte.
pub const PROTOCOL: &str = "plain.kubevirt.io";
/// More of a refusal's body is not read.
const MAX_REFUSAL: usize = 64 * 1024;

/// An open console.
pub type Stream = WebSocketStream<TokioIo<Upgraded>>;

/// Why a console did not open.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The names do not make a URL.
    #[error("the console request of {vmi} cannot be built")]
    Request {
        /// The VMI.
        vmi: String,
        /// What is wrong with it.
        #[source]
        source: http::Error,
    },
    /// The API server was not reached, or did not speak HTTP.
    #[error("the API server did not answer the console request of {vmi}")]
    Send {
        /// The VMI.
        vmi: String,
        /// What happened.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer in time.
    #[error("no answer to the console request of {vmi} within {limit:?}")]
    TimedOut {
        /// The VMI.
        vmi: String,
        /// The limit.
        limit: Duration,
    },
    /// An answer other than 101.
    #[error("the console of {vmi} was refused with {status}: {message}")]
    Refused {
        /// The VMI.
        vmi: String,
        /// HTTP status.
        status: StatusCode,
        /// What it means.
        refusal: Refusal,
        /// The server's words, cut to a line's length.
        message: String,
    },
    /// 101, but not a handshake.
    #[error("the console handshake of {vmi} is broken: {what}")]
    Handshake {
        /// The VMI.
        vmi: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// 101, but the connection could not be taken over.
    #[error("the console connection of {vmi} could not be taken over")]
    Upgrade {
        /// The VMI.
        vmi: String,
        /// What happened.
        #[source]
        source: hyper::Error,
    },
}

/// What a refusal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Not running yet: dial again in a moment.
    NotRunning,
    /// No such VMI.
    Missing,
    /// The VMI has failed: it will not come back.
    Failed,
    /// The VMI was made without a serial console.
    NoConsole,
    /// We have no right to it, or no valid token.
    Denied,
    /// A part of KubeVirt is away: the guest may well go on. Dial again in a moment.
    Unavailable,
    /// Something else.
    Other,
}

impl Refusal {
    fn of(status: StatusCode, message: &str) -> Self {
        match status.as_u16() {
            401 | 403 => Self::Denied,
            404 => Self::Missing,
            409 => Self::Failed,
            400 if message.contains("VMI is not running") => Self::NotRunning,
            400 if message.contains("No serial console") => Self::NoConsole,
            400 if message.contains("No virt-handler") => Self::Unavailable,
            429 | 500..=599 => Self::Unavailable,
            _ => Self::Other,
        }
    }
}

impl Error {
    /// Whether the same dial may succeed in a moment.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Send { .. } | Self::TimedOut { .. } | Self::Upgrade { .. } => true,
            Self::Refused { refusal, .. } => {
                matches!(refusal, Refusal::NotRunning | Refusal::Unavailable)
            }
            Self::Request { .. } | Self::Handshake { .. } => false,
        }
    }
}

/// Opens the console of `vmi`, throwing out whoever else has it.
///
/// # Errors
/// Anything but a complete handshake within `limit`.
pub async fn dial(
    client: &kube::Client,
    namespace: &str,
    vmi: &str,
    config: Option<WebSocketConfig>,
    limit: Duration,
) -> Result<Stream, Error> {
    match tokio::time::timeout(limit, dial_unbounded(client, namespace, vmi, config)).await {
        Ok(result) => result,
        Err(_) => Err(Error::TimedOut { vmi: vmi.to_owned(), limit }),
    }
}

async fn dial_unbounded(
    client: &kube::Client,
    namespace: &str,
    vmi: &str,
    config: Option<WebSocketConfig>,
) -> Result<Stream, Error> {
    let name = || vmi.to_owned();
    let key = generate_key();
    let request = request(namespace, vmi, &key).map_err(|source| Error::Request { vmi: name(), source })?;
    let response =
        client.send(request).await.map_err(|source| Error::Send { vmi: name(), source: Box::new(source) })?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refused(vmi, response).await);
    }
    check(&response, &key).map_err(|what| Error::Handshake { vmi: name(), what })?;
    let upgraded =
        hyper::upgrade::on(response).await.map_err(|source| Error::Upgrade { vmi: name(), source })?;
    Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, config).await)
}

fn request(namespace: &str, vmi: &str, key: &str) -> Result<Request<Body>, http::Error> {
    let path = format!(
        "/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances/{vmi}/console"
    );
    Request::get(path)
        .header(header::ACCEPT, "application/json, */*")
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_KEY, key)
        .header(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
        .body(Body::empty())
}

/// Reads the server's words: a Status where it is one, else the text.
async fn refused(vmi: &str, response: Response<Body>) -> Error {
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_REFUSAL).collect().await;
    let bytes = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let text = match serde_json::from_slice::<Status>(&bytes) {
        Ok(Status { message: Some(message), .. }) => message,
        Ok(_) | Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    };
    let message: String = text.chars().filter(|c| !c.is_control()).take(300).collect();
    Error::Refused { vmi: vmi.to_owned(), status, refusal: Refusal::of(status, &message), message }
}

fn check(response: &Response<Body>, key: &str) -> Result<(), &'static str> {
    let header = |name| response.headers().get(name).and_then(|v| v.to_str().ok());
    if !header(header::UPGRADE).is_some_and(|v| v.eq_ignore_ascii_case("websocket")) {
        return Err("it does not upgrade to a WebSocket");
    }
    if header(header::SEC_WEBSOCKET_ACCEPT) != Some(derive_accept_key(key.as_bytes()).as_str()) {
        return Err("its accept key is not ours");
    }
    if header(header::SEC_WEBSOCKET_PROTOCOL) != Some(PROTOCOL) {
        return Err("it chose another protocol");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_recorded_refusal_has_its_meaning() {
        let table = [
            (400, "VMI is not running", Refusal::NotRunning),
            (400, "No serial consoles are present.", Refusal::NoConsole),
            (400, "No virt-handler on node node1 found", Refusal::Unavailable),
            (400, "Bad Request {...}", Refusal::Other),
            (401, "Unauthorized", Refusal::Denied),
            (
                403,
                "virtualmachineinstances.subresources.kubevirt.io \"con\" is forbidden: …",
                Refusal::Denied,
            ),
            (404, "virtualmachineinstance.kubevirt.io \"nope\" not found", Refusal::Missing),
            (406, "406: Not Acceptable", Refusal::Other),
            (409, "VMI is in failed status", Refusal::Failed),
            (500, "Internal error occurred: dial tcp …", Refusal::Unavailable),
            (503, "service unavailable", Refusal::Unavailable),
        ];
        for (status, message, expected) in table {
            assert_eq!(Refusal::of(StatusCode::from_u16(status).unwrap(), message), expected, "{message}");
        }
    }

    #[test]
    fn the_request_upgrades_and_accepts_anything() {
        let request = request("ttlab", "lab-x-main", "a2V5").unwrap();
        assert_eq!(
            request.uri(),
            "/apis/subresources.kubevirt.io/v1/namespaces/ttlab/virtualmachineinstances/lab-x-main/console"
        );
        assert_eq!(request.headers()[header::ACCEPT], "application/json, */*");
        assert_eq!(request.headers()[header::SEC_WEBSOCKET_PROTOCOL], "plain.kubevirt.io");
        assert_eq!(request.headers()[header::UPGRADE], "websocket");
    }
}
