//! Strict input: JSON of the expected shape and size, or a problem document.

use std::sync::Arc;

use axum::{
    body::to_bytes,
    extract::{FromRequest, Request},
    http::{HeaderMap, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use serde::de::DeserializeOwned;

use super::access::not_json;
use crate::{
    app::App,
    error::{ApiError, Code},
};

/// No request that makes sense is larger.
const MAX_BODY: usize = 64 * 1024;

/// A JSON body without unknown members.
#[derive(Debug)]
pub(super) struct Strict<T>(pub(super) T);

fn too_large() -> ApiError {
    ApiError::new(Code::PayloadTooLarge, format!("A request may have at most {MAX_BODY} bytes."))
}

/// Whether the body claims to be JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Strict<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _app: &Arc<App>) -> Result<Self, ApiError> {
        if !is_json(request.headers()) {
            return Err(not_json());
        }
        // A length that lies is caught here, a true one before (`refuse_large`).
        let bytes = to_bytes(request.into_body(), MAX_BODY).await.map_err(|_| too_large())?;
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Self(value)),
            // The text names position and expectation; a piece of the input in it is bounded by the body.
            Err(error) => {
                Err(ApiError::new(Code::InvalidRequest, format!("The JSON is not as expected: {error}.")))
            }
        }
    }
}

/// Refuses by the announced length, before anything is read.
pub(super) async fn refuse_large(request: Request, next: Next) -> Response {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok());
    let length: usize = length.and_then(|v| v.parse().ok()).unwrap_or_default();
    if length > MAX_BODY { too_large().into_response() } else { next.run(request).await }
}
