//! A session as the api tells it, checked and cut to what deleting needs.

use lab_bus::Envelope;
use lab_domain::{Deadline, MachineName, SessionId, State};
use lab_proto::{convert, v1};
use prost_types::Timestamp;
use time::OffsetDateTime;

/// A session.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Known {
    pub(crate) id: SessionId,
    pub(crate) state: State,
    /// The deadlines that stand, earliest first.
    pub(crate) deadlines: Vec<(Deadline, OffsetDateTime)>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) ending_at: Option<OffsetDateTime>,
    pub(crate) ending_version: u64,
    pub(crate) envelope: Envelope,
}

/// A machine of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) name: MachineName,
    /// When the api took MachineProvisioned in: after that nothing is created for it.
    pub(crate) provisioned_at: Option<OffsetDateTime>,
}

/// An answer that this build cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the api's answer has a malformed {0}")]
pub(crate) struct Malformed(&'static str);

impl Known {
    pub(crate) fn read(session: &v1::Session) -> Result<Self, Malformed> {
        let time = |at: &Option<Timestamp>| at.as_ref().and_then(convert::time);
        let standing = [
            (Deadline::Start, time(&session.start_deadline)),
            (Deadline::Expiry, time(&session.expires_at)),
            (Deadline::Idle, time(&session.idle_at)),
        ];
        let mut deadlines: Vec<_> = standing.into_iter().filter_map(|(d, at)| Some((d, at?))).collect();
        deadlines.sort_by_key(|(_, at)| *at);
        Ok(Self {
            id: session.session_id.parse().map_err(|_| Malformed("session id"))?,
            state: convert::state(session.state).map_err(|_| Malformed("state"))?,
            deadlines,
            machines: session.machines.iter().map(Machine::read).collect::<Result<_, _>>()?,
            ending_at: time(&session.ending_at),
            ending_version: session.ending_version,
            envelope: Envelope::of(session).ok_or(Malformed("session id"))?,
        })
    }
}

impl Machine {
    fn read(machine: &v1::Machine) -> Result<Self, Malformed> {
        let provisioned = machine.facts.iter().find(|f| f.kind == "machine-provisioned");
        Ok(Self {
            name: machine.name.parse().map_err(|_| Malformed("machine name"))?,
            provisioned_at: provisioned.and_then(|f| f.at.as_ref()).and_then(convert::time),
        })
    }
}
