//! What the api knows of a session, read for [`crate::decide`].

use std::time::Duration;

use lab_bus::{Bus, Error};
use lab_domain::{MachineName, ObjectUid, SessionId};
use lab_proto::{convert, subjects, v1};

use crate::decide::Session;

/// A page waits for this; no answer opens nothing.
const ASK: Duration = Duration::from_secs(5);

/// Asks the api. `None`: it knows no such session.
///
/// # Errors
/// If the api does not answer. That says nothing about the session.
pub async fn get(bus: &Bus, id: SessionId) -> Result<Option<Session>, Error> {
    let request = v1::GetSessionRequest { session_id: id.to_string() };
    let answer: v1::GetSessionResponse = bus.ask(subjects::GET_SESSION, &request, ASK).await?;
    // An answer that this build cannot read is treated like none known: nothing opens.
    Ok(answer.session.and_then(|s| read(id, s)))
}

fn read(id: SessionId, session: v1::Session) -> Option<Session> {
    let machine = |m: v1::Machine| {
        let pinned = (!m.pinned_uid.is_empty()).then(|| ObjectUid::new(m.pinned_uid)).transpose().ok()?;
        Some((MachineName::new(m.name).ok()?, pinned))
    };
    Some(Session {
        id,
        version: session.version,
        state: convert::state(session.state).ok()?,
        reason: convert::end_reason(session.reason).ok(),
        owner: session.owner.parse().ok()?,
        user: session.user.parse().ok()?,
        lab: session.lab,
        runtime: session.runtime,
        machines: session.machines.into_iter().map(machine).collect::<Option<_>>()?,
    })
}
