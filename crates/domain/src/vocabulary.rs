//! The closed word lists of the design, each with the one spelling that the database, the HTTP API and logs use.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A word that its list does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {list}: {word:?}")]
pub struct UnknownWord {
    list: &'static str,
    word: String,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $list:literal { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every word of the list, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(s: &str) -> Result<Self, UnknownWord> {
                match s {
                    $($word => Ok(Self::$variant),)+
                    other => Err(UnknownWord { list: $list, word: other.chars().take(80).collect() }),
                }
            }
        }
    };
}

words!(
    /// State of a session; up to `Ready` also of a machine. The order is the rank: a state never goes back.
    ///
    /// ```text
    /// queued -> requested -> provisioning -> booting -> preparing -> ready -> ending -> ended
    ///    |          \____________\______________\___________\_______________^
    ///    \------------------------------------------------------------------------> ended
    /// ```
    State, "state" {
        /// In the waiting line: takes no place, has no deadline.
        Queued = "queued",
        /// The provisioner was asked.
        Requested = "requested",
        /// Its objects are being created.
        Provisioning = "provisioning",
        /// The VMI has a host (Scheduled).
        Booting = "booting",
        /// The agent answers; the prepare script runs.
        Preparing = "preparing",
        /// The student works.
        Ready = "ready",
        /// Being deleted.
        Ending = "ending",
        /// A look has shown every object gone. Terminal.
        Ended = "ended",
    }
);

impl State {
    /// `queued` to `ready`: a user has at most one of these.
    #[must_use]
    pub const fn is_live(self) -> bool {
        !matches!(self, Self::Ending | Self::Ended)
    }
}

words!(
    /// Why a session ends.
    EndReason, "end reason" {
        /// The student pressed End.
        User = "user",
        /// Its life is over.
        Expired = "expired",
        /// Nobody typed for the idle time.
        Idle = "idle",
        /// Staff ended it.
        Admin = "admin",
        /// Its machine could not be made.
        ProvisionFailed = "provision_failed",
        /// The disk was not there in time.
        DiskTimeout = "disk_timeout",
        /// The machine did not run in time.
        BootTimeout = "boot_timeout",
        /// The machine runs, its agent never answered.
        AgentUnreachable = "agent_unreachable",
        /// The prepare script failed.
        PrepareFailed = "prepare_failed",
        /// The prepare script did not end in time.
        PrepareTimeout = "prepare_timeout",
        /// The machine stopped by itself.
        VmStopped = "vm_stopped",
        /// The machine was deleted or replaced by somebody else.
        VmLost = "vm_lost",
    }
);

words!(
    /// A deadline of a session.
    Deadline, "deadline" {
        /// The start took too long.
        Start = "start",
        /// The life ends.
        Expiry = "expiry",
        /// Nobody works.
        Idle = "idle",
    }
);

words!(
    /// What a check said.
    CheckOutcome, "check outcome" {
        /// The grader exited 0.
        Passed = "passed",
        /// The grader exited otherwise.
        Failed = "failed",
        /// There is no verdict: agent unreachable, timed out, busy.
        Error = "error",
    }
);

words!(
    /// What a machine's root disk is.
    DiskKind, "disk kind" {
        /// Copy-on-write layer over the operator's golden PVC.
        Golden = "golden",
        /// Container disk.
        Container = "container",
        /// A DataVolume per VM.
        DataVolume = "datavolume",
    }
);

words!(
    /// What runs a lab's machines.
    Runtime, "runtime" {
        /// KubeVirt virtual machines.
        Vm = "vm",
        /// Reserved.
        Pod = "pod",
    }
);

words!(
    /// What is to become of an object with our labels.
    Verdict, "verdict" {
        /// Its session lives.
        Wanted = "wanted",
        /// Its session is ending: delete it.
        Ending = "ending",
        /// No session owns it: a ghost.
        Unwanted = "unwanted",
        /// Too many ghosts at once: an operator must confirm.
        Hold = "hold",
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back() {
        for w in State::ALL {
            assert_eq!(w.as_str().parse::<State>().as_ref(), Ok(w));
            assert_eq!(serde_json::to_string(w).unwrap(), format!("{:?}", w.as_str()));
        }
        for w in EndReason::ALL {
            assert_eq!(w.as_str().parse::<EndReason>().as_ref(), Ok(w));
        }
    }

    #[test]
    fn live_states_are_those_before_ending() {
        let live: Vec<_> = State::ALL.iter().filter(|s| s.is_live()).map(|s| s.as_str()).collect();
        assert_eq!(live, ["queued", "requested", "provisioning", "booting", "preparing", "ready"]);
    }
}
