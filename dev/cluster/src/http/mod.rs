//! The HTTP door: who asks, what for, may they, and in which form.

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use tokio_util::sync::CancellationToken;

use crate::api::Cluster;
use crate::status::Status;

/// The router; everything is decided by the path parser, not by routes.
pub(crate) fn app(_cluster: Cluster, _shutdown: CancellationToken) -> Router {
    Router::new()
}

/// A refusal as a response.
pub fn status_response(status: &Status) -> Response {
    let code = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(code, status.to_json().to_string());
    if let Some(seconds) = status.details().and_then(|d| d.retry_after_seconds) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The plain 404 of paths that do not exist.
pub fn page_not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

pub(crate) fn json_response(code: StatusCode, body: impl Into<Body>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private")),
    ];
    (code, headers, body.into()).into_response()
}

/// A plain text answer.
pub fn plain(code: StatusCode, text: impl Into<Body>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (code, headers, text.into()).into_response()
}
