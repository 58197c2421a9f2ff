//! A cluster in this process, on a port and a directory of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use clap::Parser as _;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use lab_cluster::Running;
use lab_cluster::api::Pace;
use lab_cluster::config::Args;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Nothing in these tests takes longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(15);

/// The cluster under test.
pub(crate) struct Lab {
    pub(crate) running: Option<Running>,
    pub(crate) address: SocketAddr,
    pub(crate) admin: String,
    pub(crate) dir: TempDir,
    http: Client<HttpConnector, Body>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&self.body).into_owned()))
    }
}

pub(crate) fn args(dir: &TempDir, more: &[&str]) -> Args {
    let state = dir.path().join("state");
    let mut line = vec!["lab-cluster", "--state-dir", state.to_str().unwrap()];
    line.extend(more);
    Args::parse_from(line)
}

impl Lab {
    pub(crate) async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), &[]).await
    }

    pub(crate) async fn start_in(dir: TempDir, more: &[&str]) -> Self {
        let pace = Pace { namespace: Duration::from_millis(200), ..Pace::default() };
        let running =
            lab_cluster::start_with(args(&dir, more), pace, CancellationToken::new()).await.unwrap();
        let admin = token(&running.kubeconfig_dir.join("admin.kubeconfig"));
        let http = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(256).build_http();
        Self { address: running.address, running: Some(running), admin, dir, http }
    }

    /// Ends this cluster and starts another on the same directory.
    pub(crate) async fn restart(mut self) -> Self {
        self.running.take().unwrap().stop().await.unwrap();
        Self::start_in(self.dir, &[]).await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Response<hyper::body::Incoming> {
        self.http.request(request).await.unwrap()
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> http::request::Builder {
        Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header(header::HOST, self.address.to_string())
    }

    pub(crate) async fn read(response: Response<hyper::body::Incoming>) -> Answer {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { code: parts.status, headers: parts.headers, body }
    }

    /// One call as the administrator.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.call_as(&self.admin, method, path, body).await
    }

    pub(crate) async fn call_as(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Answer {
        let content =
            if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = self
            .request(method, path)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, content)
            .body(body.map_or_else(Body::empty, |b| Body::from(b.to_string())))
            .unwrap();
        Self::read(self.send(request).await).await
    }

    pub(crate) async fn create(&self, path: &str, body: Value) -> Value {
        let answer = self.call(Method::POST, path, Some(body)).await;
        assert_eq!(answer.code, StatusCode::CREATED, "{path}: {}", answer.json());
        answer.json()
    }

    /// Waits until a GET of `path` answers with `code`.
    pub(crate) async fn until(&self, path: &str, code: StatusCode) {
        self.until_that(path, |answer| answer.code == code).await;
    }

    pub(crate) async fn until_that(&self, path: &str, fits: impl Fn(&Answer) -> bool) -> Answer {
        let deadline = Instant::now() + LIMIT;
        loop {
            let answer = self.call(Method::GET, path, None).await;
            if fits(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "{path} is still {} {}", answer.code, answer.json());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The token of a kubeconfig.
pub(crate) fn token(kubeconfig: &PathBuf) -> String {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    value["users"][0]["user"]["token"].as_str().unwrap().to_owned()
}

pub(crate) fn secret(name: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels},
        "stringData": {"k": "v"},
    })
}
