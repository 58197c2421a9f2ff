//! What makes two facts the same event.
//!
//! A fact's id is UUIDv5 of (session, machine or empty, VMI uid or empty, kind, occurrence), so a repeat by any replica is
//! the same message for the bus and for the api.

use lab_domain::{EventId, SessionId};
use uuid::Uuid;

use crate::{subjects::kind_name, v1::event::Event as Kind};

/// Namespace of fact ids. Part of the contract: never changes.
const NAMESPACE: Uuid = Uuid::from_u128(0x6f1c_9a52_2f0e_5d0b_9b51_7474_6c61_6276);

/// True for what a service reports, false for what the api decides.
#[must_use]
pub fn is_fact(kind: &Kind) -> bool {
    parts(kind).is_some()
}

/// The fact's id, or `None` for a decision, whose id is a fresh UUIDv7.
#[must_use]
pub fn id(session: SessionId, kind: &Kind) -> Option<EventId> {
    let Parts { machine, vmi_uid, occurrence } = parts(kind)?;
    // No part can hold a line feed: machine, uid and kind are checked forms, an occurrence is made here.
    let name = format!("{session}\n{machine}\n{vmi_uid}\n{}\n{occurrence}", kind_name(kind));
    Some(EventId(Uuid::new_v5(&NAMESPACE, name.as_bytes())))
}

struct Parts<'a> {
    machine: &'a str,
    vmi_uid: &'a str,
    occurrence: String,
}

fn parts(kind: &Kind) -> Option<Parts<'_>> {
    let of = |machine, vmi_uid, occurrence| Some(Parts { machine, vmi_uid, occurrence });
    match kind {
        Kind::ProvisioningStarted(f) => of(&f.machine, "", String::new()),
        Kind::MachineProvisioned(f) => of(&f.machine, "", String::new()),
        Kind::ProvisionFailed(f) => of(&f.machine, "", String::new()),
        Kind::MachineScheduled(f) => of(&f.machine, &f.vmi_uid, String::new()),
        Kind::MachineRunning(f) => of(&f.machine, &f.vmi_uid, String::new()),
        Kind::AgentReached(f) => of(&f.machine, &f.vmi_uid, String::new()),
        Kind::MachineReady(f) => of(&f.machine, &f.vmi_uid, String::new()),
        Kind::MachineFailed(f) => of(&f.machine, &f.vmi_uid, String::new()),
        Kind::MachineStopped(f) => of(&f.machine, &f.vmi_uid, String::new()),
        Kind::MachineLost(f) => of(&f.machine, &f.vmi_uid, String::new()),
        Kind::ConsoleAttached(f) => of(&f.machine, "", f.connection_id.clone()),
        Kind::ConsoleActive(f) => of(&f.machine, "", format!("{} {}", f.connection_id, f.minute)),
        Kind::ConsoleDetached(f) => of(&f.machine, "", f.connection_id.clone()),
        Kind::DeadlineReached(f) => {
            let value = f.value.unwrap_or_default();
            of("", "", format!("{} {}.{:09}", f.deadline, value.seconds, value.nanos))
        }
        // The second reaping of a session that ended once is the same fact: it changes nothing.
        Kind::SessionReaped(f) => of("", "", f.ending_version.to_string()),
        Kind::GhostReaped(f) => of("", "", f.uid.clone()),
        Kind::SessionRequested(_)
        | Kind::SessionReady(_)
        | Kind::SessionExtended(_)
        | Kind::CheckCompleted(_)
        | Kind::SessionEnding(_)
        | Kind::SessionEnded(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1;

    #[test]
    fn a_repeat_is_the_same_event_and_another_uid_is_not() {
        let session = SessionId::generate();
        let running = |uid: &str, seconds| {
            Kind::MachineRunning(v1::MachineRunning {
                machine: "main".into(),
                vmi_uid: uid.into(),
                at: Some(prost_types::Timestamp { seconds, nanos: 0 }),
            })
        };
        assert_eq!(id(session, &running("a", 1)), id(session, &running("a", 2)));
        assert_ne!(id(session, &running("a", 1)), id(session, &running("b", 1)));
        assert_ne!(id(session, &running("a", 1)), id(SessionId::generate(), &running("a", 1)));
    }

    #[test]
    fn decisions_have_no_derived_id() {
        let kind = Kind::SessionEnded(v1::SessionEnded::default());
        assert!(!is_fact(&kind));
        assert_eq!(id(SessionId::generate(), &kind), None);
    }

    #[test]
    fn fact_ids_never_change() {
        let session: SessionId = "0198f6c4-7b1c-7c3e-8f00-000000000001".parse().unwrap();
        let kind = Kind::GhostReaped(v1::GhostReaped { uid: "u1".into(), ..Default::default() });
        assert_eq!(id(session, &kind).unwrap().to_string(), "acf64506-32df-5078-a989-8c8c56f16c7a");
    }
}
