//! From a message on the wire to what a handler gets. Everything that arrives is checked against its subject: an event
//! that was put on a foreign subject (a consumer can be told to deliver anywhere) is not what that subject promises.

use async_nats::Subject;
use lab_domain::{EventId, SessionId};
use lab_proto::{
    Message as _,
    subjects::{self, Subjects},
    v1,
};

use crate::event::Kind;

/// Why a message is not for a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Undecodable {
    /// It never will be: bytes that are no event, or an event on another's subject.
    Garbage(&'static str),
    /// A newer replica may know this kind.
    UnknownKind,
}

/// An event with the parts that every handler needs, checked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) session: SessionId,
    pub(crate) id: EventId,
    pub(crate) kind: Kind,
    pub(crate) event: v1::Event,
}

/// Decodes an event and holds it against its subject.
pub(crate) fn event(names: &Subjects, subject: &Subject, payload: &[u8]) -> Result<Decoded, Undecodable> {
    let event = v1::Event::decode(payload).map_err(|_| Undecodable::Garbage("the payload is no event"))?;
    let session =
        event.session_id.parse().map_err(|_| Undecodable::Garbage("the session id is malformed"))?;
    let id = event.event_id.parse().map_err(|_| Undecodable::Garbage("the event id is malformed"))?;
    let Some(kind) = event.event.clone() else {
        let last = subject.rsplit('.').next().unwrap_or_default();
        return Err(if subjects::KINDS.contains(&last) {
            Undecodable::Garbage("the event has no content")
        } else {
            Undecodable::UnknownKind
        });
    };
    if event.environment != names.environment().as_str() || names.event(session, &kind) != subject.as_str() {
        return Err(Undecodable::Garbage("the event does not belong on its subject"));
    }
    Ok(Decoded { session, id, kind, event })
}

#[cfg(test)]
mod tests {
    use lab_domain::Environment;

    use super::*;
    use crate::event::{self as make, Envelope};

    fn names() -> Subjects {
        Subjects::new(Environment::new("dev").unwrap())
    }

    fn ended(session: SessionId) -> v1::Event {
        let at = time::OffsetDateTime::UNIX_EPOCH;
        let kind = Kind::SessionEnded(v1::SessionEnded::default());
        make::new(names().environment(), &Envelope::bare(session), kind, at)
    }

    #[test]
    fn an_event_is_taken_only_on_its_own_subject() {
        let session = SessionId::generate();
        let event = ended(session);
        let bytes = event.encode_to_vec();
        let own = names().event(session, event.event.as_ref().unwrap());
        assert_eq!(super::event(&names(), &own.as_str().into(), &bytes).unwrap().session, session);
        for foreign in [
            names().event(SessionId::generate(), event.event.as_ref().unwrap()),
            own.replace("session-ended", "session-ready"),
            own.replace(".dev.", ".prod."),
        ] {
            let got = super::event(&names(), &foreign.as_str().into(), &bytes);
            assert!(matches!(got, Err(Undecodable::Garbage(_))), "{foreign}");
        }
    }

    #[test]
    fn an_unknown_kind_is_told_from_garbage() {
        let session = SessionId::generate();
        let mut event = ended(session);
        event.event = None;
        let bytes = event.encode_to_vec();
        let subject = |kind: &str| Subject::from(format!("lab.v1.dev.session.{session}.{kind}"));
        assert_eq!(super::event(&names(), &subject("session-frozen"), &bytes), Err(Undecodable::UnknownKind));
        for (subject, bytes) in [
            (subject("session-ended"), bytes.as_slice()),
            (subject("session-ended"), b"\xff\xff".as_slice()),
            (subject("session-ended"), b"".as_slice()),
        ] {
            assert!(matches!(super::event(&names(), &subject, bytes), Err(Undecodable::Garbage(_))));
        }
    }
}
