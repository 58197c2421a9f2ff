//! Plain words for each end: what happened and what to do next.

use crate::EndReason;

/// What the student reads. The cause is machine-readable and shown beside it, so the words do not repeat it.
#[must_use]
pub fn plain_words(reason: EndReason, cause: Option<&str>) -> &'static str {
    match (reason, cause) {
        (EndReason::User, _) => "You ended this session. Start the lab again whenever you like.",
        (EndReason::Expired, _) => {
            "The time of this session was up. Start the lab again to go on practising."
        }
        (EndReason::Idle, _) => {
            "Nobody worked in this session for a while, so its machine was given back. Start the lab again."
        }
        (EndReason::Admin, _) => "Staff ended this session. Ask them why before you start again.",
        (EndReason::ProvisionFailed, Some("lab_changed")) => {
            "The lab was changed while your machine was being made. Start it again to get the new version."
        }
        (EndReason::ProvisionFailed, Some("not_provisioned")) => {
            "Your machine was not made in time. Try again; if it happens twice, tell your teacher."
        }
        (EndReason::ProvisionFailed, _) => {
            "Your machine could not be made. Try again; if it happens twice, tell your teacher the cause shown here."
        }
        (EndReason::DiskTimeout, _) => {
            "The machine's disk was not there in time. Try again in a few minutes."
        }
        (EndReason::BootTimeout, _) => "The machine did not start in time. Try again.",
        (EndReason::AgentUnreachable, _) => "The machine started but never answered. Try again.",
        (EndReason::PrepareFailed, _) => {
            "Preparing the lab failed inside the machine. Try again; if it happens twice, show your teacher the log."
        }
        (EndReason::PrepareTimeout, _) => "Preparing the lab took too long. Try again.",
        (EndReason::VmStopped, _) => {
            "The machine was switched off from inside. Start the lab again; `reboot` is safe, `poweroff` ends the session."
        }
        (EndReason::VmLost, _) => {
            "The machine was removed from the cluster by somebody else. Start the lab again."
        }
    }
}
