//! The bus: the only place where NATS is named.
//!
//! ```text
//!  outbox relay ──publish_stored──▶ LAB_<ENV> ──durable, pull──▶ consume(handler) ─▶ Ack | Nak(delay) | Term
//!  reporters ─────publish(fact)──▶     │                             └─ what cannot be handled ─▶ dead-letter.<durable>
//!                                      └─ mirror, without guest text ─▶ LAB_<ENV>_PUB ─▶ outside subscribers
//!  outbox relay ──timer.<session>─▶ LAB_<ENV>_TIMERS ─ at its time ─▶ timeout.<session> ─▶ consume_timeouts(handler)
//!  anyone ──ask──▶ one replica that answers
//! ```
//!
//! Promises: a publish returns only after the stream's ack and repeats the same message id after a time-out; a consume
//! loop survives a lost broker and a deleted consumer; every message is acked only after its effect. Not promised:
//! order (facts are projected by rank) and exactly-once (handlers are idempotent).

mod ask;
mod connect;
mod consume;
mod decode;
mod delivery;
mod error;
pub mod event;
pub mod identity;
mod metrics;
mod publish;
pub mod setup;
pub mod timer;
pub mod trace;
mod watch;

pub use ask::{ERROR_HEADER, Refusal};
pub use connect::{Bus, Config};
pub use consume::{Durable, MAX_DELIVERIES};
pub use delivery::{Backlog, Delivery, Disposition, Handler, Timeout, backoff};
pub use error::{Class, Error};
pub use event::Envelope;
pub use identity::Identity;
pub use metrics::Metrics;
pub use publish::{Headers, Stored};
pub use watch::{Events, Tail};
