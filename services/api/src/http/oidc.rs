//! The two addresses of a sign-in through the operator's identity provider.

use std::sync::Arc;

use axum::{
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{AppendHeaders, IntoResponse},
};
use lab_kit::auth::{cookie_value, set_cookie};
use serde::Deserialize;

use crate::{
    app::App,
    error::{ApiError, Code, Problem},
    oidc::{Attempt, Error, Oidc},
};

/// How long somebody may take at the provider.
const ATTEMPT_SECONDS: u32 = 600;

fn provider(app: &App) -> Result<&Oidc, ApiError> {
    let off = || ApiError::new(Code::NotFound, "Signing in through an identity provider is not set up here.");
    app.access.oidc.as_ref().ok_or_else(off)
}

fn failed(error: &Error) -> ApiError {
    tracing::warn!(error = %lab_kit::telemetry::chain(error), "a sign-in failed");
    match error {
        Error::Provider { .. } => ApiError::new(Code::Unavailable, "The identity provider does not answer."),
        Error::Refused(_) => {
            ApiError::new(Code::Unauthorized, "The sign-in did not succeed; begin it again.")
        }
    }
}

fn attempt_cookie(app: &App) -> String {
    format!("{}_attempt", app.access.cookie)
}

/// `Lax`: the browser comes back from another site. The path keeps it out of every other request.
fn set_attempt(app: &App, value: &str, seconds: u32) -> String {
    let secure = if app.access.is_https() { "; Secure" } else { "" };
    let name = attempt_cookie(app);
    format!("{name}={value}; Path=/api/auth; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}")
}

/// Sends the browser to the identity provider.
#[utoipa::path(get, operation_id = "oidc_login", path = "/api/auth/login", tag = "account",
    responses((status = 303), (status = "4XX", body = Problem), (status = 503, body = Problem)))]
pub(super) async fn login(State(app): State<Arc<App>>) -> Result<impl IntoResponse, ApiError> {
    let (url, attempt) = provider(&app)?.begin().await.map_err(|e| failed(&e))?;
    let cookie = set_attempt(&app, &attempt.to_cookie(), ATTEMPT_SECONDS);
    Ok((
        StatusCode::SEE_OTHER,
        AppendHeaders([(header::SET_COOKIE, cookie), (header::LOCATION, url.to_string())]),
    ))
}

/// What the provider sends along.
#[derive(Debug, Deserialize)]
pub(super) struct Returned {
    #[serde(default)]
    code: String,
    #[serde(default)]
    state: String,
}

/// Where the identity provider sends the browser back to.
#[utoipa::path(get, operation_id = "oidc_callback", path = "/api/auth/callback", tag = "account",
    params(("code" = Option<String>, Query), ("state" = Option<String>, Query)),
    responses((status = 303), (status = "4XX", body = Problem), (status = 503, body = Problem)))]
pub(super) async fn callback(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Query(returned): Query<Returned>,
) -> Result<impl IntoResponse, ApiError> {
    let provider = provider(&app)?;
    let attempt = cookie_value(&headers, &attempt_cookie(&app)).and_then(Attempt::from_cookie);
    let attempt = attempt.filter(|a| !returned.state.is_empty() && a.state == returned.state);
    let attempt = attempt.ok_or_else(|| failed(&Error::Refused("it belongs to another attempt")))?;
    let known = provider.finish(&returned.code, &attempt).await.map_err(|e| failed(&e))?;
    let token = app.access.signer.sign(known.owner.as_str(), &known.roles, app.now()).map_err(|error| {
        tracing::error!(error = %lab_kit::telemetry::chain(&error), "a token could not be signed");
        ApiError::new(Code::Internal, "The fault was logged.")
    })?;
    let cookie = set_cookie(&app.access.cookie, &token, app.access.is_https());
    Ok((
        StatusCode::SEE_OTHER,
        AppendHeaders([
            (header::SET_COOKIE, cookie),
            (header::SET_COOKIE, set_attempt(&app, "", 0)),
            (header::LOCATION, "/".to_owned()),
        ]),
    ))
}
