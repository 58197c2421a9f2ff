//! When a session ends, its consoles close: at once by the event, at the latest by the next look.

use std::time::Duration;

use lab_bus::{Bus, event::Kind};
use lab_domain::State;
use lab_kit::Shutdown;
use lab_proto::convert;

use crate::{
    hub::{Hub, Machines},
    sessions,
};

/// A plain subscription loses what a cut connection loses; this is how long an ended console can stay open then.
const LOOK: Duration = Duration::from_secs(15);
/// Pause before the subscription is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Starts both triggers on the root's tracker.
pub fn watch<M: Machines>(bus: &Bus, hub: &Hub<M>, shutdown: &Shutdown) {
    shutdown.spawn(hear(bus.clone(), hub.clone(), shutdown.clone()));
    let (bus, hub) = (bus.clone(), hub.clone());
    shutdown.every(LOOK, std::sync::Arc::default(), move || look(bus.clone(), hub.clone()));
}

/// Every replica must hear this, so no durable: a plain subscription.
async fn hear<M: Machines>(bus: Bus, hub: Hub<M>, shutdown: Shutdown) {
    let token = shutdown.token.clone();
    while !token.is_cancelled() {
        match bus.subscribe_events(bus.subjects().every("session-ending")).await {
            Ok(mut events) => {
                while let Some(Some((session, kind, _))) = token.run_until_cancelled(events.next()).await {
                    if let Kind::SessionEnding(ending) = kind {
                        hub.end(session, convert::end_reason(ending.reason).ok()).await;
                    }
                }
            }
            Err(error) => {
                tracing::warn!(
                    error = lab_kit::telemetry::chain(&error),
                    "cannot hear of endings; the look goes on"
                );
            }
        }
        let _paused = token.run_until_cancelled(tokio::time::sleep(AGAIN)).await;
    }
}

async fn look<M: Machines>(bus: Bus, hub: Hub<M>) {
    for id in hub.sessions().await {
        match sessions::get(&bus, id).await {
            Ok(Some(session)) => match session.state {
                State::Ending | State::Ended => hub.end(id, session.reason).await,
                State::Queued
                | State::Requested
                | State::Provisioning
                | State::Booting
                | State::Preparing
                | State::Ready => {}
            },
            Ok(None) => hub.end(id, None).await,
            // No answer closes nothing.
            Err(error) => {
                tracing::warn!(session.id = %id, error = lab_kit::telemetry::chain(&error), "the api does not answer");
                return;
            }
        }
    }
}
