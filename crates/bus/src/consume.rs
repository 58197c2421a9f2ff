//! The supervised consume loop.
//!
//! ```text
//!  bind (create or update the durable) ─▶ pull ─▶ decode ─▶ handler ─▶ Ack · Nak(delay) · Term + dead letter
//!    ▲                                     │ consumer deleted, stream ended, two errors in a row
//!    └──────────── back-off ◀──────────────┘
//!  shutdown: stop pulling, put back what was pulled and not begun, wait 5 s for the rest, NAK what is left, flush
//! ```
//!
//! A handler that takes longer than `ack_wait` is dropped and its message put back, for the broker would deliver it a
//! second time anyway; handlers are therefore safe to drop at any await point, which a crash asks of them already.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use async_nats::jetstream::{self, AckKind, consumer::pull};
use futures::{FutureExt as _, StreamExt as _};
use lab_domain::SessionId;
use lab_proto::subjects::Subjects;
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

use crate::{
    Backlog, Bus, Delivery, Disposition, Error, Handler, Timeout, backoff,
    decode::{self, Undecodable},
    metrics::Outcome,
    trace,
};

/// Deliveries after which a message that nobody understands becomes a dead letter.
pub const MAX_DELIVERIES: u64 = 10;
/// How long a message that nobody understands rests: a newer replica may know it.
const UNKNOWN_DELAY: Duration = Duration::from_secs(30);
/// What cannot finish in this time at shutdown is put back.
const DRAIN: Duration = Duration::from_secs(5);
/// The broker says this often that the consumer lives.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Errors in a row after which the consumer is bound again (nats.rs #1584: a consumer that vanished while we were
/// disconnected does not end the stream).
const MAX_ERRORS: u32 = 2;
/// Unacknowledged messages of one durable, over all replicas.
const MAX_ACK_PENDING: i64 = 10_000;

/// A durable consumer: service name and purpose, what it hears, how long it may hold a message.
#[derive(Debug, Clone)]
pub struct Durable {
    /// Listed in [`crate::identity::Identity::durables`], or the broker refuses it.
    pub name: &'static str,
    /// Subject filters; empty: everything in the stream that is an event.
    pub filters: Vec<String>,
    /// The longest that a handler may take.
    pub ack_wait: Duration,
    /// Handlers at once.
    pub max_in_flight: usize,
}

impl Durable {
    /// A durable with the usual limits: 30 s, 64 at once.
    #[must_use]
    pub fn new(name: &'static str, filters: Vec<String>) -> Self {
        Self { name, filters, ack_wait: Duration::from_secs(30), max_in_flight: 64 }
    }
}

impl Bus {
    /// Consumes events until `shutdown`. Spawn it on the service's tracker.
    pub fn consume<H: Handler<Delivery>>(
        &self,
        durable: Durable,
        handler: H,
        shutdown: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let mut durable = durable;
        if durable.filters.is_empty() {
            durable.filters = vec![self.subjects().all_events()];
        }
        let stream = self.subjects().events_stream();
        Loop { bus: self.clone(), stream, durable, handler: Arc::new(handler) }.run(shutdown)
    }

    /// Consumes fired timers until `shutdown`. Spawn it on the service's tracker.
    pub fn consume_timeouts<H: Handler<Timeout>>(
        &self,
        durable: Durable,
        handler: H,
        shutdown: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let durable = Durable { filters: vec![self.subjects().all_timeouts()], ..durable };
        let stream = self.subjects().timers_stream();
        Loop { bus: self.clone(), stream, durable, handler: Arc::new(handler) }.run(shutdown)
    }

    /// How far a durable of the events stream is.
    ///
    /// # Errors
    /// If the broker does not answer or the consumer does not exist yet.
    pub async fn backlog(&self, durable: &'static str) -> Result<Backlog, Error> {
        let failed = |source: crate::error::Source| Error::Consumer { consumer: durable, source };
        let stream = self.jetstream().get_stream_no_info(self.subjects().events_stream()).await;
        let stream = stream.map_err(|e| failed(Box::new(e)))?;
        let info = stream.consumer_info(durable).await.map_err(|e| failed(Box::new(e)))?;
        Ok(Backlog {
            pending: info.num_pending,
            unacked: u64::try_from(info.num_ack_pending).unwrap_or(u64::MAX),
            ack_floor: info.ack_floor.stream_sequence,
        })
    }

    /// Sequence of the last event that the stream holds.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub async fn last_sequence(&self) -> Result<u64, Error> {
        let name = self.subjects().events_stream();
        match self.jetstream().get_stream(&name).await {
            Ok(stream) => Ok(stream.cached_info().state.last_sequence),
            Err(source) => Err(Error::Stream { operation: "read", stream: name, source: Box::new(source) }),
        }
    }
}

/// What a stream's messages decode to.
pub(crate) trait Incoming: Sized + Send + 'static {
    fn decode(names: &Subjects, message: &jetstream::Message, info: &Facts) -> Result<Self, Undecodable>;
    fn session(&self) -> SessionId;
    fn name(&self) -> &'static str;
}

/// What the broker says about a delivery.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    sequence: u64,
    attempt: u64,
    stored_at: OffsetDateTime,
}

impl Incoming for Delivery {
    fn decode(names: &Subjects, message: &jetstream::Message, info: &Facts) -> Result<Self, Undecodable> {
        let decode::Decoded { session, id, kind, event } =
            decode::event(names, &message.subject, &message.payload)?;
        let Facts { sequence, attempt, stored_at } = *info;
        Ok(Self { event, kind, id, session, sequence, stored_at, attempt })
    }

    fn session(&self) -> SessionId {
        self.session
    }

    fn name(&self) -> &'static str {
        lab_proto::subjects::kind_name(&self.kind)
    }
}

impl Incoming for Timeout {
    fn decode(names: &Subjects, message: &jetstream::Message, info: &Facts) -> Result<Self, Undecodable> {
        let session = names.timed_session(&message.subject);
        let session = session.ok_or(Undecodable::Garbage("the subject names no session"))?;
        Ok(Self { session, attempt: info.attempt })
    }

    fn session(&self) -> SessionId {
        self.session
    }

    fn name(&self) -> &'static str {
        "timeout"
    }
}

struct Loop<H> {
    bus: Bus,
    stream: String,
    durable: Durable,
    handler: Arc<H>,
}

impl<H> Loop<H> {
    async fn run<M: Incoming>(self, shutdown: CancellationToken)
    where
        H: Handler<M>,
    {
        let work = Arc::new(self);
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let slots = Arc::new(Semaphore::new(work.durable.max_in_flight));
        let mut failures = 0;
        while !shutdown.is_cancelled() {
            match work.bind().await {
                Ok(messages) => {
                    failures = 0;
                    work.pump(messages, &slots, &tasks, &stop, &shutdown).await;
                }
                Err(error) => {
                    failures += 1;
                    // Once soon, then about once a minute.
                    if failures % 60 == 3 {
                        tracing::warn!(consumer = work.durable.name, error = %chain(&error), "cannot bind a consumer");
                    }
                }
            }
            if !shutdown.is_cancelled() {
                work.bus.metrics().rebound();
                let pause =
                    if failures == 0 { Duration::from_millis(50) } else { backoff(failures.min(3)) / 4 };
                shutdown.run_until_cancelled(tokio::time::sleep(pause)).await;
            }
        }
        tasks.close();
        if tokio::time::timeout(DRAIN, tasks.wait()).await.is_err() {
            stop.cancel();
            tasks.wait().await;
        }
        if let Err(error) = work.bus.flush().await {
            tracing::warn!(consumer = work.durable.name, error = %chain(&error), "acks may not have left");
        }
    }

    async fn bind(&self) -> Result<pull::Stream, Error> {
        let failed = |source: crate::error::Source| Error::Consumer { consumer: self.durable.name, source };
        let config = pull::Config {
            durable_name: Some(self.durable.name.to_owned()),
            // The plural form always: the single one would put the filter into the subject of the request.
            filter_subjects: self.durable.filters.clone(),
            ack_policy: jetstream::consumer::AckPolicy::Explicit,
            ack_wait: self.durable.ack_wait,
            max_ack_pending: MAX_ACK_PENDING,
            ..Default::default()
        };
        let create = self.bus.jetstream().create_consumer_on_stream(config, &self.stream);
        let consumer = create.await.map_err(|e| failed(Box::new(e)))?;
        let stream = consumer
            .stream()
            .max_messages_per_batch(self.durable.max_in_flight.max(1))
            .heartbeat(HEARTBEAT)
            .expires(HEARTBEAT * 4)
            .messages();
        stream.await.map_err(|e| failed(Box::new(e)))
    }

    /// Pulls until the stream ends, errs twice in a row, or the service stops.
    async fn pump<M: Incoming>(
        self: &Arc<Self>,
        mut messages: pull::Stream,
        slots: &Arc<Semaphore>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
        shutdown: &CancellationToken,
    ) where
        H: Handler<M>,
    {
        let mut errors = 0;
        loop {
            let Some(Ok(slot)) = shutdown.run_until_cancelled(Arc::clone(slots).acquire_owned()).await else {
                break;
            };
            match shutdown.run_until_cancelled(messages.next()).await {
                None => break,
                Some(Some(Ok(message))) => {
                    errors = 0;
                    let (work, stop) = (Arc::clone(self), stop.clone());
                    tasks.spawn(async move {
                        work.one(message, &stop).await;
                        drop(slot);
                    });
                }
                Some(Some(Err(error))) => {
                    errors += 1;
                    tracing::debug!(consumer = self.durable.name, error = %error, "pull");
                    let is_gone = error.kind() == pull::MessagesErrorKind::ConsumerDeleted;
                    if is_gone || errors >= MAX_ERRORS {
                        return;
                    }
                }
                Some(None) => return,
            }
        }
        // Pulled and not begun: another replica gets it now, not after ack_wait.
        while let Some(Some(Ok(message))) = messages.next().now_or_never() {
            self.settle(&message, AckKind::Nak(None)).await;
        }
    }

    async fn one<M: Incoming>(&self, message: jetstream::Message, stop: &CancellationToken)
    where
        H: Handler<M>,
    {
        let facts = match message.info() {
            Ok(info) => Facts {
                sequence: info.stream_sequence,
                attempt: u64::try_from(info.delivered).unwrap_or(1),
                stored_at: info.published,
            },
            Err(error) => {
                tracing::error!(consumer = self.durable.name, error = %error, "a delivery without its facts");
                return;
            }
        };
        let disposition = match M::decode(self.bus.subjects(), &message, &facts) {
            Ok(incoming) => self.handle(incoming, &message, &facts, stop).await,
            Err(Undecodable::Garbage(why)) => Disposition::Term(why.to_owned()),
            Err(Undecodable::UnknownKind) => not_understood(facts.attempt, "the kind of event is not known"),
        };
        self.dispose(&message, &facts, disposition).await;
    }

    async fn handle<M: Incoming>(
        &self,
        incoming: M,
        message: &jetstream::Message,
        facts: &Facts,
        stop: &CancellationToken,
    ) -> Disposition
    where
        H: Handler<M>,
    {
        let session = incoming.session();
        let context = trace::received(message.headers.as_ref(), Some(session))
            .unwrap_or_else(|| trace::Context::of_session(session));
        let span = tracing::info_span!(
            "handle",
            consumer = self.durable.name,
            event = incoming.name(),
            session.id = %session,
            trace.id = %context.trace_id(),
        );
        let work = trace::scope(context, AssertUnwindSafe(self.handler.handle(incoming)).catch_unwind());
        let work = tokio::time::timeout(self.durable.ack_wait, work).instrument(span.clone());
        match stop.run_until_cancelled(work).await {
            Some(Ok(Ok(disposition))) => disposition,
            Some(Ok(Err(_panic))) => {
                span.in_scope(|| tracing::error!("a handler panicked"));
                not_understood(facts.attempt, "the handler panicked")
            }
            Some(Err(_elapsed)) => {
                span.in_scope(|| tracing::warn!("a handler took longer than ack_wait and was dropped"));
                Disposition::Nak(backoff(facts.attempt))
            }
            None => Disposition::Nak(Duration::ZERO),
        }
    }

    async fn dispose(&self, message: &jetstream::Message, facts: &Facts, disposition: Disposition) {
        match disposition {
            Disposition::Ack => {
                self.bus.metrics().handled(Outcome::Ack);
                self.settle(message, AckKind::Ack).await;
            }
            Disposition::Nak(delay) => {
                self.bus.metrics().handled(Outcome::Nak);
                self.settle(message, AckKind::Nak(Some(delay).filter(|d| !d.is_zero()))).await;
            }
            Disposition::Term(reason) => {
                // The letter first: a crash between the two repeats the letter under its id, it never loses it.
                match self.bus.bury(self.durable.name, &self.stream, message, facts.sequence, &reason).await {
                    Ok(()) => {
                        self.bus.metrics().handled(Outcome::Dead);
                        tracing::error!(
                            consumer = self.durable.name,
                            subject = %message.subject,
                            sequence = facts.sequence,
                            reason,
                            "a message was given up and lies among the dead letters"
                        );
                        self.settle(message, AckKind::Term).await;
                    }
                    Err(error) => {
                        tracing::warn!(consumer = self.durable.name, error = %chain(&error), "no dead letter yet");
                        self.settle(message, AckKind::Nak(Some(UNKNOWN_DELAY))).await;
                    }
                }
            }
        }
    }

    async fn settle(&self, message: &jetstream::Message, kind: AckKind) {
        if let Err(error) = message.ack_with(kind).await {
            // It comes again after ack_wait.
            tracing::warn!(consumer = self.durable.name, error = %error, "an ack could not be sent");
        }
    }
}

/// For what this replica does not understand but another may.
fn not_understood(attempt: u64, why: &str) -> Disposition {
    if attempt >= MAX_DELIVERIES {
        Disposition::Term(why.to_owned())
    } else {
        Disposition::Nak(UNKNOWN_DELAY)
    }
}

/// An error with its causes, for one log line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

impl Bus {
    /// Publishes a dead letter: the original payload, with where it lay and why it was given up.
    async fn bury(
        &self,
        consumer: &str,
        stream: &str,
        message: &jetstream::Message,
        sequence: u64,
        reason: &str,
    ) -> Result<(), Error> {
        let headers = crate::Headers::from([
            ("Lab-Subject".to_owned(), message.subject.to_string()),
            ("Lab-Sequence".to_owned(), sequence.to_string()),
            ("Lab-Stream".to_owned(), stream.to_owned()),
            ("Lab-Reason".to_owned(), reason.replace(['\r', '\n'], " ").chars().take(500).collect()),
        ]);
        let id = format!("dead-{consumer}-{stream}-{sequence}");
        let subject = self.subjects().dead_letter(consumer);
        let payload = message.payload.clone();
        let payload = payload.slice(..payload.len().min(crate::setup::MAX_EVENT_BYTES / 2));
        self.publish_stored(&subject, &id, &headers, payload).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests;
