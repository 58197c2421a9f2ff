//! The first time of each step, per machine.

use std::{fmt, str::FromStr};

use time::OffsetDateTime;

use crate::MachineName;

/// A step of a session's or a machine's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// The provisioner was asked.
    Requested,
    /// ProvisioningStarted.
    Provisioning,
    /// MachineProvisioned.
    Provisioned,
    /// MachineScheduled.
    Scheduled,
    /// MachineRunning.
    Running,
    /// AgentReached.
    Agent,
    /// MachineReady; without a machine: SessionReady.
    Ready,
    /// MachineFailed or ProvisionFailed.
    Failed,
    /// MachineStopped.
    Stopped,
    /// MachineLost.
    Lost,
    /// The session began to end.
    Ending,
    /// Everything gone.
    Ended,
}

impl Step {
    /// Every step, in order.
    pub const ALL: &'static [Self] = &[
        Self::Requested,
        Self::Provisioning,
        Self::Provisioned,
        Self::Scheduled,
        Self::Running,
        Self::Agent,
        Self::Ready,
        Self::Failed,
        Self::Stopped,
        Self::Lost,
        Self::Ending,
        Self::Ended,
    ];

    /// The word of database and HTTP.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Provisioning => "provisioning",
            Self::Provisioned => "provisioned",
            Self::Scheduled => "scheduled",
            Self::Running => "running",
            Self::Agent => "agent",
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Lost => "lost",
            Self::Ending => "ending",
            Self::Ended => "ended",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is no step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown timeline step: {0:?}")]
pub struct UnknownStep(String);

impl FromStr for Step {
    type Err = UnknownStep;

    fn from_str(word: &str) -> Result<Self, UnknownStep> {
        Self::ALL
            .iter()
            .copied()
            .find(|s| s.as_str() == word)
            .ok_or_else(|| UnknownStep(word.chars().take(80).collect()))
    }
}

/// One line of the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The step.
    pub step: Step,
    /// The machine; `None` for the session's own steps.
    pub machine: Option<MachineName>,
    /// The smallest time reported.
    pub at: OffsetDateTime,
    /// When the api first took it in.
    pub projected_at: OffsetDateTime,
    /// An outcome that came after another outcome had won.
    pub late: bool,
}

/// At most one entry per (step, machine).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Timeline(Vec<Entry>);

impl Timeline {
    /// A timeline read back from where it was kept.
    #[must_use]
    pub const fn from_entries(entries: Vec<Entry>) -> Self {
        Self(entries)
    }

    /// The entries, in the order in which they were first projected.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// The entry of this step and machine.
    #[must_use]
    pub fn get(&self, step: Step, machine: Option<&MachineName>) -> Option<&Entry> {
        self.0.iter().find(|e| e.step == step && e.machine.as_ref() == machine)
    }

    /// Notes a time; of several the smallest stays. True if that changed anything.
    pub(super) fn note(
        &mut self,
        step: Step,
        machine: Option<&MachineName>,
        at: OffsetDateTime,
        now: OffsetDateTime,
        late: bool,
    ) -> bool {
        // A reporter's clock may run ahead; a time that has not come yet would stretch every limit computed from it.
        let at = at.min(now);
        match self.0.iter_mut().find(|e| e.step == step && e.machine.as_ref() == machine) {
            Some(entry) if entry.at <= at => false,
            Some(entry) => {
                entry.at = at;
                true
            }
            None => {
                self.0.push(Entry { step, machine: machine.cloned(), at, projected_at: now, late });
                true
            }
        }
    }
}
