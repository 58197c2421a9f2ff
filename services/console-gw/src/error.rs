//! Refusals as problem documents (RFC 9457), the same form as the api's.

use axum::{
    Json,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use lab_domain::State;
use serde::Serialize;

use crate::decide::Refused;

/// Why a console is not opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// No valid token.
    Unauthorized(&'static str),
    /// The page of another site.
    Origin,
    /// No such session for this caller.
    NotFound,
    /// The session has no machine of this name.
    UnknownMachine,
    /// Not ready, or over.
    NotReady(String),
    /// The query makes no sense.
    InvalidRequest(&'static str),
    /// The api did not answer.
    ApiUnreachable,
    /// The machine's console cannot be opened at this moment.
    ConsoleUnavailable,
    /// The console has as many viewers as it takes.
    TooManyViewers,
    /// This gateway is not set up yet, or it stops.
    Unready,
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotFound => Self::NotFound,
            Refused::UnknownMachine => Self::UnknownMachine,
            Refused::NotReady(State::Ready) => Self::NotReady("Its machine is not known yet.".to_owned()),
            Refused::NotReady(state) => Self::NotReady(format!("It is {state}.")),
            Refused::Over(Some(reason)) => Self::NotReady(format!("It is over ({reason}).")),
            Refused::Over(None) => Self::NotReady("It is over.".to_owned()),
        }
    }
}

#[derive(Debug, Serialize)]
struct Document {
    r#type: String,
    title: &'static str,
    status: u16,
    code: &'static str,
    detail: String,
    next: &'static str,
}

impl Problem {
    fn parts(&self) -> (StatusCode, &'static str, &'static str, String, &'static str) {
        match self {
            Self::Unauthorized(why) => (
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "You are not logged in",
                format!("The console needs a valid login: {why}."),
                "Log in again.",
            ),
            Self::Origin => (
                StatusCode::FORBIDDEN,
                "origin",
                "Not from our own page",
                "A console opens only from the page of this installation.".to_owned(),
                "Open the lab's own address.",
            ),
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "not_found",
                "No such session",
                "There is no session of yours with this id.".to_owned(),
                "Go back to the list of labs.",
            ),
            Self::UnknownMachine => (
                StatusCode::NOT_FOUND,
                "unknown_machine",
                "No such machine",
                "The session has no machine of this name.".to_owned(),
                "Take a name from the session's list of machines.",
            ),
            Self::NotReady(detail) => (
                StatusCode::CONFLICT,
                "not_ready",
                "The session is not ready",
                detail.clone(),
                "Wait until it is ready, or start the lab again if it is over.",
            ),
            Self::InvalidRequest(what) => (
                StatusCode::BAD_REQUEST,
                "invalid_request",
                "The request makes no sense",
                (*what).to_owned(),
                "Mend the request.",
            ),
            Self::ApiUnreachable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "api_unreachable",
                "The session cannot be looked up",
                "The service that knows the sessions does not answer.".to_owned(),
                "Try again in a moment; your machine goes on.",
            ),
            Self::ConsoleUnavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "console_unavailable",
                "The console cannot be opened now",
                "The machine's console does not open at this moment.".to_owned(),
                "Try again in a moment. If it stays so, end the session and start again.",
            ),
            Self::TooManyViewers => (
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_viewers",
                "Too many pages show this console",
                "As many pages as one console takes show it already.".to_owned(),
                "Close one of them.",
            ),
            Self::Unready => (
                StatusCode::SERVICE_UNAVAILABLE,
                "not_ready_yet",
                "The gateway is not ready",
                "This console gateway is starting or stopping.".to_owned(),
                "Try again in a moment.",
            ),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, code, title, detail, next) = self.parts();
        let document = Document {
            r#type: format!("urn:ttlab:problem:{code}"),
            title,
            status: status.as_u16(),
            code,
            detail,
            next,
        };
        let mut response = (status, Json(document)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
        response
    }
}
