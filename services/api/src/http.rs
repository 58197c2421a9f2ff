//! HTTP for browsers and operators.
//!
//! ```text
//!  /api/login /api/logout /api/me      who am I          http::account
//!  /api/labs…                          the catalogue     http::labs
//!  /api/sessions…                      sessions          http::sessions, http::checks, http::stream
//!  /api/admin…                         staff             http::admin
//!  /openapi.json                       this, described
//!  everything else                     the page          http::page
//! ```
//!
//! Every refusal is a problem document (`error`). Every write that our cookie authenticates must come from our own
//! origin (`http::access`). Nothing here knows SQL or NATS.

mod access;
mod account;
mod admin;
mod checks;
mod input;
mod labs;
mod oidc;
mod page;
mod sessions;
mod stream;
mod view;

use std::{path::PathBuf, sync::Arc, time::Instant};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{HeaderValue, Method, Uri, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::access::{Admin, Staff, User};
use crate::{
    app::App,
    error::{ApiError, Code, Problem},
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "TT Lab",
        description = "Lab sessions on real machines. Errors are `application/problem+json` with a stable `code`.",
        license(name = "Apache-2.0")
    ),
    components(schemas(Problem, Code))
)]
struct Description;

fn described() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(account::login))
        .routes(routes!(account::logout))
        .routes(routes!(account::me))
        .routes(routes!(oidc::login))
        .routes(routes!(oidc::callback))
        .routes(routes!(labs::list))
        .routes(routes!(labs::one))
        .routes(routes!(sessions::create))
        .routes(routes!(sessions::current))
        .routes(routes!(sessions::one, sessions::end))
        .routes(routes!(sessions::extend))
        .routes(routes!(checks::check))
        .routes(routes!(stream::session))
        .routes(routes!(admin::sessions))
        .routes(routes!(admin::end))
        .routes(routes!(admin::stats))
        .routes(routes!(admin::capacity))
        .routes(routes!(admin::ghosts))
        .routes(routes!(admin::release))
        .routes(routes!(stream::events))
}

/// The description of the API, as `/openapi.json` serves it.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    described().split_for_parts().1
}

/// Everything that the public listener serves.
pub(crate) fn router(app: Arc<App>, web: Option<PathBuf>) -> Router {
    let (api, description) = described().split_for_parts();
    let description = Arc::new(description);
    let api = api
        .route(
            "/openapi.json",
            axum::routing::get(move || {
                let description = Arc::clone(&description);
                async move { Json(description.as_ref().clone()) }
            }),
        )
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), access::renew))
        .layer(middleware::from_fn(input::refuse_large))
        .layer(middleware::from_fn(no_store));
    let fallback = match web {
        Some(directory) => page::router(&directory),
        None => Router::new().fallback(unknown),
    };
    api.fallback(move |request: Request| {
        let fallback = fallback.clone();
        async move {
            if is_api(request.uri()) {
                return unknown().await.into_response();
            }
            tower::ServiceExt::oneshot(fallback, request).await.into_response()
        }
    })
    .layer(middleware::from_fn(secured))
    .layer(middleware::from_fn_with_state(Arc::clone(&app), counted))
    .with_state(app)
}

fn is_api(uri: &Uri) -> bool {
    uri.path() == "/api" || uri.path().starts_with("/api/")
}

async fn unknown() -> ApiError {
    ApiError::new(Code::NotFound, "This address is not known.")
}

async fn not_allowed(method: Method) -> ApiError {
    ApiError::new(Code::MethodNotAllowed, format!("{method} is not possible at this address."))
}

async fn counted(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let response = next.run(request).await;
    app.metrics.answered(response.status(), started.elapsed());
    response
}

async fn no_store(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Headers that every answer carries.
async fn secured(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("x-frame-options", "DENY"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
