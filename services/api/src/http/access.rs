//! Who a request comes from, and whether it may be what it is.

use std::sync::Arc;

use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderValue, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::Response,
};
use lab_domain::OwnerName;
use lab_kit::auth::{Carrier, Claims, Refused, Role, origin_allowed, set_cookie};

use super::input::is_json;
use crate::{
    app::App,
    error::{ApiError, Code},
};

/// A signed-in user. A write that the cookie authenticates has passed the Origin rule.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) owner: OwnerName,
    pub(crate) roles: Vec<Role>,
}

/// A user who may look at everything.
#[derive(Debug, Clone)]
pub(crate) struct Staff;

/// A user who may also change what is others'.
#[derive(Debug, Clone)]
pub(crate) struct Admin(pub(crate) User);

pub(super) fn refused(app: &App, refused: Refused) -> ApiError {
    let detail = match refused {
        Refused::Missing => "Nobody is signed in.",
        Refused::Expired => "Your sign-in has expired.",
        Refused::Invalid => "Your sign-in is not valid here.",
    };
    ApiError::new(Code::Unauthorized, detail)
        .with("dev_login", app.access.dev_login)
        .with("oidc_login", app.access.oidc.is_some())
}

fn authenticate(app: &App, parts: &Parts) -> Result<(Claims, Carrier), ApiError> {
    app.access.verifier.authenticate(&parts.headers, app.now()).map_err(|e| refused(app, e))
}

impl FromRequestParts<Arc<App>> for User {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let (claims, carrier) = authenticate(app, parts)?;
        let owner = OwnerName::new(claims.sub).map_err(|_| refused(app, Refused::Invalid))?;
        let is_write = !matches!(parts.method, Method::GET | Method::HEAD);
        if is_write && carrier == Carrier::Cookie {
            if !origin_allowed(&parts.headers, &app.access.public_url) {
                return Err(ApiError::new(Code::Origin, "Only this site's own pages may do this."));
            }
            // A form of another site cannot send this type; DELETE has no form.
            if parts.method == Method::POST && !is_json(&parts.headers) {
                return Err(not_json());
            }
        }
        Ok(Self { owner, roles: claims.roles })
    }
}

pub(super) fn not_json() -> ApiError {
    ApiError::new(Code::InvalidRequest, "The request needs Content-Type: application/json.")
        .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
}

impl FromRequestParts<Arc<App>> for Staff {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let user = User::from_request_parts(parts, app).await?;
        if user.roles.iter().any(|role| matches!(role, Role::Teacher | Role::Admin)) {
            Ok(Self)
        } else {
            Err(ApiError::new(Code::Forbidden, "Only teachers and administrators may look at this."))
        }
    }
}

impl FromRequestParts<Arc<App>> for Admin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let user = User::from_request_parts(parts, app).await?;
        if user.roles.contains(&Role::Admin) {
            Ok(Self(user))
        } else {
            Err(ApiError::new(Code::Forbidden, "Only administrators may do this."))
        }
    }
}

/// Renews a cookie in the second half of its life.
pub(super) async fn renew(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let now = app.now();
    let known = app.access.verifier.authenticate(request.headers(), now);
    let mut response = next.run(request).await;
    if let Ok((claims, Carrier::Cookie)) = known
        && claims.is_in_second_half(now)
        && !response.headers().contains_key(header::SET_COOKIE)
        && let Ok(token) = app.access.signer.sign(&claims.sub, &claims.roles, now)
        && let Ok(value) =
            HeaderValue::from_str(&set_cookie(&app.access.cookie, &token, app.access.is_https()))
    {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
    response
}
