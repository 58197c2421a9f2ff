//! The page: static files, with every unknown address answered by the page itself, which knows its own routes.

use std::path::Path;

use axum::{
    Router,
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use tower_http::services::{ServeDir, ServeFile};

use crate::error::{ApiError, Code};

/// Only our own scripts; styles may be set by the terminal, which computes them.
const CSP: &str = "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
    font-src 'self' data:; connect-src 'self' ws: wss:; object-src 'none'; base-uri 'none'; form-action 'self'; \
    frame-ancestors 'none'";

pub(super) fn router(directory: &Path) -> Router {
    // Files whose names carry a hash of their content: a missing one is an old page's and must not get the new page.
    let assets = ServeDir::new(directory.join("assets"));
    let page = ServeDir::new(directory).fallback(ServeFile::new(directory.join("index.html")));
    Router::new().nest_service("/assets", assets).fallback_service(page).layer(middleware::from_fn(headers))
}

async fn headers(request: Request, next: Next) -> Response {
    let is_asset = request.uri().path().starts_with("/assets/");
    let response = next.run(request).await;
    if response.status() == StatusCode::NOT_FOUND {
        return ApiError::new(Code::NotFound, "This file is not here; reload the page.").into_response();
    }
    let mut response = response;
    let cache = if is_asset { "public, max-age=31536000, immutable" } else { "no-cache" };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CSP));
    response
}
