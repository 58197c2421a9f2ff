//! What KubeVirt reports, and how to read it.
//!
//! Two traps that these readers name: a machine that is being stopped stays `Running` with a deletionTimestamp, and a fresh
//! VirtualMachine shows no status and then `Stopped` for a moment, which is no end.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::{VirtualMachine, VirtualMachineInstance};

/// Status of a VirtualMachine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineStatus {
    /// KubeVirt's summary, for example `Running` or `ErrorUnschedulable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub printable_status: Option<String>,
    /// A VMI exists; left out when false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub created: bool,
    /// The VMI is Ready; left out when false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ready: bool,
    /// Conditions, the VMI's own among them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Status of a VirtualMachineInstance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceStatus {
    /// The phase's word; read it with [`VirtualMachineInstance::phase`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Why it is in that phase, where KubeVirt says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// When each phase began.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phase_transition_timestamps: Vec<PhaseTransition>,
    /// Network interfaces; an address is there only while it runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<InterfaceStatus>,
    /// Host of the launcher pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
}

/// A condition. Its times may be null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// For example `Ready` or `Synchronized`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word, for machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// When a phase began, in whole seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PhaseTransition {
    /// The phase's word.
    pub phase: String,
    /// Its begin.
    pub phase_transition_timestamp: Option<Time>,
}

/// One interface as KubeVirt sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InterfaceStatus {
    /// Name of the network in the VMI's spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The pod's address. With source `guest-agent` it is what the guest claims: never dial that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
    /// Hardware address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Who reported this: `domain`, `guest-agent`, `multus-status`, comma separated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info_source: Option<String>,
}

/// Phase of a VirtualMachineInstance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No phase yet, the first moment.
    Unset,
    /// Accepted.
    Pending,
    /// The launcher pod is being made.
    Scheduling,
    /// The launcher pod runs on a host.
    Scheduled,
    /// QEMU runs; says nothing about the guest.
    Running,
    /// Ended by itself or in its grace time.
    Succeeded,
    /// Crashed, or killed at the end of its grace time.
    Failed,
    /// A migration target waits.
    WaitingForSync,
    /// `Unknown`, or a word that this build does not know.
    Unknown,
}

impl Phase {
    /// The phase of a status word.
    #[must_use]
    pub fn of(word: Option<&str>) -> Self {
        match word {
            None | Some("") => Self::Unset,
            Some("Pending") => Self::Pending,
            Some("Scheduling") => Self::Scheduling,
            Some("Scheduled") => Self::Scheduled,
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            Some("WaitingForSync") => Self::WaitingForSync,
            Some(_) => Self::Unknown,
        }
    }

    /// KubeVirt's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unset => "",
            Self::Pending => "Pending",
            Self::Scheduling => "Scheduling",
            Self::Scheduled => "Scheduled",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::WaitingForSync => "WaitingForSync",
            Self::Unknown => "Unknown",
        }
    }

    /// The machine has stopped and, as it is, will not run again.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The condition of type `kind` among `conditions`.
#[must_use]
pub fn condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.kind == kind)
}

/// A Kubernetes time in the type that the rest of the house uses.
#[must_use]
pub fn time_of(at: &Time) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp_nanos(at.0.as_nanosecond()).ok()
}

impl Condition {
    /// Whether the status is `True`.
    #[must_use]
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// Whether the status is `False`.
    #[must_use]
    pub fn is_false(&self) -> bool {
        self.status == "False"
    }
}

impl VirtualMachineInstance {
    /// The phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        Phase::of(self.status.as_ref().and_then(|s| s.phase.as_deref()))
    }

    /// When `phase` began, where KubeVirt kept that.
    #[must_use]
    pub fn phase_at(&self, phase: Phase) -> Option<OffsetDateTime> {
        let all = &self.status.as_ref()?.phase_transition_timestamps;
        let found = all.iter().find(|t| t.phase == phase.as_str())?;
        time_of(found.phase_transition_timestamp.as_ref()?)
    }

    /// Whether it is being deleted: then it is ending, whatever its phase says.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// A condition of it.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        condition(&self.status.as_ref()?.conditions, kind)
    }

    /// Whether KubeVirt's readiness probe reaches the guest.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(Condition::is_true)
    }
}

impl VirtualMachine {
    /// KubeVirt's summary word.
    #[must_use]
    pub fn printable_status(&self) -> Option<&str> {
        self.status.as_ref()?.printable_status.as_deref()
    }

    /// Whether it is being deleted.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// A condition of it.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        condition(&self.status.as_ref()?.conditions, kind)
    }
}
