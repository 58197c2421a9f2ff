//! A session as the api tells it, checked and cut to what creating needs.

use std::time::Duration;

use lab_bus::Envelope;
use lab_domain::{Digest, LabId, MachineName, SessionId, State};
use lab_proto::{convert, v1};
use time::OffsetDateTime;

/// A session.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Known {
    pub(crate) id: SessionId,
    pub(crate) state: State,
    pub(crate) lab: LabId,
    pub(crate) lab_digest: Digest,
    /// How long the guest's prepare script may run.
    pub(crate) prepare_limit: Duration,
    pub(crate) machines: Vec<Machine>,
    pub(crate) envelope: Envelope,
}

/// What the api has taken in about a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) name: MachineName,
    pub(crate) started_at: Option<OffsetDateTime>,
    pub(crate) is_provisioned: bool,
    pub(crate) is_failed: bool,
}

/// An answer that this build cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the api's answer has a malformed {0}")]
pub(crate) struct Malformed(&'static str);

impl Known {
    pub(crate) fn read(session: &v1::Session) -> Result<Self, Malformed> {
        let limits = session.limits.as_ref().ok_or(Malformed("limits"))?;
        Ok(Self {
            id: session.session_id.parse().map_err(|_| Malformed("session id"))?,
            state: convert::state(session.state).map_err(|_| Malformed("state"))?,
            lab: session.lab.parse().map_err(|_| Malformed("lab"))?,
            lab_digest: session.lab_digest.parse().map_err(|_| Malformed("lab digest"))?,
            prepare_limit: convert::limits(limits).prepare,
            machines: session.machines.iter().map(Machine::read).collect::<Result<_, _>>()?,
            envelope: Envelope::of(session).ok_or(Malformed("session id"))?,
        })
    }

    pub(crate) fn machine(&self, name: &MachineName) -> Option<&Machine> {
        self.machines.iter().find(|m| m.name == *name)
    }

    /// Machines that may still have to be made, or reported.
    pub(crate) fn open_machines(&self) -> impl Iterator<Item = &Machine> {
        self.machines.iter().filter(|m| self.wants(&m.name))
    }

    /// Whether this machine may be created: its session lives and has left the line, and nobody has reported its making or
    /// its failure. Once MachineProvisioned is projected nothing is created for it again: the reaper counts on that.
    pub(crate) fn wants(&self, name: &MachineName) -> bool {
        let started = self.state.is_live() && self.state != State::Queued;
        started && self.machine(name).is_some_and(|m| !m.is_provisioned && !m.is_failed)
    }
}

impl Machine {
    fn read(machine: &v1::Machine) -> Result<Self, Malformed> {
        let fact = |kind: &str| machine.facts.iter().find(|f| f.kind == kind);
        let at = |kind| fact(kind).and_then(|f| f.at.as_ref()).and_then(convert::time);
        Ok(Self {
            name: machine.name.parse().map_err(|_| Malformed("machine name"))?,
            started_at: at("provisioning-started"),
            is_provisioned: fact("machine-provisioned").is_some(),
            is_failed: fact("provision-failed").is_some(),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn answer(id: SessionId, state: State, facts: &[&str]) -> v1::Session {
        let facts = facts.iter().map(|kind| v1::ProjectedFact {
            kind: (*kind).to_owned(),
            at: Some(convert::timestamp(OffsetDateTime::UNIX_EPOCH)),
        });
        v1::Session {
            session_id: id.to_string(),
            state: convert::state_number(state),
            version: 1,
            lab: "disk-rescue".to_owned(),
            lab_digest: "cd".repeat(32),
            limits: Some(v1::Limits { prepare_ms: 300_000, ..Default::default() }),
            machines: vec![v1::Machine {
                name: "main".to_owned(),
                facts: facts.collect(),
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    #[test]
    fn a_machine_is_wanted_only_while_its_session_lives_and_nothing_was_reported() {
        let main = MachineName::new("main").unwrap();
        for state in State::ALL {
            for facts in [&[][..], &["provisioning-started"], &["machine-provisioned"], &["provision-failed"]]
            {
                let known = Known::read(&answer(SessionId::generate(), *state, facts)).unwrap();
                let expected = !matches!(state, State::Queued | State::Ending | State::Ended)
                    && !facts.contains(&"machine-provisioned")
                    && !facts.contains(&"provision-failed");
                assert_eq!(known.wants(&main), expected, "{state} {facts:?}");
                assert!(!known.wants(&MachineName::new("other").unwrap()));
            }
        }
    }

    #[test]
    fn a_malformed_answer_is_no_answer() {
        let good = answer(SessionId::generate(), State::Requested, &[]);
        assert!(Known::read(&v1::Session { lab_digest: "x".into(), ..good.clone() }).is_err());
        assert!(Known::read(&v1::Session { state: 99, ..good.clone() }).is_err());
        assert!(Known::read(&v1::Session { limits: None, ..good }).is_err());
    }
}
