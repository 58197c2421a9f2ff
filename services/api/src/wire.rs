//! Between the domain and the bus: facts in, decisions and answers out. Pure.
//!
//! Text that comes from a guest or another service is bounded and made fit for Postgres, which refuses a NUL.

use lab_bus::event::Kind;
use lab_domain::{
    DiskKind, EndReason, InstallationId, MachineName, ObjectUid, UserId, deadline,
    session::{Decision, Fact, Machine, Phase, Session, Step},
};
use lab_proto::{convert, v1};
use time::OffsetDateTime;

/// The longest cause that is kept.
const MAX_CAUSE: usize = 200;
/// The longest log tail that is kept, in bytes.
const MAX_LOG: usize = 4096;

/// Why an event is no fact that can ever be projected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {part} of the fact is malformed")]
pub(crate) struct Malformed {
    part: &'static str,
}

const fn bad<E>(part: &'static str) -> impl FnOnce(E) -> Malformed {
    move |_| Malformed { part }
}

/// Cuts at a character, at most `max` bytes, and replaces what a database cannot hold.
pub(crate) fn fit(text: &str, max: usize) -> String {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].replace('\0', "\u{fffd}")
}

/// The last `max` bytes, from a character on.
fn tail(text: &str, max: usize) -> String {
    let mut start = text.len().saturating_sub(max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    fit(&text[start..], max)
}

/// The fact in an event, or `None` for a decision.
///
/// # Errors
/// If a part is not of its form: no later delivery can be better.
pub(crate) fn fact(kind: &Kind, event: &v1::Event) -> Result<Option<Fact>, Malformed> {
    let occurred = event.occurred_at.as_ref().and_then(convert::time);
    let occurred = || occurred.ok_or(Malformed { part: "time" });
    let machine = |text: &String| MachineName::new(text.clone()).map_err(bad("machine"));
    let uid = |text: &String| ObjectUid::new(text.clone()).map_err(bad("uid"));
    // The reporter's own time of the fact where it has one, else the event's.
    let at = |at: &Option<prost_types::Timestamp>| match at.as_ref().and_then(convert::time) {
        Some(at) => Ok(at),
        None => occurred(),
    };
    let fact = match kind {
        Kind::ProvisioningStarted(f) => {
            Fact::ProvisioningStarted { machine: machine(&f.machine)?, at: occurred()? }
        }
        Kind::MachineProvisioned(f) => Fact::MachineProvisioned {
            machine: machine(&f.machine)?,
            // A disk that only a newer replica knows must not stop the start.
            disk: convert::disk_kind(f.disk).ok(),
            disk_reason: fit(&f.disk_reason, MAX_CAUSE),
            at: occurred()?,
        },
        Kind::ProvisionFailed(f) => Fact::ProvisionFailed {
            machine: machine(&f.machine)?,
            cause: fit(&f.cause, MAX_CAUSE),
            at: occurred()?,
        },
        Kind::MachineScheduled(f) => {
            Fact::MachineScheduled { machine: machine(&f.machine)?, uid: uid(&f.vmi_uid)?, at: at(&f.at)? }
        }
        Kind::MachineRunning(f) => {
            Fact::MachineRunning { machine: machine(&f.machine)?, uid: uid(&f.vmi_uid)?, at: at(&f.at)? }
        }
        Kind::AgentReached(f) => {
            Fact::AgentReached { machine: machine(&f.machine)?, uid: uid(&f.vmi_uid)?, at: at(&f.at)? }
        }
        Kind::MachineReady(f) => {
            Fact::MachineReady { machine: machine(&f.machine)?, uid: uid(&f.vmi_uid)?, at: at(&f.at)? }
        }
        Kind::MachineFailed(f) => Fact::MachineFailed {
            machine: machine(&f.machine)?,
            uid: if f.vmi_uid.is_empty() { None } else { Some(uid(&f.vmi_uid)?) },
            reason: failure(f.reason)?,
            cause: fit(&f.cause, MAX_CAUSE),
            log_tail: tail(&f.log_tail, MAX_LOG),
            at: occurred()?,
        },
        Kind::MachineStopped(f) => Fact::MachineStopped {
            machine: machine(&f.machine)?,
            uid: uid(&f.vmi_uid)?,
            phase: fit(&f.phase, MAX_CAUSE),
            at: occurred()?,
        },
        Kind::MachineLost(f) => Fact::MachineLost {
            machine: machine(&f.machine)?,
            uid: uid(&f.vmi_uid)?,
            cause: fit(&f.cause, MAX_CAUSE),
            at: occurred()?,
        },
        Kind::ConsoleAttached(_) => Fact::ConsoleAttached,
        Kind::ConsoleActive(_) => Fact::ConsoleActive { at: occurred()? },
        Kind::ConsoleDetached(_) => Fact::ConsoleDetached,
        Kind::DeadlineReached(f) => {
            Fact::DeadlineReached { deadline: convert::deadline(f.deadline).map_err(bad("deadline"))? }
        }
        Kind::SessionReaped(f) => Fact::SessionReaped { ending_version: f.ending_version, at: occurred()? },
        Kind::GhostReaped(_) => Fact::GhostReaped,
        Kind::SessionRequested(_)
        | Kind::SessionReady(_)
        | Kind::SessionExtended(_)
        | Kind::CheckCompleted(_)
        | Kind::SessionEnding(_)
        | Kind::SessionEnded(_) => return Ok(None),
    };
    Ok(Some(fact))
}

/// The reasons that a failed start may have: a reporter cannot end a session in a person's name.
fn failure(number: i32) -> Result<EndReason, Malformed> {
    let reason = convert::end_reason(number).map_err(bad("reason"))?;
    match reason {
        EndReason::ProvisionFailed
        | EndReason::DiskTimeout
        | EndReason::BootTimeout
        | EndReason::AgentUnreachable
        | EndReason::PrepareFailed
        | EndReason::PrepareTimeout => Ok(reason),
        EndReason::User
        | EndReason::Expired
        | EndReason::Idle
        | EndReason::Admin
        | EndReason::VmStopped
        | EndReason::VmLost => Err(Malformed { part: "reason" }),
    }
}

/// A decision as the bus tells it.
pub(crate) fn decision(session: &Session, decision: &Decision) -> Kind {
    match decision {
        Decision::Requested => Kind::SessionRequested(v1::SessionRequested {
            lab_digest: session.lab_digest.to_string(),
            machines: session.machines.iter().map(|m| m.name.to_string()).collect(),
            limits: Some(convert::limits_message(&session.limits)),
        }),
        Decision::Ready(working) => Kind::SessionReady(v1::SessionReady {
            expires_at: Some(convert::timestamp(working.expires_at)),
            idle_at: Some(convert::timestamp(working.idle_at)),
        }),
        Decision::Extended { expires_at } => {
            Kind::SessionExtended(v1::SessionExtended { expires_at: Some(convert::timestamp(*expires_at)) })
        }
        Decision::Checked { step, outcome, auto } => Kind::CheckCompleted(v1::CheckCompleted {
            step: *step,
            outcome: convert::check_outcome_number(*outcome),
            auto: *auto,
        }),
        Decision::Ending { reason, cause, again } => Kind::SessionEnding(v1::SessionEnding {
            reason: convert::end_reason_number(*reason),
            cause: cause.clone().unwrap_or_default(),
            again: *again,
        }),
        Decision::Ended { reason } => {
            Kind::SessionEnded(v1::SessionEnded { reason: convert::end_reason_number(*reason) })
        }
    }
}

/// A session as other services are told it.
pub(crate) fn session(installation: InstallationId, session: &Session) -> v1::Session {
    let stamp = |at: Option<OffsetDateTime>| at.map(convert::timestamp);
    let (working, end) = (session.working(), session.end_of());
    let start_deadline = match &session.phase {
        Phase::Starting { deadline, .. } => Some(*deadline),
        Phase::Queued | Phase::Ready(_) | Phase::Ending(_) | Phase::Ended { .. } => None,
    };
    v1::Session {
        session_id: session.id.to_string(),
        state: convert::state_number(session.state()),
        version: session.version,
        user: UserId::of(installation, &session.owner).to_string(),
        owner: session.owner.to_string(),
        runtime: convert::runtime_number(session.runtime),
        lab: session.lab.to_string(),
        lab_digest: session.lab_digest.to_string(),
        limits: Some(convert::limits_message(&session.limits)),
        start_deadline: stamp(start_deadline),
        expires_at: stamp(working.map(|w| w.expires_at)),
        idle_at: stamp(working.map(|w| w.idle_at)),
        machines: session.machines.iter().map(|m| machine(session, m)).collect(),
        reason: end.map_or(0, |e| convert::end_reason_number(e.reason)),
        cause: end.and_then(|e| e.cause.clone()).unwrap_or_default(),
        ending_at: stamp(end.map(|e| e.at)),
        ending_version: end.map_or(0, |e| e.version),
        created_at: Some(convert::timestamp(session.created_at)),
    }
}

fn machine(session: &Session, machine: &Machine) -> v1::Machine {
    let facts = session.timeline.entries().iter().filter(|e| e.machine.as_ref() == Some(&machine.name));
    let facts = facts.flat_map(|entry| {
        // The reaper reckons from when the api took this one in: after that nothing is created any more.
        let at = if entry.step == Step::Provisioned { entry.projected_at } else { entry.at };
        kinds(entry.step)
            .iter()
            .map(move |kind| v1::ProjectedFact { kind: (*kind).to_owned(), at: Some(convert::timestamp(at)) })
    });
    v1::Machine {
        name: machine.name.to_string(),
        state: convert::state_number(machine.progress.state()),
        disk: machine.disk.map_or(0, |d: DiskKind| convert::disk_kind_number(d)),
        disk_reason: machine.disk_reason.clone().unwrap_or_default(),
        pinned_uid: machine.pinned.as_ref().map(ToString::to_string).unwrap_or_default(),
        facts: facts.collect(),
    }
}

/// The events that a step of a machine stands for.
const fn kinds(step: Step) -> &'static [&'static str] {
    match step {
        Step::Provisioning => &["provisioning-started"],
        Step::Provisioned => &["machine-provisioned"],
        Step::Scheduled => &["machine-scheduled"],
        Step::Running => &["machine-running"],
        Step::Agent => &["agent-reached"],
        Step::Ready => &["machine-ready"],
        // Two reporters, one step: whichever asks finds its own.
        Step::Failed => &["machine-failed", "provision-failed"],
        Step::Stopped => &["machine-stopped"],
        Step::Lost => &["machine-lost"],
        Step::Requested | Step::Ending | Step::Ended => &[],
    }
}

/// The earliest deadline, for the session's timer.
pub(crate) fn timer(session: &Session) -> Option<OffsetDateTime> {
    deadline::earliest(session).map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_a_character_and_loses_its_nul() {
        assert_eq!(fit("a\0b", 9), "a\u{fffd}b");
        assert_eq!(fit("aé", 2), "a");
        assert_eq!(tail("éb", 2), "b");
        assert_eq!(tail("ab", 9), "ab");
    }

    #[test]
    fn nobody_can_end_a_session_in_a_persons_name() {
        for reason in [EndReason::User, EndReason::Admin, EndReason::Expired, EndReason::Idle] {
            assert!(failure(convert::end_reason_number(reason)).is_err());
        }
        assert!(failure(0).is_err());
        assert!(failure(convert::end_reason_number(EndReason::BootTimeout)).is_ok());
    }
}
