//! The bus: what the api knows, and the facts that readiness tells it.

use std::time::Duration;

use lab_bus::{Bus, Envelope, event};
use lab_domain::{EventId, MachineName, ObjectUid, SessionId, StartLimits, State};
use lab_kit::Clock;
use lab_proto::{
    convert, fact,
    subjects::{GET_SESSION, LIST_SESSIONS},
    v1,
};

use crate::{
    decide::{Kind, Machine, Projected},
    error::Error,
};

/// A question to the api.
const ASK: Duration = Duration::from_secs(5);
/// No list is longer: a page that never ends is not followed.
const MAX_PAGES: usize = 10_000;

/// A session as the api knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// Its state.
    pub state: State,
    /// Limits of its start.
    pub limits: StartLimits,
    /// Its machines.
    pub machines: Vec<Machine>,
    /// What its events say besides their content.
    pub envelope: Envelope,
}

impl Session {
    /// The machine of this name.
    #[must_use]
    pub fn machine(&self, name: &MachineName) -> Option<&Machine> {
        self.machines.iter().find(|m| m.name == *name)
    }
}

/// Asks for one session. `None`: the api knows none of this id.
///
/// # Errors
/// If the api does not answer.
pub async fn session(bus: &Bus, id: SessionId) -> Result<Option<Session>, Error> {
    let request = v1::GetSessionRequest { session_id: id.to_string() };
    let answer: v1::GetSessionResponse = bus.ask(GET_SESSION, &request, ASK).await.map_err(Error::Ask)?;
    Ok(answer.session.and_then(|s| read(&s)))
}

/// Asks for all live and ending sessions.
///
/// # Errors
/// If the api does not answer each page.
pub async fn sessions(bus: &Bus) -> Result<Vec<Session>, Error> {
    let mut all = Vec::new();
    let mut after = String::new();
    for _ in 0..MAX_PAGES {
        let request = v1::ListSessionsRequest { after, limit: 0 };
        let page: v1::ListSessionsResponse =
            bus.ask(LIST_SESSIONS, &request, ASK).await.map_err(Error::Ask)?;
        all.extend(page.sessions.iter().filter_map(read));
        if page.next.is_empty() {
            break;
        }
        after = page.next;
    }
    Ok(all)
}

/// A session of the wire; one that this build cannot read is left to a newer replica.
fn read(session: &v1::Session) -> Option<Session> {
    let read = Session {
        id: session.session_id.parse().ok()?,
        state: convert::state(session.state).ok()?,
        limits: convert::limits(session.limits.as_ref()?),
        machines: session.machines.iter().map(machine).collect::<Option<_>>()?,
        envelope: Envelope::of(session)?,
    };
    Some(read)
}

fn machine(machine: &v1::Machine) -> Option<Machine> {
    let at = |kind: &str| {
        let fact = machine.facts.iter().find(|fact| fact.kind == kind)?;
        convert::time(fact.at.as_ref()?)
    };
    let has = |kind: &str| machine.facts.iter().any(|fact| fact.kind == kind);
    let pinned = match machine.pinned_uid.as_str() {
        "" => None,
        uid => Some(ObjectUid::new(uid).ok()?),
    };
    Some(Machine {
        name: MachineName::new(machine.name.as_str()).ok()?,
        pinned,
        disk: convert::disk_kind(machine.disk).ok(),
        facts: Projected {
            provisioned: at("machine-provisioned"),
            scheduled: at("machine-scheduled"),
            running: at("machine-running"),
            agent: at("agent-reached"),
            ready: at("machine-ready"),
            is_over: ["provision-failed", "machine-failed", "machine-stopped", "machine-lost"]
                .into_iter()
                .any(has),
        },
    })
}

/// Id of a fact.
#[must_use]
pub fn fact_id(session: SessionId, kind: &Kind) -> Option<EventId> {
    fact::id(session, kind)
}

/// Publishes a fact under the id that every repeat of it has.
///
/// # Errors
/// If the stream gave no ack.
pub async fn publish(
    bus: &Bus,
    clock: &dyn Clock,
    session: &Session,
    kind: Kind,
) -> Result<(), lab_bus::Error> {
    let event = event::new(bus.environment(), &session.envelope, kind, clock.now());
    bus.publish(&event).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_cannot_be_read_whole_is_not_acted_on() {
        let id = SessionId::generate();
        let good = v1::Session {
            session_id: id.to_string(),
            state: v1::SessionState::Booting as i32,
            limits: Some(convert::limits_message(&StartLimits::default())),
            machines: vec![v1::Machine { name: "main".into(), pinned_uid: "u".into(), ..Default::default() }],
            ..Default::default()
        };
        assert_eq!(read(&good).unwrap().machines[0].pinned, ObjectUid::new("u").ok());
        for bad in [
            v1::Session { session_id: "x".into(), ..good.clone() },
            v1::Session { state: 99, ..good.clone() },
            v1::Session { limits: None, ..good.clone() },
            v1::Session { machines: vec![v1::Machine::default()], ..good.clone() },
        ] {
            assert_eq!(read(&bad), None);
        }
    }
}
