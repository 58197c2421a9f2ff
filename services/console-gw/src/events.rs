//! Facts of viewers: attached, active, detached.
//!
//! A viewer never waits for the broker: facts go through a bounded queue to one task that publishes each under its id
//! until it is stored. What does not fit is counted and dropped; the next minute's `ConsoleActive` says the same again.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use lab_bus::{Bus, Envelope, event};
use lab_domain::MachineName;
use lab_kit::Clock;
use lab_proto::v1;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    decide::{Mode, Session},
    metrics::Metrics,
};

/// Facts that may wait for the broker. A class of 200 makes about 7 a second.
const QUEUE: usize = 4096;
/// Pause before a publish that failed is repeated.
const AGAIN: Duration = Duration::from_secs(2);
/// How long the facts of the last moment may take at shutdown.
const DRAIN: Duration = Duration::from_secs(3);

/// Takes facts from viewers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Facts<C> {
    queue: mpsc::Sender<v1::Event>,
    bus: Bus,
    clock: C,
    metrics: Metrics,
}

impl<C: Clock + Clone> Facts<C> {
    /// The queue, and the future that empties it until `shutdown`.
    pub fn new(
        bus: Bus,
        clock: C,
        metrics: Metrics,
        shutdown: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, facts) = mpsc::channel(QUEUE);
        let served = publish_all(bus.clone(), facts, shutdown);
        (Self { queue, bus, clock, metrics }, served)
    }

    /// A viewer came: says so, and returns what says the rest.
    pub fn attached(&self, session: &Session, machine: &MachineName, mode: Mode) -> Visit<C> {
        let visit = Visit {
            facts: self.clone(),
            envelope: Envelope {
                session: session.id,
                version: session.version,
                lab: session.lab.clone(),
                user: session.user.to_string(),
                runtime: session.runtime,
                causation: None,
            },
            machine: machine.to_string(),
            connection: Uuid::new_v4().to_string(),
            minute: AtomicU64::new(0),
        };
        visit.say(event::Kind::ConsoleAttached(v1::ConsoleAttached {
            machine: visit.machine.clone(),
            connection_id: visit.connection.clone(),
            staff: mode == Mode::Watch,
        }));
        visit
    }
}

/// One viewer's stay. Dropping it says that the viewer left.
#[derive(Debug)]
pub struct Visit<C: Clock + Clone> {
    facts: Facts<C>,
    envelope: Envelope,
    machine: String,
    connection: String,
    /// Minute of the last ConsoleActive.
    minute: AtomicU64,
}

impl<C: Clock + Clone> Visit<C> {
    /// Bytes came from the browser: says so once a minute.
    pub fn active(&self) {
        let seconds = self.facts.clock.now().unix_timestamp();
        let minute = u64::try_from(seconds / 60).unwrap_or(0);
        if self.minute.swap(minute, Ordering::Relaxed) != minute {
            self.say(event::Kind::ConsoleActive(v1::ConsoleActive {
                machine: self.machine.clone(),
                connection_id: self.connection.clone(),
                minute,
            }));
        }
    }

    fn say(&self, kind: event::Kind) {
        let at = self.facts.clock.now();
        let event = event::new(self.facts.bus.environment(), &self.envelope, kind, at);
        if self.facts.queue.try_send(event).is_err() {
            self.facts.metrics.dropped_facts.inc();
        }
    }
}

impl<C: Clock + Clone> Drop for Visit<C> {
    fn drop(&mut self) {
        self.say(event::Kind::ConsoleDetached(v1::ConsoleDetached {
            machine: self.machine.clone(),
            connection_id: self.connection.clone(),
        }));
    }
}

async fn publish_all(bus: Bus, mut facts: mpsc::Receiver<v1::Event>, shutdown: CancellationToken) {
    while let Some(Some(event)) = shutdown.run_until_cancelled(facts.recv()).await {
        let stored = async {
            while let Err(error) = bus.publish(&event).await {
                tracing::warn!(
                    event.id = event.event_id,
                    error = lab_kit::telemetry::chain(&error),
                    "a fact is not stored yet"
                );
                tokio::time::sleep(AGAIN).await;
            }
        };
        // A fact that was being published when shutdown came is given the drain's time below with the rest.
        if shutdown.run_until_cancelled(stored).await.is_none() {
            publish_rest(&bus, Some(event), &mut facts).await;
            return;
        }
    }
    publish_rest(&bus, None, &mut facts).await;
}

/// Viewers leave at shutdown: their `ConsoleDetached` come last.
async fn publish_rest(bus: &Bus, first: Option<v1::Event>, facts: &mut mpsc::Receiver<v1::Event>) {
    let rest = async {
        let mut next = first;
        loop {
            let event = match next.take() {
                Some(event) => event,
                None => match facts.recv().await {
                    Some(event) => event,
                    None => return,
                },
            };
            if let Err(error) = bus.publish(&event).await {
                tracing::warn!(
                    event.id = event.event_id,
                    error = lab_kit::telemetry::chain(&error),
                    "a fact was lost at shutdown"
                );
            }
        }
    };
    // The queue stays open as long as a handle lives, so time is what ends this.
    let _waited = tokio::time::timeout(DRAIN, rest).await;
}
