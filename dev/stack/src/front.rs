//! The front door: one address for the browser, as the Ingress gives it in production.
//!
//! `/api/sessions/<id>/console` goes to console-gw, everything else to the api. Bodies stream both ways without a
//! buffer (server-sent events arrive as they are sent), upgrades become a tunnel of bytes. It keeps no state and
//! knows no session; it only refuses names other than its own, so that no foreign page can reach it by a name of
//! its own that points at this machine.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ui;

/// Open connections get this long to end once the door closes.
const CLOSING: Duration = Duration::from_secs(1);
/// Headers that belong to one hop.
const HOP: [HeaderName; 6] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
];

type Body = BoxBody<Bytes, hyper::Error>;

/// Where requests go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Routes {
    pub(crate) listen: SocketAddr,
    pub(crate) api: SocketAddr,
    pub(crate) console: SocketAddr,
}

#[derive(Clone)]
struct Door {
    routes: Routes,
    client: Client<HttpConnector, Incoming>,
    tracker: TaskTracker,
    closing: CancellationToken,
}

/// Serves until `closing`.
pub(crate) async fn serve(routes: Routes, closing: CancellationToken) -> Result<()> {
    let listener = TcpListener::bind(routes.listen)
        .await
        .with_context(|| format!("cannot listen on {}", routes.listen))?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(Duration::from_secs(2)));
    let client =
        Client::builder(TokioExecutor::new()).pool_idle_timeout(Duration::from_secs(20)).build(connector);
    let tracker = TaskTracker::new();
    let routes = Routes { listen: listener.local_addr().context("a listener without an address")?, ..routes };
    let door = Door { routes, client, tracker: tracker.clone(), closing: closing.clone() };
    loop {
        let accepted = tokio::select! {
            () = closing.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let _ = stream.set_nodelay(true);
                tracker.spawn(connection(door.clone(), TokioIo::new(stream), peer));
            }
            Err(error) => {
                // Out of file handles, most likely: the next connection may find one.
                ui::warn(format_args!("cannot accept a connection: {error}"));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    tracker.close();
    let _ = tokio::time::timeout(CLOSING, tracker.wait()).await;
    Ok(())
}

async fn connection(door: Door, stream: TokioIo<tokio::net::TcpStream>, peer: SocketAddr) {
    let closing = door.closing.clone();
    let service = service_fn(move |request| {
        let door = door.clone();
        async move { Ok::<_, Infallible>(door.answer(request, peer).await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
    let serving = builder.serve_connection(stream, service).with_upgrades();
    tokio::pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => {}
        () = closing.cancelled() => {
            serving.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(CLOSING, serving).await;
        }
    }
}

impl Door {
    async fn answer(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Body> {
        if let Some(refusal) = self.check_host(&request) {
            return refusal;
        }
        if request.uri().path() == "/.front-door" {
            return text(StatusCode::OK, "open\n");
        }
        let to_console = is_console(request.uri().path());
        let (target, name) =
            if to_console { (self.routes.console, "console") } else { (self.routes.api, "api") };
        self.forward(request, target, peer).await.unwrap_or_else(|| unavailable(name))
    }

    /// Only our own name, and `localhost`, which is sent on to it: cookies and the Origin rule know one name.
    fn check_host(&self, request: &Request<Incoming>) -> Option<Response<Body>> {
        let host =
            request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let own = self.routes.listen.to_string();
        if host == own {
            return None;
        }
        let page = matches!(*request.method(), Method::GET | Method::HEAD);
        if page && host == format!("localhost:{}", self.routes.listen.port()) {
            let target =
                format!("http://{own}{}", request.uri().path_and_query().map_or("/", PathAndQuery::as_str));
            let mut response = text(StatusCode::TEMPORARY_REDIRECT, "");
            if let Ok(location) = HeaderValue::from_str(&target) {
                response.headers_mut().insert(header::LOCATION, location);
            }
            return Some(response);
        }
        Some(problem(
            StatusCode::MISDIRECTED_REQUEST,
            "wrong_host",
            "This is not the address of TT Lab.",
            &format!("Open http://{own}/ instead."),
        ))
    }

    async fn forward(
        &self,
        mut request: Request<Incoming>,
        target: SocketAddr,
        peer: SocketAddr,
    ) -> Option<Response<Body>> {
        let upgrade = upgrade_of(request.headers());
        let downstream = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        *request.uri_mut() = absolute(request.uri(), target)?;
        strip(request.headers_mut(), upgrade.as_ref());
        if let Ok(address) = HeaderValue::from_str(&peer.ip().to_string()) {
            request.headers_mut().insert(HeaderName::from_static("x-forwarded-for"), address);
        }
        let mut response = match self.client.request(request).await {
            Ok(response) => response,
            Err(error) => {
                ui::warn(format_args!("{target} does not answer: {error}"));
                return None;
            }
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let upstream = hyper::upgrade::on(&mut response);
            self.tunnel(downstream?, upstream);
            return Some(response.map(|_| empty()));
        }
        strip(response.headers_mut(), None);
        Some(response.map(BodyExt::boxed))
    }

    /// Copies bytes both ways until either side is done or the door closes.
    fn tunnel(&self, downstream: hyper::upgrade::OnUpgrade, upstream: hyper::upgrade::OnUpgrade) {
        let closing = self.closing.clone();
        self.tracker.spawn(async move {
            let (Ok(down), Ok(up)) = tokio::join!(downstream, upstream) else { return };
            let (mut down, mut up) = (TokioIo::new(down), TokioIo::new(up));
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut down, &mut up) => {}
                () = async {
                    closing.cancelled().await;
                    tokio::time::sleep(CLOSING).await;
                } => {}
            }
        });
    }
}

/// `/api/sessions/<id>/console`, nothing before it and nothing after it.
fn is_console(path: &str) -> bool {
    path.strip_prefix("/api/sessions/")
        .and_then(|rest| rest.strip_suffix("/console"))
        .is_some_and(|id| !id.is_empty() && !id.contains('/'))
}

fn absolute(uri: &Uri, target: SocketAddr) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Authority::try_from(target.to_string()).ok();
    if parts.path_and_query.is_none() {
        parts.path_and_query = Some(PathAndQuery::from_static("/"));
    }
    Uri::from_parts(parts).ok()
}

/// The protocol that the browser wants to change to.
fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let asks = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade")));
    asks.then(|| headers.get(header::UPGRADE).cloned()).flatten()
}

fn strip(headers: &mut HeaderMap, upgrade: Option<&HeaderValue>) {
    for name in &HOP {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    match upgrade {
        Some(_) => {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        }
        None => {
            headers.remove(header::UPGRADE);
        }
    }
}

fn empty() -> Body {
    full(Bytes::new())
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

fn text(status: StatusCode, body: &'static str) -> Response<Body> {
    let mut response = Response::new(full(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    response
}

fn unavailable(name: &str) -> Response<Body> {
    let mut response = problem(
        StatusCode::SERVICE_UNAVAILABLE,
        "starting",
        &format!("The {name} does not answer at the moment."),
        "It is started again by itself: wait a few seconds and try again. Sessions go on meanwhile.",
    );
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn problem(status: StatusCode, code: &str, detail: &str, next: &str) -> Response<Body> {
    let document = serde_json::json!({
        "type": format!("urn:ttlab:problem:{code}"),
        "title": status.canonical_reason().unwrap_or("Error"),
        "status": status.as_u16(),
        "code": code,
        "detail": detail,
        "next": next,
    });
    let mut response = Response::new(full(Bytes::from(document.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

#[cfg(test)]
mod tests;
