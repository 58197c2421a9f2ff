//! Problem documents: what every refusal looks like.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::store;

/// A stable code; the `type` is `urn:ttlab:problem:<code>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "`Code::text` says each in plain words")]
pub enum Code {
    UnknownLab,
    LabUnsupported,
    SessionExists,
    SessionEnding,
    Capacity,
    ClusterUnknown,
    BusUnreachable,
    NoSession,
    NotFound,
    NotReady,
    ExtendLimit,
    UnknownStep,
    InvalidRequest,
    PayloadTooLarge,
    MethodNotAllowed,
    Unauthorized,
    Forbidden,
    Origin,
    NotServing,
    Unavailable,
    Internal,
}

impl Code {
    /// Every code, for the description and for tests.
    pub const ALL: &'static [Self] = &[
        Self::UnknownLab,
        Self::LabUnsupported,
        Self::SessionExists,
        Self::SessionEnding,
        Self::Capacity,
        Self::ClusterUnknown,
        Self::BusUnreachable,
        Self::NoSession,
        Self::NotFound,
        Self::NotReady,
        Self::ExtendLimit,
        Self::UnknownStep,
        Self::InvalidRequest,
        Self::PayloadTooLarge,
        Self::MethodNotAllowed,
        Self::Unauthorized,
        Self::Forbidden,
        Self::Origin,
        Self::NotServing,
        Self::Unavailable,
        Self::Internal,
    ];

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownLab => "unknown_lab",
            Self::LabUnsupported => "lab_unsupported",
            Self::SessionExists => "session_exists",
            Self::SessionEnding => "session_ending",
            Self::Capacity => "capacity",
            Self::ClusterUnknown => "cluster_unknown",
            Self::BusUnreachable => "bus_unreachable",
            Self::NoSession => "no_session",
            Self::NotFound => "not_found",
            Self::NotReady => "not_ready",
            Self::ExtendLimit => "extend_limit",
            Self::UnknownStep => "unknown_step",
            Self::InvalidRequest => "invalid_request",
            Self::PayloadTooLarge => "payload_too_large",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Origin => "origin",
            Self::NotServing => "not_serving",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    /// The usual status.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::UnknownLab | Self::NoSession | Self::NotFound | Self::UnknownStep => StatusCode::NOT_FOUND,
            Self::LabUnsupported
            | Self::SessionExists
            | Self::SessionEnding
            | Self::Capacity
            | Self::NotReady
            | Self::ExtendLimit => StatusCode::CONFLICT,
            Self::ClusterUnknown | Self::BusUnreachable | Self::NotServing | Self::Unavailable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::InvalidRequest => StatusCode::BAD_REQUEST,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden | Self::Origin => StatusCode::FORBIDDEN,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What it is, and what to do next.
    const fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::UnknownLab => ("There is no such lab", "Choose a lab from the list."),
            Self::LabUnsupported => ("This lab cannot run here yet", "Choose another lab."),
            Self::SessionExists => {
                ("You have a session already", "Go on in it, or end it before you start another.")
            }
            Self::SessionEnding => {
                ("Your last sessions are still being cleared away", "Wait half a minute, then start again.")
            }
            Self::Capacity => {
                ("All machines are taken", "Try again at the time shown, or when somebody has finished.")
            }
            Self::ClusterUnknown => (
                "The machines cannot be counted just now",
                "Try again in a minute; if it lasts, tell your teacher.",
            ),
            Self::BusUnreachable => {
                ("Nothing can be started just now", "Try again in a minute; if it lasts, tell your teacher.")
            }
            Self::NoSession => ("You have no session", "Choose a lab and start it."),
            Self::NotFound => ("There is nothing here", "Go back to the list of labs."),
            Self::NotReady => {
                ("The session is not ready", "Wait until it is ready, or start a new one if it has ended.")
            }
            Self::ExtendLimit => {
                ("No more time can be added", "Finish within the time left, or start the lab again.")
            }
            Self::UnknownStep => ("This step cannot be checked", "Choose a step that has a check."),
            Self::InvalidRequest => ("The request makes no sense", "Reload the page and try again."),
            Self::PayloadTooLarge => ("The request is too large", "Send less."),
            Self::MethodNotAllowed => ("This cannot be done here", "See /openapi.json for what can."),
            Self::Unauthorized => ("You are not signed in", "Sign in."),
            Self::Forbidden => ("You may not do this", "Sign in as somebody who may, or ask your teacher."),
            Self::Origin => ("The request came from another site", "Open this site itself and try again."),
            Self::NotServing => ("The service is starting", "Try again in a few seconds."),
            Self::Unavailable => ("The service cannot answer just now", "Try again in a few seconds."),
            Self::Internal => {
                ("Something went wrong on our side", "Try again; if it happens twice, tell your teacher.")
            }
        }
    }
}

/// An `application/problem+json` document (RFC 9457).
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Problem {
    /// `urn:ttlab:problem:<code>`.
    #[serde(rename = "type")]
    kind: String,
    /// Plain words, the same for every occurrence.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// Stable and machine-readable.
    code: Code,
    /// Plain words about this occurrence.
    detail: String,
    /// What to do next.
    next: &'static str,
    /// More members, by code: `session`, `used`, `cap`, `expected_at`, `dev_login`, `state`, `until`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    extra: Map<String, Value>,
}

/// A refusal on its way to the client.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    code: Code,
    status: StatusCode,
    detail: String,
    extra: Map<String, Value>,
}

impl ApiError {
    /// A refusal with words about this occurrence.
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, status: code.status(), detail: detail.into(), extra: Map::new() }
    }

    /// One more member. What cannot be written as JSON is left out.
    pub(crate) fn with(mut self, key: &str, value: impl Serialize) -> Self {
        if let Ok(value) = serde_json::to_value(value) {
            self.extra.insert(key.to_owned(), value);
        }
        self
    }

    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub(crate) const fn code(&self) -> Code {
        self.code
    }
}

impl From<store::Error> for ApiError {
    /// The text of what went wrong stays in the log.
    fn from(error: store::Error) -> Self {
        let passes = match &error {
            store::Error::Sql { source, .. } => is_passing(source),
            store::Error::Conflict | store::Error::LiveExists => true,
            store::Error::Migrate(_)
            | store::Error::Unreadable { .. }
            | store::Error::OtherEnvironment { .. } => false,
        };
        let text = lab_kit::telemetry::chain(&error);
        if passes {
            tracing::warn!(error = %text, "a request could not be served");
            Self::new(Code::Unavailable, "The database did not answer in time.")
        } else {
            tracing::error!(error = %text, "a request failed");
            Self::new(Code::Internal, "The fault was logged.")
        }
    }
}

/// Whether the database may answer the same statement a moment later.
fn is_passing(error: &sqlx::Error) -> bool {
    if let sqlx::Error::Database(e) = error {
        // Connection, roll-back, resources, state, operator, system: PostgreSQL's classes of what passes.
        let code = e.code().unwrap_or_default();
        return ["08", "40", "53", "55", "57", "58"].iter().any(|class| code.starts_with(class));
    }
    matches!(
        error,
        sqlx::Error::Io(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::Tls(_)
            | sqlx::Error::BeginFailed
    )
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (title, next) = self.code.text();
        let problem = Problem {
            kind: format!("urn:ttlab:problem:{}", self.code.as_str()),
            title,
            status: self.status.as_u16(),
            code: self.code,
            detail: self.detail,
            next,
            extra: self.extra,
        };
        let mut response = (self.status, Json(problem)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_says_what_it_is_and_what_to_do() {
        for code in Code::ALL {
            let (title, next) = code.text();
            assert!(title.len() > 10 && next.len() >= 8, "{code:?}");
            assert!(code.status().is_client_error() || code.status().is_server_error());
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
