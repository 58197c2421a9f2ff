//! What the api knows of a session, read for [`crate::decide`].

use std::time::Duration;

use lab_bus::Bus;
use lab_domain::{MachineName, ObjectUid, SessionId};
use lab_proto::{convert, subjects, v1};

use crate::decide::Session;

/// A page waits for this; no answer opens nothing.
const ASK: Duration = Duration::from_secs(5);

/// Why nothing is known of a session.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The api did not answer.
    #[error("the api was asked about a session in vain")]
    Ask(#[source] lab_bus::Error),
    /// The answer has words that this build does not know.
    #[error("the api's answer about a session cannot be read")]
    Unreadable,
}

/// Asks the api. `None`: it knows no such session.
///
/// # Errors
/// If the api does not answer, or not so that it can be read. That says nothing about the session.
pub async fn get(bus: &Bus, id: SessionId) -> Result<Option<Session>, Error> {
    let request = v1::GetSessionRequest { session_id: id.to_string() };
    let answer: v1::GetSessionResponse =
        bus.ask(subjects::GET_SESSION, &request, ASK).await.map_err(Error::Ask)?;
    match answer.session {
        None => Ok(None),
        // A newer api may say what this build cannot read. That opens nothing, and closes nothing.
        Some(session) => read(id, session).map(Some).ok_or(Error::Unreadable),
    }
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
