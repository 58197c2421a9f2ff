//! The projection: facts from the bus into sessions, one transaction each.

use std::sync::Arc;

use lab_bus::{Delivery, Disposition, Durable, identity::durable};
use lab_domain::session::Fact;
use lab_proto::subjects::publishes;
use tokio_util::sync::CancellationToken;

use crate::{
    app::App,
    metrics::FactOutcome,
    store::{Error, Store},
    wire,
};

/// Facts projected at once by one replica; each holds a connection.
const AT_ONCE: usize = 8;

/// Consumes facts until `shutdown`.
pub(crate) async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let facts = [publishes::PROVISIONER, publishes::READINESS, publishes::REAPER, publishes::CONSOLE_GW];
    let filters = facts.iter().copied().flatten().map(|kind| app.publisher.subjects.every(kind)).collect();
    let durable = Durable { max_in_flight: AT_ONCE, ..Durable::new(durable::API_FACTS, filters) };
    let bus = app.bus.clone();
    let handler = move |delivery: Delivery| {
        let app = Arc::clone(&app);
        async move { handle(&app, &delivery).await }
    };
    bus.consume(durable, handler, shutdown).await;
}

async fn handle(app: &App, delivery: &Delivery) -> Disposition {
    if !app.gate.allowed() {
        // Another installation's bus, perhaps: nothing of it is ours to take in.
        return delivery.retry();
    }
    let fact = match wire::fact(&delivery.kind, &delivery.event) {
        Ok(Some(fact)) => fact,
        Ok(None) => return Disposition::Ack,
        Err(malformed) => {
            app.metrics.fact(FactOutcome::Malformed);
            return Disposition::Term(malformed.to_string());
        }
    };
    if matches!(fact, Fact::ConsoleAttached | Fact::ConsoleDetached | Fact::GhostReaped) {
        // For subscribers; they change no session in any state.
        return Disposition::Ack;
    }
    match project(app, delivery, &fact).await {
        Ok(outcome) => {
            app.metrics.fact(outcome);
            Disposition::Ack
        }
        Err(error) => {
            tracing::warn!(session.id = %delivery.session, error = %lab_kit::telemetry::chain(&error),
                "a fact could not be projected; it comes again");
            delivery.retry()
        }
    }
}

async fn project(app: &App, delivery: &Delivery, fact: &Fact) -> Result<FactOutcome, Error> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let Some(before) = Store::lock_session(&mut tx, delivery.session).await? else {
        tracing::warn!(session.id = %delivery.session, "a fact about a session that is not in the database");
        return Ok(FactOutcome::Unknown);
    };
    match before.project(fact, now) {
        Ok(made) => {
            app.publisher.update(&mut tx, &before, &made, Some(delivery.id), now).await?;
            Store::commit(tx).await?;
            app.note_change(&before, &made);
            let changed = made.next.version != before.version;
            Ok(if changed { FactOutcome::Changed } else { FactOutcome::Unchanged })
        }
        Err(rejected) => {
            tracing::info!(session.id = %before.id, reason = %rejected, "a fact is not about this session");
            Ok(FactOutcome::Rejected)
        }
    }
}
