//! From a decided change to what is committed with it: the rows of the outbox.
//!
//! ```text
//!  load (locked) ─▶ domain decides ─▶ session row + outbox rows ─▶ commit ─▶ NOTIFY ─▶ relay, SSE
//! ```

use lab_bus::{Envelope, event, timer, trace};
use lab_domain::{
    EventId, InstallationId, UserId,
    session::{Projection, Session},
};
use lab_proto::{Message as _, convert, subjects::Subjects};
use time::OffsetDateTime;

use crate::{
    store::{Error, Message, Store, Tx},
    wire,
};

/// Who we are in what we publish.
#[derive(Debug, Clone)]
pub(crate) struct Publisher {
    pub(crate) subjects: Subjects,
    pub(crate) installation: InstallationId,
}

impl Publisher {
    /// The messages that a change brings: its decisions, then the timer if the earliest deadline moved.
    fn messages(
        &self,
        before: Option<&Session>,
        made: &Projection,
        causation: Option<EventId>,
        now: OffsetDateTime,
    ) -> Vec<Message> {
        let next = &made.next;
        let envelope = Envelope {
            session: next.id,
            version: next.version,
            lab: next.lab.to_string(),
            user: UserId::of(self.installation, &next.owner).to_string(),
            runtime: convert::runtime_number(next.runtime),
            causation,
        };
        let decided = made.decisions.iter().map(|decision| {
            let event =
                event::new(self.subjects.environment(), &envelope, wire::decision(next, decision), now);
            let subject = event.event.as_ref().map(|kind| self.subjects.event(next.id, kind));
            Message {
                subject: subject.unwrap_or_default(),
                headers: trace::headers(next.id),
                payload: event.encode_to_vec(),
                id: event.event_id,
            }
        });
        let mut messages: Vec<Message> = decided.collect();
        let deadline = wire::timer(next);
        if let Some(at) = deadline
            && before.and_then(wire::timer) != deadline
        {
            messages.push(Message {
                // New each time: a repeated id does not move a timer.
                id: EventId::generate().to_string(),
                subject: self.subjects.timer(next.id),
                headers: timer::headers(&self.subjects, next.id, at),
                payload: vec![],
            });
        }
        messages
    }

    /// Writes a new session.
    pub(crate) async fn insert(
        &self,
        tx: &mut Tx,
        made: &Projection,
        now: OffsetDateTime,
    ) -> Result<(), Error> {
        Store::insert_session(tx, &made.next).await?;
        let messages = self.messages(None, made, None, now);
        Store::enqueue(tx, made.next.id, &messages, now).await
    }

    /// Writes a change. One that changes nothing writes nothing.
    pub(crate) async fn update(
        &self,
        tx: &mut Tx,
        before: &Session,
        made: &Projection,
        causation: Option<EventId>,
        now: OffsetDateTime,
    ) -> Result<(), Error> {
        if made.next.version == before.version {
            return Ok(());
        }
        Store::update_session(tx, before, &made.next).await?;
        let messages = self.messages(Some(before), made, causation, now);
        Store::enqueue(tx, before.id, &messages, now).await
    }
}
