//! Making events.

use lab_domain::{Environment, EventId, InstallationId, SessionId};
use lab_proto::{convert, fact, v1};
use time::OffsetDateTime;

pub use lab_proto::v1::event::Event as Kind;

/// What every event of one session says besides its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The session.
    pub session: SessionId,
    /// Decisions: its version after the change. Facts: the version last seen, 0 if none.
    pub version: u64,
    /// The lab's id; empty where the reporter does not know it.
    pub lab: String,
    /// The opaque user; empty where the reporter does not know them.
    pub user: String,
    /// The number of [`v1::Runtime`].
    pub runtime: i32,
    /// What made this happen, if it was an event.
    pub causation: Option<EventId>,
}

impl Envelope {
    /// Of a session that the reporter knows nothing more about.
    #[must_use]
    pub fn bare(session: SessionId) -> Self {
        Self { session, version: 0, lab: String::new(), user: String::new(), runtime: 0, causation: None }
    }

    /// Of a session as the api tells it; `None` if its id is malformed.
    #[must_use]
    pub fn of(session: &v1::Session) -> Option<Self> {
        Some(Self {
            session: session.session_id.parse().ok()?,
            version: session.version,
            lab: session.lab.clone(),
            user: session.user.clone(),
            runtime: session.runtime,
            causation: None,
        })
    }

    /// Of the session of another event, which caused this one; `None` if its ids are malformed.
    #[must_use]
    pub fn caused_by(event: &v1::Event) -> Option<Self> {
        Some(Self {
            session: event.session_id.parse().ok()?,
            version: event.session_version,
            lab: event.lab.clone(),
            user: event.user.clone(),
            runtime: event.runtime,
            causation: Some(event.event_id.parse().ok()?),
        })
    }

    /// Says what made this happen.
    #[must_use]
    pub fn because_of(mut self, causation: EventId) -> Self {
        self.causation = Some(causation);
        self
    }
}

/// An event. A fact gets the id that every repeat of it has, a decision a fresh one.
#[must_use]
pub fn new(environment: &Environment, envelope: &Envelope, kind: Kind, at: OffsetDateTime) -> v1::Event {
    let id = fact::id(envelope.session, &kind).unwrap_or_else(EventId::generate);
    v1::Event {
        event_id: id.to_string(),
        occurred_at: Some(convert::timestamp(at)),
        environment: environment.to_string(),
        session_id: envelope.session.to_string(),
        session_version: envelope.version,
        lab: envelope.lab.clone(),
        user: envelope.user.clone(),
        runtime: envelope.runtime,
        causation_id: envelope.causation.map(|id| id.to_string()).unwrap_or_default(),
        event: Some(kind),
    }
}

/// The key under which streams carry their installation id.
pub(crate) const INSTALLATION_KEY: &str = "ttlab.io/installation";

/// Text form of an installation id in stream metadata.
pub(crate) fn installation_text(id: InstallationId) -> String {
    id.to_string()
}
