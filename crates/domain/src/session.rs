//! One student's run of one lab: the state machine that only the api moves.
//!
//! ```text
//!            leave_queue        facts of every machine, by rank              all machines ready
//!  Queued ---------------> Starting ------------------------------------------------> Ready
//!    |      (requested, provisioning, booting, preparing: the least of the machines)   |  ^ | extend, activity
//!    |                        |                                                        |  '-'
//!    | end                    | end, failure, start deadline        end, failure, expiry, idle
//!    |                        v                                                        |
//!    |                     Ending <----------------------------------------------------'
//!    |                        | SessionReaped
//!    v                        v
//!  Ended <--------------------'        (terminal; may ask for one more reaping, see `again`)
//! ```
//!
//! Invariants:
//! - A state never goes back; `Ended` is terminal.
//! - Facts may come twice, late, out of order or contradict each other. They are projected by rank: a higher one implies
//!   the lower ones, each timeline entry keeps its smallest time, and projecting a fact again changes nothing.
//! - Of two contradictory outcomes the first projected wins; the other is kept in the timeline as late.
//! - The first projected fact with a VMI uid pins it for its machine; a fact with another uid is not about this session.
//! - Once `Ending`, reason and cause are fixed.
//!
//! What it does not do: it reads no clock (`now` is an argument), stores nothing and publishes nothing. Every change
//! raises `version` by one; the caller commits `next` and the decisions together.

mod command;
mod fact;
mod message;
mod project;
mod timeline;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod table_tests;

use std::time::Duration;

use time::OffsetDateTime;

pub use self::{
    command::{Fresh, Refused},
    fact::Fact,
    message::plain_words,
    timeline::{Entry, Step, Timeline},
};
use crate::{
    CheckOutcome, Deadline, Digest, DiskKind, EndReason, LabId, MachineName, ObjectUid, OwnerName, Runtime,
    SessionId, StartLimits, State,
};

/// How long a session may last, fixed when it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// From ready to expiry.
    pub life: Duration,
    /// From the last activity to the end.
    pub idle: Duration,
    /// What one extension adds.
    pub extend_step: Duration,
    /// What all extensions together may add.
    pub extend_max: Duration,
}

/// How far a machine's start has come. The order is the rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Progress {
    /// No fact yet.
    None,
    /// ProvisioningStarted.
    Started,
    /// MachineProvisioned.
    Provisioned,
    /// MachineScheduled.
    Scheduled,
    /// MachineRunning.
    Running,
    /// AgentReached.
    Agent,
    /// MachineReady.
    Ready,
}

impl Progress {
    /// The state that a machine of this rank is in.
    #[must_use]
    pub const fn state(self) -> State {
        match self {
            Self::None => State::Requested,
            Self::Started | Self::Provisioned => State::Provisioning,
            Self::Scheduled | Self::Running => State::Booting,
            Self::Agent => State::Preparing,
            Self::Ready => State::Ready,
        }
    }
}

/// One machine of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its name within the session.
    pub name: MachineName,
    /// The highest fact projected.
    pub progress: Progress,
    /// Its root disk, known from MachineProvisioned.
    pub disk: Option<DiskKind>,
    /// Why this disk.
    pub disk_reason: Option<String>,
    /// The first projected VMI uid.
    pub pinned: Option<ObjectUid>,
}

impl Machine {
    /// A machine of which nothing is known.
    #[must_use]
    pub const fn new(name: MachineName) -> Self {
        Self { name, progress: Progress::None, disk: None, disk_reason: None, pinned: None }
    }
}

/// The times of a session that is or was ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Working {
    /// When every machine was ready.
    pub ready_at: OffsetDateTime,
    /// When its life ends.
    pub expires_at: OffsetDateTime,
    /// When it ends if nobody works.
    pub idle_at: OffsetDateTime,
}

/// Why and since when a session ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The reason, fixed once.
    pub reason: EndReason,
    /// Machine-readable; `None` where the reason says all.
    pub cause: Option<String>,
    /// Tail of the prepare log, where that failed.
    pub log_tail: Option<String>,
    /// When the decision was taken.
    pub at: OffsetDateTime,
    /// Version of the decision: SessionReaped names it.
    pub version: u64,
    /// The times it had if it was ready before.
    pub worked: Option<Working>,
}

/// Where a session stands; each variant carries only what that phase has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// In the waiting line: no deadline, no place.
    Queued,
    /// Its machines are being made.
    Starting {
        /// When SessionRequested was decided.
        requested_at: OffsetDateTime,
        /// The backstop of the whole start.
        deadline: OffsetDateTime,
    },
    /// The student works.
    Ready(Working),
    /// Being deleted.
    Ending(End),
    /// Everything gone.
    Ended {
        /// Why.
        end: End,
        /// Since when.
        at: OffsetDateTime,
    },
}

/// The aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The student, as the token names them.
    pub owner: OwnerName,
    /// The lab.
    pub lab: LabId,
    /// The content that it was started with.
    pub lab_digest: Digest,
    /// What runs its machines.
    pub runtime: Runtime,
    /// Limits of the start, the time factor applied.
    pub limits: StartLimits,
    /// Life, idle and extension.
    pub terms: Terms,
    /// Raised by one with every change.
    pub version: u64,
    /// Where it stands.
    pub phase: Phase,
    /// At least one.
    pub machines: Vec<Machine>,
    /// The first time of each step.
    pub timeline: Timeline,
    /// When it was asked for.
    pub created_at: OffsetDateTime,
}

/// A change that the api decides and publishes, with the session's new version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The provisioner is to create the machines.
    Requested,
    /// Every machine is ready.
    Ready(Working),
    /// More time was granted.
    Extended {
        /// The new expiry.
        expires_at: OffsetDateTime,
    },
    /// A step was checked.
    Checked {
        /// Counted from 1.
        step: u32,
        /// What the grader said.
        outcome: CheckOutcome,
        /// The page asked by itself.
        auto: bool,
    },
    /// The reaper is to delete everything.
    Ending {
        /// Why.
        reason: EndReason,
        /// Machine-readable.
        cause: Option<String>,
        /// For a session that had ended already.
        again: bool,
    },
    /// Everything is gone.
    Ended {
        /// Why it ended.
        reason: EndReason,
    },
}

/// What projecting a fact makes of a session. Nothing changed if `next.version` is the old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    /// The session after the fact.
    pub next: Session,
    /// What is to be published with it.
    pub decisions: Vec<Decision>,
}

/// Why a fact is no fact about this session. It is acknowledged and changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// The session has no such machine.
    #[error("the session has no machine {machine}")]
    UnknownMachine {
        /// The machine that the fact names.
        machine: MachineName,
    },
    /// The fact is about another VMI than the pinned one.
    #[error("machine {machine} is pinned to VMI {pinned}, the fact is about {reported}")]
    ForeignUid {
        /// The machine.
        machine: MachineName,
        /// Its pin.
        pinned: ObjectUid,
        /// The uid that the fact carries.
        reported: ObjectUid,
    },
    /// Nobody was asked to make this session's machines yet.
    #[error("the session is still in the waiting line")]
    NotRequested,
    /// The deadline is not in the row, or lies in the future.
    #[error("the {deadline} deadline is not due")]
    NotDue {
        /// The deadline that the fact names.
        deadline: Deadline,
    },
    /// A reaping of a session that does not end, or of another ending.
    #[error("the session has no ending of version {ending_version}")]
    NotEnding {
        /// The version that the fact names.
        ending_version: u64,
    },
}

impl Session {
    /// The state, in the one spelling of the design.
    #[must_use]
    pub fn state(&self) -> State {
        match &self.phase {
            Phase::Queued => State::Queued,
            Phase::Starting { .. } => self.least().state(),
            Phase::Ready(_) => State::Ready,
            Phase::Ending(_) => State::Ending,
            Phase::Ended { .. } => State::Ended,
        }
    }

    /// The rank of the machine that is least far.
    #[must_use]
    pub fn least(&self) -> Progress {
        self.machines.iter().map(|m| m.progress).min().unwrap_or(Progress::None)
    }

    /// Times since it was ready, if it ever was.
    #[must_use]
    pub const fn working(&self) -> Option<&Working> {
        match &self.phase {
            Phase::Queued | Phase::Starting { .. } => None,
            Phase::Ready(working) => Some(working),
            Phase::Ending(end) | Phase::Ended { end, .. } => end.worked.as_ref(),
        }
    }

    /// Why it ends, once it does.
    #[must_use]
    pub const fn end_of(&self) -> Option<&End> {
        match &self.phase {
            Phase::Queued | Phase::Starting { .. } | Phase::Ready(_) => None,
            Phase::Ending(end) | Phase::Ended { end, .. } => Some(end),
        }
    }

    /// The machine of this name.
    #[must_use]
    pub fn machine(&self, name: &MachineName) -> Option<&Machine> {
        self.machines.iter().find(|m| &m.name == name)
    }
}
