//! Which conditions of a VMI rule its start out, and which pass.
//!
//! KubeVirt itself gives up on nothing: it shows a condition and retries for ever. What another machine's end, a kubelet
//! restart or a slow registry can cure is passing, and only the phase's limit ends it, with that condition as cause. What
//! nobody cures while a student waits is final; where it may be a hiccup it must have stood for a while.

use std::time::Duration;

use lab_domain::DiskKind;
use lab_kubevirt::{
    Condition,
    status::{condition, time_of},
};
use time::OffsetDateTime;

/// No host: a full cluster frees places, but not while a student looks on.
const NO_HOST: Duration = Duration::from_secs(60);
/// A registry that hiccups is asked again by the kubelet within this time.
const NO_IMAGE: Duration = Duration::from_secs(60);
/// Anything else that virt-controller says when it cannot make the pod.
const NO_POD: Duration = Duration::from_secs(45);
/// A message is for people, and short.
const MAX_MESSAGE: usize = 300;

/// What the conditions say about a start.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Nothing is wrong.
    None,
    /// It may go on by itself.
    Passing {
        /// The condition's word.
        cause: String,
    },
    /// It will not go on.
    Final {
        /// The condition's word.
        cause: String,
        /// Plain words.
        message: String,
        /// From when on it counts as final.
        since: OffsetDateTime,
    },
}

/// Judges the conditions of a VMI that does not run yet.
#[must_use]
pub fn fault(conditions: &[Condition], disk: Option<DiskKind>, created_at: Option<OffsetDateTime>) -> Fault {
    let standing =
        ["Synchronized", "PodScheduled"].into_iter().filter_map(|kind| condition(conditions, kind));
    for found in standing.filter(|c| c.is_false()) {
        let reason = found.reason.as_deref().unwrap_or_default();
        let text = found.message.as_deref().unwrap_or_default();
        // Times may be null.
        let at = found.last_transition_time.as_ref().and_then(time_of).or(created_at);
        match judge(&found.kind, reason, text, disk) {
            Judgement::Fine => {}
            Judgement::Passing(cause) => return Fault::Passing { cause: cause.to_owned() },
            Judgement::Final(cause, words, after) => {
                // Without any time it cannot be told how long it has stood: the limit decides.
                let Some(at) = at else { return Fault::Passing { cause: cause.to_owned() } };
                let message = format!("{words} {}", clip(text)).trim_end().to_owned();
                return Fault::Final { cause: cause.to_owned(), message, since: at + after };
            }
        }
    }
    Fault::None
}

enum Judgement<'a> {
    Fine,
    Passing(&'a str),
    Final(&'a str, &'static str, Duration),
}

fn judge<'a>(kind: &str, reason: &'a str, text: &str, disk: Option<DiskKind>) -> Judgement<'a> {
    let says = |part: &str| text.contains(part);
    match (kind, reason) {
        ("Synchronized", "FailedCreate") if says("exceeded quota") => Judgement::Passing("exceeded_quota"),
        // Such a VMI never recovers by itself (measured): nothing looks for its PVC again.
        ("Synchronized", "FailedCreate") if says("didn't find PVC") => Judgement::Final(
            "FailedPvcNotFound",
            "The golden disk vanished while the machine was being made.",
            Duration::ZERO,
        ),
        ("Synchronized", "FailedPvcNotFound") if disk == Some(DiskKind::Golden) => Judgement::Final(
            "FailedPvcNotFound",
            "The golden disk vanished while the machine was being made.",
            Duration::ZERO,
        ),
        ("Synchronized", "FailedCreate") if says("PodSecurity") || says("privileged namespace") => {
            Judgement::Final("PodSecurity", "The cluster does not allow machines here.", Duration::ZERO)
        }
        ("Synchronized", "FailedCreate") if says("couldn't find configuration for network binding") => {
            Judgement::Final("NetworkBinding", "The cluster has no such network.", Duration::ZERO)
        }
        ("Synchronized", "FailedCreate") => {
            Judgement::Final("FailedCreate", "The cluster cannot make the machine's pod.", NO_POD)
        }
        ("Synchronized", "ErrImagePull" | "ImagePullBackOff") => {
            Judgement::Final("ErrImagePull", "The machine's image cannot be fetched.", NO_IMAGE)
        }
        // A disk that is still being made binds later.
        ("PodScheduled", "Unschedulable")
            if says("PersistentVolumeClaim") || says("persistentvolumeclaim") =>
        {
            Judgement::Passing("Unschedulable")
        }
        ("PodScheduled", "Unschedulable") => {
            Judgement::Final("Unschedulable", "No host has room for the machine.", NO_HOST)
        }
        // Not yet looked at by the scheduler, and whatever else a newer KubeVirt says: the limit decides.
        ("PodScheduled", _) | (_, "") => Judgement::Fine,
        (_, reason) => Judgement::Passing(reason),
    }
}

fn clip(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_MESSAGE).collect()
}
