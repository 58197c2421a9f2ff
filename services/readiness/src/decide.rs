//! What to report about one machine: pure, total, takes the time as an argument.
//!
//! ```text
//!  VMI      Pending ─▶ Scheduling ─▶ Scheduled ─▶ Running ─────────────────────────────▶ Succeeded | Failed | gone
//!  agent                                             └─ first answer ─▶ prepare ─▶ done
//!  fact                              Scheduled    Running  AgentReached      MachineReady     Stopped | Lost
//!  limit    └────────── disk ──────────┘── boot ──┘── agent ──┘── prepare + 30 s ──┘
//! ```
//!
//! Limits run from the times that the api has projected, never from when this process began to look. What would end a
//! session for good is never concluded from the watch, which may be behind: it is decided once more from a fresh look at
//! the cluster, with the api asked after it ([`Look`]).
//!
//! A fact is wanted as long as the api's answer does not show it, so a repeat costs nothing but its message.

mod faults;
#[cfg(test)]
mod tests;

use std::time::Duration;

use lab_domain::{DiskKind, EndReason, MachineName, ObjectUid, StartLimits, State, limits::PREPARE_GRACE};
use lab_kubevirt::{Condition, Phase};
use lab_proto::{convert, v1};
use time::OffsetDateTime;

pub use faults::{Fault, fault};
pub use lab_proto::v1::event::Event as Kind;

/// A VMI that a created VM must have got by now, unless the VM itself is gone.
const VMI_EXPECTED: Duration = Duration::from_secs(15);

/// A machine as the api knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Its name.
    pub name: MachineName,
    /// The VMI that the session is about, once the api has seen one.
    pub pinned: Option<ObjectUid>,
    /// Its root disk, once it is known.
    pub disk: Option<DiskKind>,
    /// Times of the projected facts.
    pub facts: Projected,
}

/// Times of a machine's projected facts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Projected {
    /// MachineProvisioned.
    pub provisioned: Option<OffsetDateTime>,
    /// MachineScheduled.
    pub scheduled: Option<OffsetDateTime>,
    /// MachineRunning.
    pub running: Option<OffsetDateTime>,
    /// AgentReached.
    pub agent: Option<OffsetDateTime>,
    /// MachineReady.
    pub ready: Option<OffsetDateTime>,
    /// MachineFailed, MachineStopped or MachineLost: the first one has decided.
    pub is_over: bool,
}

/// A VMI as the cluster shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Which one.
    pub uid: ObjectUid,
    /// Its phase.
    pub phase: Phase,
    /// It is being deleted: it is ending, whatever its phase says.
    pub is_terminating: bool,
    /// When it was made.
    pub created_at: Option<OffsetDateTime>,
    /// When it was Scheduled, where KubeVirt kept that.
    pub scheduled_at: Option<OffsetDateTime>,
    /// When it was Running, where KubeVirt kept that.
    pub running_at: Option<OffsetDateTime>,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

/// How the cluster was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Through the watch, which may be behind.
    Watched,
    /// Just now, and the api was asked after it. Tells whether the VM is there too.
    Fresh {
        /// The VirtualMachine exists.
        has_vm: bool,
    },
}

/// What is known of the agent of one VMI, in this process.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// The VMI whose agent it is.
    pub uid: ObjectUid,
    /// First answer, confirmed to be of this VMI.
    pub reached_at: Option<OffsetDateTime>,
    /// How the start went, once the agent said so.
    pub outcome: Option<Outcome>,
    /// Why the last call failed.
    pub trouble: Option<&'static str>,
}

/// How the agent says that the start went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// cloud-init is done and the prepare script exited 0.
    Ready {
        /// When it said so.
        at: OffsetDateTime,
    },
    /// It did not succeed.
    Failed {
        /// The agent's word.
        cause: Cause,
        /// Exit code of the script, where it has one.
        exit_code: Option<i32>,
        /// End of its log.
        log_tail: String,
    },
}

/// The agent's word for a failed start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The prepare script exited otherwise than 0.
    ExitStatus,
    /// It was stopped after its limit.
    Timeout,
    /// cloud-init failed before it.
    CloudInit,
    /// It was killed, or the machine went down under it.
    Signal,
    /// A word that this build does not know.
    Unknown,
}

impl Cause {
    /// The machine-readable cause in the fact.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ExitStatus => "exit_status",
            Self::Timeout => "timeout",
            Self::CloudInit => "cloud_init",
            Self::Signal => "signal",
            Self::Unknown => "unknown",
        }
    }
}

/// What to do about a machine now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// Facts that the api has not shown yet, in the order of their rank.
    pub facts: Vec<Kind>,
    /// Talk to the agent of this VMI.
    pub poll: Option<ObjectUid>,
    /// The watch shows something that would end the session: look afresh and decide again.
    pub look_afresh: bool,
    /// The next moment at which this decision can change by itself.
    pub wake_at: Option<OffsetDateTime>,
}

impl Decision {
    fn report(kind: Kind) -> Self {
        Self { facts: vec![kind], ..Self::default() }
    }

    fn wait(until: Option<OffsetDateTime>) -> Self {
        Self { wake_at: until, ..Self::default() }
    }
}

/// Decides about one machine of a session that is in `state`.
#[must_use]
pub fn decide(
    state: State,
    limits: &StartLimits,
    machine: &Machine,
    seen: Option<&Seen>,
    agent: Option<&Agent>,
    look: Look,
    now: OffsetDateTime,
) -> Decision {
    let is_followed = match state {
        State::Requested | State::Provisioning | State::Booting | State::Preparing | State::Ready => true,
        State::Queued | State::Ending | State::Ended => false,
    };
    if !is_followed || machine.facts.is_over {
        return Decision::default();
    }
    if let Some(pinned) = &machine.pinned
        && let Some(kind) = loss(machine, pinned, seen)
    {
        return conclude(kind, look);
    }
    if machine.facts.ready.is_some() {
        return Decision::default();
    }
    start(limits, machine, seen, agent, look, now)
}

/// What happened to the pinned machine, if it is not there any more as it was.
fn loss(machine: &Machine, pinned: &ObjectUid, seen: Option<&Seen>) -> Option<Kind> {
    let lost = |cause: &str| {
        Some(Kind::MachineLost(v1::MachineLost {
            machine: machine.name.to_string(),
            vmi_uid: pinned.to_string(),
            cause: cause.to_owned(),
        }))
    };
    match seen {
        None => lost("deleted"),
        Some(seen) if seen.uid != *pinned => lost("replaced"),
        Some(seen) if seen.is_terminating => lost("deleted"),
        Some(seen) if seen.phase.is_final() => Some(Kind::MachineStopped(v1::MachineStopped {
            machine: machine.name.to_string(),
            vmi_uid: pinned.to_string(),
            phase: seen.phase.as_str().to_owned(),
        })),
        Some(_) => None,
    }
}

/// What ends a session is said only from a fresh look.
fn conclude(kind: Kind, look: Look) -> Decision {
    match look {
        Look::Watched => Decision { look_afresh: true, ..Decision::default() },
        Look::Fresh { .. } => Decision::report(kind),
    }
}

fn start(
    limits: &StartLimits,
    machine: &Machine,
    seen: Option<&Seen>,
    agent: Option<&Agent>,
    look: Look,
    now: OffsetDateTime,
) -> Decision {
    let Some(seen) = seen else { return without_vmi(limits, machine, look, now) };
    if seen.phase.is_final() {
        let message = format!("The machine ended as {} before it was ready.", seen.phase.as_str());
        let cause = format!("vmi_{}", seen.phase.as_str().to_lowercase());
        return conclude(failed(machine, Some(seen), EndReason::ProvisionFailed, &cause, message), look);
    }
    let mut decision = Decision { facts: progress(machine, seen, now), ..Decision::default() };
    let is_dialable =
        seen.phase == Phase::Running && !seen.is_terminating && machine.pinned.as_ref() == Some(&seen.uid);
    let agent = agent.filter(|agent| is_dialable && agent.uid == seen.uid);
    if let Some(agent) = agent {
        decision.facts.extend(answers(machine, agent));
        if agent.outcome.is_some() {
            return decision;
        }
    }
    decision.poll = is_dialable.then(|| seen.uid.clone());
    let limit = current_limit(limits, machine, Some(seen));
    let fault = if seen.phase == Phase::Running || machine.facts.running.is_some() {
        Fault::None
    } else {
        fault(&seen.conditions, machine.disk, seen.created_at)
    };
    let overdue = limit.as_ref().is_some_and(|limit| limit.at <= now);
    match fault {
        Fault::Final { cause, message, since } if since <= now => {
            let kind = failed(machine, Some(seen), EndReason::ProvisionFailed, &cause, message);
            return Decision { facts: decision.facts, ..Decision::default() }.and(conclude(kind, look));
        }
        Fault::Final { since, .. } => decision.wake_at = Some(since),
        Fault::Passing { .. } | Fault::None => {}
    }
    if let Some(limit) = limit {
        if overdue {
            let cause = match &fault {
                Fault::Passing { cause } | Fault::Final { cause, .. } => cause.as_str(),
                Fault::None => agent.and_then(|a| a.trouble).unwrap_or(limit.cause),
            };
            let kind = failed(machine, Some(seen), limit.reason, cause, limit.message.to_owned());
            return Decision { facts: decision.facts, ..Decision::default() }.and(conclude(kind, look));
        }
        decision.wake_at = Some(decision.wake_at.map_or(limit.at, |at| at.min(limit.at)));
    }
    decision
}

impl Decision {
    fn and(mut self, other: Self) -> Self {
        self.facts.extend(other.facts);
        self.look_afresh |= other.look_afresh;
        self
    }
}

/// No VMI, and none was pinned: not made yet, or its VM is gone.
fn without_vmi(limits: &StartLimits, machine: &Machine, look: Look, now: OffsetDateTime) -> Decision {
    let Some(limit) = current_limit(limits, machine, None) else { return Decision::default() };
    if limit.at <= now {
        return conclude(failed(machine, None, limit.reason, limit.cause, limit.message.to_owned()), look);
    }
    // A DataVolume is filled before there is a VMI; the VM is there all the while.
    let missing_at = machine.facts.provisioned.map(|at| at + VMI_EXPECTED);
    match (missing_at, look) {
        (Some(at), Look::Watched) if at <= now && machine.disk != Some(DiskKind::DataVolume) => {
            Decision { look_afresh: true, wake_at: Some(limit.at), ..Decision::default() }
        }
        (Some(at), Look::Fresh { has_vm: false }) if at <= now => {
            let message = "The machine was deleted before it started.".to_owned();
            Decision::report(failed(machine, None, EndReason::ProvisionFailed, "machine_deleted", message))
        }
        (Some(at), Look::Watched) if now < at => Decision::wait(Some(at.min(limit.at))),
        (_, Look::Watched | Look::Fresh { .. }) => Decision::wait(Some(limit.at)),
    }
}

/// Facts that the VMI's phase shows and the api does not.
fn progress(machine: &Machine, seen: &Seen, now: OffsetDateTime) -> Vec<Kind> {
    let (is_scheduled, is_running) = reached(seen.phase);
    // A VMI with another uid than the pinned one does not come this far.
    let (name, uid) = (machine.name.to_string(), seen.uid.to_string());
    let mut facts = Vec::new();
    if is_scheduled && machine.facts.scheduled.is_none() {
        let at = Some(convert::timestamp(seen.scheduled_at.or(seen.running_at).unwrap_or(now)));
        facts.push(Kind::MachineScheduled(v1::MachineScheduled {
            machine: name.clone(),
            vmi_uid: uid.clone(),
            at,
        }));
    }
    if is_running && machine.facts.running.is_none() {
        let at = Some(convert::timestamp(seen.running_at.unwrap_or(now)));
        facts.push(Kind::MachineRunning(v1::MachineRunning { machine: name, vmi_uid: uid, at }));
    }
    facts
}

/// Whether a phase is at least Scheduled, and at least Running.
fn reached(phase: Phase) -> (bool, bool) {
    match phase {
        Phase::Unset | Phase::Pending | Phase::Scheduling | Phase::WaitingForSync | Phase::Unknown => {
            (false, false)
        }
        Phase::Scheduled => (true, false),
        Phase::Running | Phase::Succeeded | Phase::Failed => (true, true),
    }
}

/// Facts that the agent told and the api does not show.
fn answers(machine: &Machine, agent: &Agent) -> Vec<Kind> {
    let (name, uid) = (machine.name.to_string(), agent.uid.to_string());
    let mut facts = Vec::new();
    if let Some(at) = agent.reached_at
        && machine.facts.agent.is_none()
    {
        let at = Some(convert::timestamp(at));
        facts.push(Kind::AgentReached(v1::AgentReached { machine: name.clone(), vmi_uid: uid.clone(), at }));
    }
    match &agent.outcome {
        None => {}
        Some(Outcome::Ready { at }) => {
            let at = Some(convert::timestamp(*at));
            facts.push(Kind::MachineReady(v1::MachineReady { machine: name, vmi_uid: uid, at }));
        }
        Some(Outcome::Failed { cause, exit_code, log_tail }) => {
            let (reason, message) = prepare_failure(*cause, *exit_code);
            facts.push(Kind::MachineFailed(v1::MachineFailed {
                machine: name,
                vmi_uid: uid,
                reason: convert::end_reason_number(reason),
                cause: cause.as_str().to_owned(),
                message,
                log_tail: log_tail.clone(),
            }));
        }
    }
    facts
}

fn prepare_failure(cause: Cause, exit_code: Option<i32>) -> (EndReason, String) {
    match cause {
        Cause::Timeout => {
            (EndReason::PrepareTimeout, "The lab's preparation did not end within its limit.".to_owned())
        }
        Cause::ExitStatus => {
            let code = exit_code.map_or_else(|| "an unknown code".to_owned(), |c| c.to_string());
            (EndReason::PrepareFailed, format!("The lab's preparation failed with exit code {code}."))
        }
        Cause::CloudInit => {
            (EndReason::PrepareFailed, "cloud-init failed before the lab's preparation.".to_owned())
        }
        Cause::Signal => {
            (EndReason::PrepareFailed, "The lab's preparation was cut off inside the machine.".to_owned())
        }
        Cause::Unknown => (EndReason::PrepareFailed, "The lab's preparation failed.".to_owned()),
    }
}

struct Limit {
    at: OffsetDateTime,
    reason: EndReason,
    cause: &'static str,
    message: &'static str,
}

/// The limit of the phase that the machine is in: the later of what the api has projected and what the cluster shows.
/// A phase that is seen and not projected has no limit yet; its fact is on its way.
fn current_limit(limits: &StartLimits, machine: &Machine, seen: Option<&Seen>) -> Option<Limit> {
    let facts = &machine.facts;
    let (is_scheduled, is_running) = seen.map_or((false, false), |s| reached(s.phase));
    if let Some(at) = facts.agent {
        return Some(Limit {
            at: at + limits.prepare + PREPARE_GRACE,
            reason: EndReason::PrepareTimeout,
            cause: "no_end",
            message: "The machine answers, and its preparation does not end.",
        });
    }
    if facts.running.is_some() || is_running {
        return facts.running.map(|at| Limit {
            at: at + limits.agent,
            reason: EndReason::AgentUnreachable,
            cause: "no_answer",
            message: "The machine runs, and nothing in it answers.",
        });
    }
    if facts.scheduled.is_some() || is_scheduled {
        return facts.scheduled.map(|at| Limit {
            at: at + limits.boot,
            reason: EndReason::BootTimeout,
            cause: "not_running",
            message: "The machine has a host and did not start there in time.",
        });
    }
    facts.provisioned.map(|at| Limit {
        at: at + limits.disk,
        reason: EndReason::DiskTimeout,
        cause: "not_scheduled",
        message: "The machine's disk or a host for it was not there in time.",
    })
}

fn failed(machine: &Machine, seen: Option<&Seen>, reason: EndReason, cause: &str, message: String) -> Kind {
    // The api takes no fact about another VMI than the pinned one.
    let uid = machine.pinned.as_ref().or(seen.map(|s| &s.uid));
    Kind::MachineFailed(v1::MachineFailed {
        machine: machine.name.to_string(),
        vmi_uid: uid.map(ToString::to_string).unwrap_or_default(),
        reason: convert::end_reason_number(reason),
        cause: cause.to_owned(),
        message,
        log_tail: String::new(),
    })
}
