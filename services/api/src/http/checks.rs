//! Checking a step: a question to readiness, the answer recorded.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{Path, State},
};
use lab_domain::{CheckOutcome, Digest, SessionId, State as SessionState, session};
use lab_proto::{convert, subjects::GRADE, v1};
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{User, input::Strict, sessions, view::CheckView};
use crate::{
    app::App,
    error::{ApiError, Code, Problem},
    store::{CheckRow, Store, StoredCheck},
    wire,
};

/// Beyond the grader's own limit: a check that another one runs before, and the way there and back.
const SLACK: Duration = Duration::from_secs(35);
/// As the agent caps it.
const MAX_OUTPUT: usize = 65_536;

/// How to check.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Check {
    /// The page asks by itself: no activity of the student.
    auto: bool,
}

/// Checks a step.
#[utoipa::path(post, operation_id = "check_step", path = "/api/sessions/{id}/steps/{n}/check", tag = "sessions",
    params(("id" = String, Path), ("n" = u32, Path, description = "Counted from 1")), request_body = Check,
    responses((status = 200, body = CheckView), (status = "4XX", body = Problem)))]
pub(super) async fn check(
    State(app): State<Arc<App>>,
    user: User,
    Path((id, n)): Path<(String, String)>,
    Strict(Check { auto }): Strict<Check>,
) -> Result<Json<CheckView>, ApiError> {
    let session = sessions::own(&app, &user.owner, &id).await?;
    let (step, grader) = grader(&app, &session.lab_digest, &n).await?;
    let state = session.state();
    if state != SessionState::Ready {
        return Err(sessions::refused(session::Refused::NotReady { state }));
    }
    let row = ask(&app, session.id, step, &grader, auto).await;
    record(&app, session.id, &row).await?;
    Ok(Json(CheckView::from(row)))
}

async fn grader(app: &App, digest: &Digest, n: &str) -> Result<(u32, StoredCheck), ApiError> {
    let unknown = || ApiError::new(Code::UnknownStep, "The lab has no step of this number with a check.");
    let n: u32 = n.parse().map_err(|_| unknown())?;
    let steps = app.store.content(digest).await?.unwrap_or_default();
    let check = steps.into_iter().find(|s| s.n == n).and_then(|s| s.check).ok_or_else(unknown)?;
    Ok((n, check))
}

async fn ask(app: &App, session: SessionId, step: u32, grader: &StoredCheck, auto: bool) -> CheckRow {
    let limit = Duration::from_millis(u64::from(grader.timeout_ms)) + SLACK;
    let request = v1::GradeRequest {
        session_id: session.to_string(),
        machine: grader.machine.clone(),
        check_id: Uuid::now_v7().to_string(),
        script: grader.script.clone().into_bytes(),
        timeout_ms: grader.timeout_ms,
        deadline: Some(convert::timestamp(app.now() + limit)),
    };
    let answer: Result<v1::GradeResponse, _> = app.bus.ask(GRADE, &request, limit).await;
    let row = |outcome, exit_code, output, truncated, cause: &str| CheckRow {
        step,
        outcome,
        auto,
        at: app.now(),
        exit_code,
        output,
        truncated,
        cause: (!cause.is_empty()).then(|| wire::fit(cause, 200)),
    };
    match answer {
        Ok(a) => match convert::check_outcome(a.outcome) {
            Ok(CheckOutcome::Error) => {
                row(CheckOutcome::Error, None, wire::fit(&a.output, MAX_OUTPUT), a.truncated, &a.cause)
            }
            Ok(outcome @ (CheckOutcome::Passed | CheckOutcome::Failed)) => {
                row(outcome, Some(a.exit_code), wire::fit(&a.output, MAX_OUTPUT), a.truncated, &a.cause)
            }
            Err(_) => row(CheckOutcome::Error, None, String::new(), false, "unknown_outcome"),
        },
        Err(error) => {
            tracing::warn!(session.id = %session, step, error = %lab_kit::telemetry::chain(&error), "no verdict of a check");
            let cause = if let lab_bus::Error::Refused { code, .. } = &error {
                code.as_str()
            } else if error.is_unheard() {
                "grader_unavailable"
            } else {
                "timed_out"
            };
            row(CheckOutcome::Error, None, String::new(), false, cause)
        }
    }
}

async fn record(app: &App, id: SessionId, row: &CheckRow) -> Result<(), ApiError> {
    let last = app.store.latest_checks(id).await?.into_iter().find(|c| c.step == row.step);
    if last.is_some_and(|last| row.is_old_news(&last)) {
        return Ok(());
    }
    let mut tx = app.store.begin().await?;
    let before = Store::lock_session(&mut tx, id).await?.ok_or_else(sessions::not_found)?;
    // It may have begun to end while the grader ran: then there is nothing to record any more.
    let made = before.checked(row.step, row.outcome, row.auto, row.at).map_err(sessions::refused)?;
    Store::insert_check(&mut tx, Uuid::now_v7(), id, row).await?;
    app.publisher.update(&mut tx, &before, &made, None, row.at).await?;
    Store::commit(tx).await?;
    Ok(())
}
