//! The outbox relay: publishes what transactions left, at once after the commit, and sweeps for leftovers.
//!
//! A session's rows leave in their order, each after the stream's ack of the one before. A relay claims a session by an
//! advisory lock that ends with its transaction, so a killed replica frees its claim. A publish that timed out may have
//! been stored; its row stays and is published again under the same id.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lab_bus::Bus;
use lab_domain::SessionId;
use lab_kit::installation::Gate;
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    live::{Live, Notice},
    metrics::Metrics,
    store::{Error, Store},
};

/// Lines published at once by one replica; each holds a connection.
const LINES: usize = 8;
/// How often leftovers are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// Pause before a line that another replica holds is looked at again.
const HELD: Duration = Duration::from_millis(20);

/// The relay of one replica.
#[derive(Debug, Clone)]
pub(crate) struct Relay {
    store: Store,
    bus: Bus,
    gate: Gate,
    metrics: Metrics,
    /// Sessions in work here; true if something came meanwhile.
    busy: Arc<Mutex<HashMap<SessionId, bool>>>,
    slots: Arc<Semaphore>,
}

/// What one pass over a line found.
enum Pass {
    Empty,
    Published,
    Held,
    Stuck,
}

impl Relay {
    pub(crate) fn new(store: Store, bus: Bus, gate: Gate, metrics: Metrics) -> Self {
        Self { store, bus, gate, metrics, busy: Arc::default(), slots: Arc::new(Semaphore::new(LINES)) }
    }

    /// Relays until `shutdown`, then finishes what is in flight.
    pub(crate) async fn run(self, live: Live, shutdown: CancellationToken) {
        let mut notices = live.notices();
        let tasks = TaskTracker::new();
        let mut sweep = tokio::time::interval(SWEEP);
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let found = tokio::select! {
                () = shutdown.cancelled() => break,
                _ = sweep.tick() => self.leftovers().await,
                notice = notices.next() => match notice {
                    Some(Notice::Outbox(session)) => vec![session],
                    Some(Notice::Anything) => self.leftovers().await,
                    Some(Notice::Session(_)) => continue,
                    None => break,
                },
            };
            // The stream may have become another installation's: what is ours waits.
            for session in found.into_iter().filter(|_| self.gate.allowed()) {
                if self.begin(session) {
                    let (relay, shutdown) = (self.clone(), shutdown.clone());
                    tasks.spawn(async move { relay.line(session, &shutdown).await });
                }
            }
        }
        tasks.close();
        tasks.wait().await;
    }

    async fn leftovers(&self) -> Vec<SessionId> {
        // Without a broker each line would hold a connection for the length of its time-outs.
        if !self.bus.is_connected() {
            return vec![];
        }
        match self.store.waiting_sessions(256).await {
            Ok(sessions) => sessions,
            Err(error) => {
                tracing::warn!(error = %lab_kit::telemetry::chain(&error), "cannot look into the outbox");
                vec![]
            }
        }
    }

    /// False if this replica is at work on the session already; it will look once more.
    fn begin(&self, session: SessionId) -> bool {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        match busy.get_mut(&session) {
            Some(more) => {
                *more = true;
                false
            }
            None => {
                busy.insert(session, false);
                true
            }
        }
    }

    /// True if something came while we worked.
    fn finish(&self, session: SessionId) -> bool {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        match busy.get_mut(&session) {
            Some(more) if *more => {
                *more = false;
                true
            }
            Some(_) | None => {
                busy.remove(&session);
                false
            }
        }
    }

    async fn line(&self, session: SessionId, shutdown: &CancellationToken) {
        loop {
            // The semaphore is never closed.
            let Ok(_slot) = self.slots.acquire().await else { return };
            let pass = match self.pass(session).await {
                Ok(pass) => pass,
                Err(error) => {
                    tracing::warn!(session.id = %session, error = %lab_kit::telemetry::chain(&error), "outbox pass failed");
                    Pass::Stuck
                }
            };
            match pass {
                Pass::Published => {}
                Pass::Empty => {
                    if !self.finish(session) {
                        return;
                    }
                }
                Pass::Held if !shutdown.is_cancelled() => {
                    drop(_slot);
                    tokio::time::sleep(HELD).await;
                }
                // The sweep comes back to it.
                Pass::Held | Pass::Stuck => {
                    self.finish(session);
                    self.finish(session);
                    return;
                }
            }
        }
    }

    async fn pass(&self, session: SessionId) -> Result<Pass, Error> {
        let mut tx = self.store.begin().await?;
        if !Store::claim_line(&mut tx, session).await? {
            return Ok(Pass::Held);
        }
        let line = Store::line(&mut tx, session).await?;
        if line.is_empty() {
            return Ok(Pass::Empty);
        }
        let mut published = Vec::with_capacity(line.len());
        let waiting = line.len();
        for row in line {
            let m = row.message;
            match self.bus.publish_stored(&m.subject, &m.id, &m.headers, m.payload.into()).await {
                Ok(_) => published.push(row.place),
                Err(error) => {
                    tracing::warn!(session.id = %session, error = %lab_kit::telemetry::chain(&error), "publish failed; it stays in the outbox");
                    break;
                }
            }
        }
        Store::published(&mut tx, &published).await?;
        Store::commit(tx).await?;
        self.metrics.relayed(published.len());
        Ok(if published.len() == waiting { Pass::Published } else { Pass::Stuck })
    }
}
