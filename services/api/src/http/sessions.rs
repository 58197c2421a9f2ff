//! Sessions of the signed-in student.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use lab_domain::{
    EndReason, OwnerName, SessionId,
    session::{Refused, Session},
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{User, input::Strict, labs, view::SessionView};
use crate::{
    admit,
    app::App,
    error::{ApiError, Code, Problem},
    store::{self, Store},
};

/// How long an ended session is still shown as the current one.
const SHOW_ENDED: Duration = Duration::from_secs(600);

/// What to start.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    /// A lab's id.
    lab: String,
}

/// The session with its latest checks.
pub(super) async fn view(app: &App, session: &Session) -> Result<SessionView, ApiError> {
    let checks = app.store.latest_checks(session.id).await?;
    Ok(SessionView::new(session, checks, app.now()))
}

pub(super) fn not_found() -> ApiError {
    ApiError::new(Code::NotFound, "You have no session of this id.")
}

/// A stranger's session is as unknown as one that never was.
pub(super) async fn own(app: &App, owner: &OwnerName, id: &str) -> Result<Session, ApiError> {
    let id: SessionId = id.parse().map_err(|_| not_found())?;
    app.store.session(id).await?.filter(|s| &s.owner == owner).ok_or_else(not_found)
}

pub(super) fn refused(refused: Refused) -> ApiError {
    match refused {
        Refused::NotReady { state } => {
            ApiError::new(Code::NotReady, format!("The session is {state}.")).with("state", state.as_str())
        }
        Refused::ExtendLimit { until } => {
            let until = until.format(&time::format_description::well_known::Rfc3339).unwrap_or_default();
            ApiError::new(Code::ExtendLimit, "All extensions are used up.").with("until", until)
        }
    }
}

/// Starts a lab.
#[utoipa::path(post, operation_id = "start_session", path = "/api/sessions", tag = "sessions", request_body = Start,
    responses((status = 201, body = SessionView), (status = "4XX", body = Problem), (status = 503, body = Problem)))]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    user: User,
    Strict(start): Strict<Start>,
) -> Result<(StatusCode, Json<SessionView>), ApiError> {
    let lab = labs::find(&app, &start.lab)?;
    match admit::admit(&app, &user.owner, lab).await {
        Ok(session) => Ok((StatusCode::CREATED, Json(view(&app, &session).await?))),
        Err(admit::Refused::Exists(session)) => {
            let detail = format!("Your session of {} is {}.", session.lab, session.state());
            Err(ApiError::new(Code::SessionExists, detail).with("session", view(&app, &session).await?))
        }
        Err(admit::Refused::Problem(problem)) => Err(problem),
    }
}

/// The live session, else the one that ends or has just ended.
#[utoipa::path(get, operation_id = "current_session", path = "/api/sessions/current", tag = "sessions",
    responses((status = 200, body = SessionView), (status = "4XX", body = Problem)))]
pub(super) async fn current(State(app): State<Arc<App>>, user: User) -> Result<Json<SessionView>, ApiError> {
    let session = app.store.current(&user.owner, app.now() - SHOW_ENDED).await?;
    match session {
        Some(session) => Ok(Json(view(&app, &session).await?)),
        None => Err(ApiError::new(Code::NoSession, "You have not started a lab.")),
    }
}

/// One session.
#[utoipa::path(get, operation_id = "get_session", path = "/api/sessions/{id}", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = SessionView), (status = "4XX", body = Problem)))]
pub(super) async fn one(
    State(app): State<Arc<App>>,
    user: User,
    Path(id): Path<String>,
) -> Result<Json<SessionView>, ApiError> {
    let session = own(&app, &user.owner, &id).await?;
    Ok(Json(view(&app, &session).await?))
}

/// Ends a session, from any state.
#[utoipa::path(delete, operation_id = "end_session", path = "/api/sessions/{id}", tag = "sessions", params(("id" = String, Path)),
    responses((status = 202, body = SessionView), (status = "4XX", body = Problem)))]
pub(super) async fn end(
    State(app): State<Arc<App>>,
    user: User,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<SessionView>), ApiError> {
    let session = own(&app, &user.owner, &id).await?;
    let ended = end_for(&app, session.id, EndReason::User).await?.ok_or_else(not_found)?;
    Ok((StatusCode::ACCEPTED, Json(view(&app, &ended).await?)))
}

/// Ends a session for whoever may; repeating it changes nothing.
pub(super) async fn end_for(
    app: &App,
    id: SessionId,
    reason: EndReason,
) -> Result<Option<Session>, store::Error> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let Some(before) = Store::lock_session(&mut tx, id).await? else { return Ok(None) };
    let made = before.end(reason, now);
    app.publisher.update(&mut tx, &before, &made, None, now).await?;
    Store::commit(tx).await?;
    app.note_change(&before, &made);
    Ok(Some(made.next))
}

/// Adds time.
#[utoipa::path(post, operation_id = "extend_session", path = "/api/sessions/{id}/extend", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = SessionView), (status = "4XX", body = Problem)))]
pub(super) async fn extend(
    State(app): State<Arc<App>>,
    user: User,
    Path(id): Path<String>,
) -> Result<Json<SessionView>, ApiError> {
    let id = own(&app, &user.owner, &id).await?.id;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let before = Store::lock_session(&mut tx, id).await?.ok_or_else(not_found)?;
    let made = before.extend(now).map_err(refused)?;
    app.publisher.update(&mut tx, &before, &made, None, now).await?;
    Store::commit(tx).await?;
    Ok(Json(view(&app, &made.next).await?))
}
