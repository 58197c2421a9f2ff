//! Objects that no session owns, by the api's own fresh list.
//!
//! After every list: a machine of a session that had ended before the list began makes the api ask for one more
//! reaping, once per object. Independent of that the reaper hunts ghosts and asks about each (see `answers`).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use lab_domain::{
    ObjectUid, SessionId, State,
    ghost::{self, Assessment},
};
use tokio_util::sync::CancellationToken;

use crate::{
    app::App,
    cluster::{Listed, Object},
    store::{Error, Store},
};

/// A fresh list held against the database.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) listed: Arc<Listed>,
    pub(crate) assessment: Assessment,
    pub(crate) released: HashSet<ObjectUid>,
}

/// Assesses the last list; `None` if there is no fresh one.
pub(crate) async fn look(app: &App) -> Result<Option<Look>, Error> {
    let Ok(listed) = app.cluster.fresh() else { return Ok(None) };
    let states = states(app, &listed).await?;
    let states: HashMap<SessionId, State> = states
        .into_iter()
        .map(|(id, (state, ended_at))| {
            // The list may be older than the end: what it shows of such a session was being deleted then.
            let was_ending = ended_at.is_some_and(|at| at >= listed.begun_at);
            (id, if was_ending { State::Ending } else { state })
        })
        .collect();
    let released = app.store.released().await?;
    let assessment = ghost::assess(&listed.seen(), &states, &released);
    app.metrics.ghosts(assessment.unreleased.len(), assessment.hold);
    Ok(Some(Look { listed, assessment, released }))
}

async fn states(
    app: &App,
    listed: &Listed,
) -> Result<HashMap<SessionId, (State, Option<time::OffsetDateTime>)>, Error> {
    let ids: HashSet<SessionId> = listed.objects.iter().map(|o| o.place.0).collect();
    app.store.states(&ids.into_iter().collect::<Vec<_>>()).await
}

/// Follows the lists until `shutdown`.
pub(crate) async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let mut lists = app.cluster.lists();
    let mut was_held = false;
    while let Some(Ok(())) = shutdown.run_until_cancelled(lists.changed()).await {
        let Some(listed) = lists.borrow_and_update().clone() else { continue };
        if !app.gate.allowed() {
            continue;
        }
        if let Err(error) = leftovers(&app, &listed).await {
            tracing::warn!(error = %lab_kit::telemetry::chain(&error), "leftovers could not be looked for");
        }
        match look(&app).await {
            Ok(Some(look)) if look.assessment.hold != was_held => {
                was_held = look.assessment.hold;
                if was_held {
                    tracing::error!(
                        ghosts = look.assessment.unreleased.len(),
                        machines = look.assessment.machines,
                        "too many machines look like ghosts: none is deleted until an operator confirms"
                    );
                } else {
                    tracing::info!("ghosts are no longer held");
                }
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(error = %lab_kit::telemetry::chain(&error), "ghosts could not be assessed");
            }
        }
    }
}

async fn leftovers(app: &App, listed: &Listed) -> Result<(), Error> {
    let states = states(app, listed).await?;
    let is_left = |object: &&Object| {
        object.is_ours
            && matches!(states.get(&object.place.0), Some((State::Ended, Some(at))) if *at < listed.begun_at)
    };
    for object in listed.objects.iter().filter(is_left) {
        again(app, object).await?;
    }
    Ok(())
}

async fn again(app: &App, object: &Object) -> Result<(), Error> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let Some(before) = Store::lock_session(&mut tx, object.place.0).await? else { return Ok(()) };
    if !Store::note_again(&mut tx, &object.uid, before.id, now).await? {
        return Ok(());
    }
    let made = before.again();
    app.publisher.update(&mut tx, &before, &made, None, now).await?;
    Store::commit(tx).await?;
    tracing::warn!(session.id = %before.id, kind = object.kind.as_str(), object.name = %object.name,
        "an object of an ended session was found; it is reaped again");
    Ok(())
}
