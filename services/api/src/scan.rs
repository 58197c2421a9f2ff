//! The scan of deadlines: the guarantee behind the timers.
//!
//! Every 10 s the sessions with a deadline that has passed are decided. Facts that are still on their way may say that a
//! start succeeded or that somebody typed; so start and idle deadlines are decided only when the fact consumer has acked
//! everything that the stream held when the scan began. An expiry needs no fact and no broker.

use std::{sync::Arc, time::Duration};

use lab_bus::identity::durable;
use lab_domain::{Deadline, SessionId, deadline};
use tokio_util::sync::CancellationToken;

use crate::{
    app::App,
    store::{Error, Store},
};

/// How often deadlines are looked at.
pub(crate) const EVERY: Duration = Duration::from_secs(10);
/// How long a scan waits for the consumer; the next scan goes on.
const CATCH_UP: Duration = Duration::from_secs(5);
/// Scans between two looks for content that nobody needs.
const FORGET_EVERY: u32 = 60;

/// Scans until `shutdown`.
pub(crate) async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let mut scans = 0_u32;
    while !shutdown.is_cancelled() {
        if app.gate.allowed() {
            if let Some(Err(error)) = shutdown.run_until_cancelled(scan(&app)).await {
                tracing::warn!(error = %lab_kit::telemetry::chain(&error), "deadlines could not be scanned");
            }
            scans = scans.wrapping_add(1);
            if scans.is_multiple_of(FORGET_EVERY)
                && let Err(error) = app.store.forget_content().await
            {
                tracing::warn!(error = %lab_kit::telemetry::chain(&error), "old lab content stays for now");
            }
        }
        shutdown.run_until_cancelled(tokio::time::sleep(EVERY)).await;
    }
}

/// Decides what is due.
pub(crate) async fn scan(app: &App) -> Result<(), Error> {
    let due = app.store.due_sessions(app.now()).await?;
    if due.is_empty() {
        return Ok(());
    }
    each(app, &due, &[Deadline::Expiry]).await;
    if has_caught_up(app).await {
        each(app, &due, &[Deadline::Start, Deadline::Idle]).await;
    }
    Ok(())
}

/// One that cannot be read or decided must not keep those behind it.
async fn each(app: &App, due: &[SessionId], kinds: &[Deadline]) {
    for id in due {
        if let Err(error) = decide(app, *id, kinds).await {
            tracing::error!(session.id = %id, error = %lab_kit::telemetry::chain(&error), "a deadline could not be decided");
        }
    }
}

async fn decide(app: &App, id: SessionId, kinds: &[Deadline]) -> Result<(), Error> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let Some(before) = Store::lock_session(&mut tx, id).await? else { return Ok(()) };
    let Some(which) = deadline::due(&before, now).into_iter().find(|d| kinds.contains(d)) else {
        return Ok(());
    };
    // It is in the row and due: what else could refuse it?
    if let Ok(made) = before.reach(which, now) {
        app.publisher.update(&mut tx, &before, &made, None, now).await?;
        Store::commit(tx).await?;
        app.note_change(&before, &made);
    }
    Ok(())
}

/// Whether every fact that was in the stream at the time of the call has been projected.
async fn has_caught_up(app: &App) -> bool {
    if !app.bus.is_connected() {
        return false;
    }
    let wait = async {
        let Ok(target) = app.bus.last_sequence().await else { return false };
        loop {
            match app.bus.backlog(durable::API_FACTS).await {
                Ok(backlog) if backlog.is_past(target) => return true,
                Ok(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(_) => return false,
            }
        }
    };
    tokio::time::timeout(CATCH_UP, wait).await.unwrap_or(false)
}
