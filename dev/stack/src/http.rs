//! A small HTTP client for addresses on this machine: health checks, the cluster's API, the bench.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// No answer that we read whole is larger.
const MAX_BODY: usize = 8 * 1024 * 1024;

/// A client with its pool of connections.
#[derive(Clone)]
pub(crate) struct Http {
    client: Client<HttpConnector, Full<Bytes>>,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }

    /// The beginning of the body, for messages.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).chars().take(400).collect()
    }
}

impl Http {
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(Duration::from_secs(5)));
        Self {
            client: Client::builder(TokioExecutor::new())
                .pool_idle_timeout(Duration::from_secs(10))
                .build(connector),
        }
    }

    /// Sends a request and returns once the head of the answer is there.
    pub(crate) async fn open(&self, request: Request<Full<Bytes>>) -> Result<http::Response<Incoming>> {
        let uri = request.uri().clone();
        self.client.request(request).await.map_err(|error| anyhow!("no answer from {uri}: {}", chain(&error)))
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>, within: Duration) -> Result<Answer> {
        let uri = request.uri().clone();
        let exchange = async {
            let (head, body) = self.open(request).await?.into_parts();
            let body =
                Limited::new(body, MAX_BODY).collect().await.map_err(|error| anyhow!("{error}"))?.to_bytes();
            Ok(Answer { status: head.status, headers: head.headers, body })
        };
        tokio::time::timeout(within, exchange)
            .await
            .with_context(|| format!("no answer from {uri} in {within:?}"))?
    }

    /// `GET` of a whole answer.
    pub(crate) async fn get(&self, uri: &str, within: Duration) -> Result<Answer> {
        self.send(request(Method::GET, uri, None, None)?, within).await
    }
}

/// A request with an optional bearer token and JSON body.
pub(crate) fn request(
    method: Method,
    uri: &str,
    bearer: Option<&str>,
    json: Option<&serde_json::Value>,
) -> Result<Request<Full<Bytes>>> {
    let mut builder =
        Request::builder().method(method).uri(uri).header(http::header::ACCEPT, "application/json, */*");
    if let Some(token) = bearer {
        builder = builder.header(http::header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let body = match json {
        Some(value) => {
            builder = builder.header(http::header::CONTENT_TYPE, "application/json");
            Bytes::from(value.to_string())
        }
        None => Bytes::new(),
    };
    builder.body(Full::new(body)).with_context(|| format!("not a request: {uri}"))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
