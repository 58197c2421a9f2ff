//! Signing in, out, and who one is.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Json,
    extract::{ConnectInfo, State},
    http::{HeaderMap, StatusCode, header},
    response::{AppendHeaders, IntoResponse},
};
use lab_domain::OwnerName;
use lab_kit::auth::{Role, clear_cookie, origin_allowed, set_cookie};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{User, input::Strict};
use crate::{
    app::App,
    error::{ApiError, Code, Problem},
};

/// Whom to sign in as.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Login {
    /// Any name of 1 to 200 characters.
    user: String,
    /// What they may do.
    #[schema(value_type = RoleName)]
    role: Role,
}

/// A role.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "it only describes the words; `Role` reads and writes them")]
pub(super) enum RoleName {
    Student,
    Teacher,
    Admin,
}

/// Who is signed in.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SignedIn {
    user: String,
    #[schema(value_type = Vec<RoleName>)]
    roles: Vec<Role>,
}

/// Who is signed in, and where.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Me {
    user: String,
    #[schema(value_type = Vec<RoleName>)]
    roles: Vec<Role>,
    environment: String,
    dev_login: bool,
}

/// Signs in without a password: only where the operator switched it on, and only on loopback.
#[utoipa::path(post, operation_id = "login", path = "/api/login", tag = "account", request_body = Login,
    responses((status = 200, body = SignedIn), (status = "4XX", body = Problem)))]
pub(super) async fn login(
    State(app): State<Arc<App>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Strict(login): Strict<Login>,
) -> Result<impl IntoResponse, ApiError> {
    if !app.access.dev_login {
        return Err(ApiError::new(Code::Forbidden, "Signing in by name is switched off here."));
    }
    if !peer.ip().to_canonical().is_loopback() {
        return Err(ApiError::new(Code::Forbidden, "Signing in by name is possible from this machine only."));
    }
    // A browser always says where a POST comes from: another site's script must not sign anybody in here.
    let is_browser = headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site");
    if is_browser && !origin_allowed(&headers, &app.access.public_url) {
        return Err(ApiError::new(Code::Origin, "Only this site's own pages may do this."));
    }
    let owner = OwnerName::new(login.user.trim())
        .map_err(|_| ApiError::new(Code::InvalidRequest, "A user name has 1 to 200 printable characters."))?;
    let roles = vec![login.role];
    let token = app.access.signer.sign(owner.as_str(), &roles, app.now()).map_err(|error| {
        tracing::error!(error = %lab_kit::telemetry::chain(&error), "a token could not be signed");
        ApiError::new(Code::Internal, "The fault was logged.")
    })?;
    let cookie = set_cookie(&app.access.cookie, &token, app.access.is_https());
    Ok((AppendHeaders([(header::SET_COOKIE, cookie)]), Json(SignedIn { user: owner.to_string(), roles })))
}

/// Signs out.
#[utoipa::path(post, operation_id = "logout", path = "/api/logout", tag = "account",
    responses((status = 204), (status = "4XX", body = Problem)))]
pub(super) async fn logout(State(app): State<Arc<App>>, _user: User) -> impl IntoResponse {
    let cookie = clear_cookie(&app.access.cookie, app.access.is_https());
    (StatusCode::NO_CONTENT, AppendHeaders([(header::SET_COOKIE, cookie)]))
}

/// Who is signed in.
#[utoipa::path(get, operation_id = "who_am_i", path = "/api/me", tag = "account",
    responses((status = 200, body = Me), (status = 401, body = Problem)))]
pub(super) async fn me(State(app): State<Arc<App>>, user: User) -> Json<Me> {
    Json(Me {
        user: user.owner.to_string(),
        roles: user.roles,
        environment: app.publisher.subjects.environment().to_string(),
        dev_login: app.access.dev_login,
    })
}
