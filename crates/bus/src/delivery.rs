//! What a handler gets, and what it answers.

use std::time::Duration;

use lab_domain::{EventId, SessionId};
use lab_proto::v1;
use time::OffsetDateTime;

use crate::event::Kind;

/// An event on its way to a handler.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// The event, whole.
    pub event: v1::Event,
    /// Its content.
    pub kind: Kind,
    /// Its id.
    pub id: EventId,
    /// Its session.
    pub session: SessionId,
    /// Its place in the stream.
    pub sequence: u64,
    /// When the stream took it.
    pub stored_at: OffsetDateTime,
    /// Which delivery this is, from 1.
    pub attempt: u64,
}

/// A timer that fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeout {
    /// Whose.
    pub session: SessionId,
    /// Which delivery this is, from 1.
    pub attempt: u64,
}

impl Delivery {
    /// Put back for a passing fault, longer each time.
    #[must_use]
    pub fn retry(&self) -> Disposition {
        Disposition::Nak(backoff(self.attempt))
    }
}

impl Timeout {
    /// Put back for a passing fault, longer each time.
    #[must_use]
    pub fn retry(&self) -> Disposition {
        Disposition::Nak(backoff(self.attempt))
    }
}

/// 1 s, doubled up to a minute, a fifth more or less so that many do not come back at once.
#[must_use]
pub fn backoff(attempt: u64) -> Duration {
    let exponent = u32::try_from(attempt.saturating_sub(1).min(6)).unwrap_or(6);
    let base = Duration::from_secs(1).saturating_mul(2_u32.pow(exponent)).min(Duration::from_secs(60));
    base.mul_f64(rand::random_range(0.8..1.2))
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// Its effect is there.
    Ack,
    /// Again after this time.
    Nak(Duration),
    /// Never again; a dead letter carries the reason.
    Term(String),
}

/// Handles messages, several at once. Idempotent, and safe to drop at any await point.
pub trait Handler<M>: Send + Sync + 'static {
    /// Handles one message.
    fn handle(&self, message: M) -> impl Future<Output = Disposition> + Send;
}

impl<M, F, Fut> Handler<M> for F
where
    F: Fn(M) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Disposition> + Send,
{
    fn handle(&self, message: M) -> impl Future<Output = Disposition> + Send {
        self(message)
    }
}

/// How far a durable is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// Messages not yet delivered.
    pub pending: u64,
    /// Messages delivered and not yet acked.
    pub unacked: u64,
    /// Everything of ours up to this sequence is acked.
    pub ack_floor: u64,
}

impl Backlog {
    /// Whether everything that was in the stream when it ended at `sequence` has been acked.
    #[must_use]
    pub fn is_past(&self, sequence: u64) -> bool {
        (self.pending == 0 && self.unacked == 0) || self.ack_floor >= sequence
    }
}
