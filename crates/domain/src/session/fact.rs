//! What services report, in the domain's types.

use time::OffsetDateTime;

use crate::{Deadline, DiskKind, EndReason, MachineName, ObjectUid};

/// A fact about a session. Times are the reporter's.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the messages of event.proto, documented there")]
pub enum Fact {
    /// Work on this machine began.
    ProvisioningStarted { machine: MachineName, at: OffsetDateTime },
    /// Every object of this machine exists.
    MachineProvisioned {
        machine: MachineName,
        disk: Option<DiskKind>,
        disk_reason: String,
        at: OffsetDateTime,
    },
    /// This machine cannot be made.
    ProvisionFailed { machine: MachineName, cause: String, at: OffsetDateTime },
    /// The VMI has a host.
    MachineScheduled { machine: MachineName, uid: ObjectUid, at: OffsetDateTime },
    /// The VMI runs.
    MachineRunning { machine: MachineName, uid: ObjectUid, at: OffsetDateTime },
    /// The agent answered.
    AgentReached { machine: MachineName, uid: ObjectUid, at: OffsetDateTime },
    /// The prepare script succeeded.
    MachineReady { machine: MachineName, uid: ObjectUid, at: OffsetDateTime },
    /// This start cannot or did not succeed; no uid if no VMI was ever seen.
    MachineFailed {
        machine: MachineName,
        uid: Option<ObjectUid>,
        reason: EndReason,
        cause: String,
        log_tail: String,
        at: OffsetDateTime,
    },
    /// A pinned machine stopped by itself.
    MachineStopped { machine: MachineName, uid: ObjectUid, phase: String, at: OffsetDateTime },
    /// A pinned machine was deleted or replaced.
    MachineLost { machine: MachineName, uid: ObjectUid, cause: String, at: OffsetDateTime },
    /// A viewer came.
    ConsoleAttached,
    /// Bytes came from a browser.
    ConsoleActive { at: OffsetDateTime },
    /// A viewer left.
    ConsoleDetached,
    /// A timer fired and was found due.
    DeadlineReached { deadline: Deadline },
    /// A look showed every object gone.
    SessionReaped { ending_version: u64, at: OffsetDateTime },
    /// An object that no session owned was deleted.
    GhostReaped,
}

impl Fact {
    /// The machine that it is about.
    #[must_use]
    pub const fn machine(&self) -> Option<&MachineName> {
        match self {
            Self::ProvisioningStarted { machine, .. }
            | Self::MachineProvisioned { machine, .. }
            | Self::ProvisionFailed { machine, .. }
            | Self::MachineScheduled { machine, .. }
            | Self::MachineRunning { machine, .. }
            | Self::AgentReached { machine, .. }
            | Self::MachineReady { machine, .. }
            | Self::MachineFailed { machine, .. }
            | Self::MachineStopped { machine, .. }
            | Self::MachineLost { machine, .. } => Some(machine),
            Self::ConsoleAttached
            | Self::ConsoleActive { .. }
            | Self::ConsoleDetached
            | Self::DeadlineReached { .. }
            | Self::SessionReaped { .. }
            | Self::GhostReaped => None,
        }
    }
}
