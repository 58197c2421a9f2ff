//! One driver or the other: the cluster does not look which.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::machine::Machine;
use crate::spec::Spec;
use crate::{AddressError, qemu, sim};

/// What makes machines.
#[derive(Debug, Clone)]
pub enum Driver {
    /// Real guests.
    Qemu(qemu::Qemu),
    /// Played guests.
    Sim(sim::Sim),
}

/// Why a machine could not be made, found or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No loopback address.
    #[error("cannot give machine {uid} an address")]
    Address {
        /// Which machine.
        uid: String,
        /// Why.
        #[source]
        source: AddressError,
    },
    /// There is such a machine already.
    #[error("machine {uid} exists already")]
    Exists {
        /// Which machine.
        uid: String,
    },
    /// A rule of the `sim` driver says that it fails.
    #[error("machine {uid} was told to fail")]
    Told {
        /// Which machine.
        uid: String,
    },
    /// The state directory could not be read or written.
    #[error("cannot use {path}")]
    State {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A program that a machine needs could not be run.
    #[error("cannot run {program} for machine {uid}")]
    Run {
        /// Which machine.
        uid: String,
        /// The program.
        program: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A program that a machine needs ran, and failed.
    #[error("{program} failed for machine {uid}: {said}")]
    Failed {
        /// Which machine.
        uid: String,
        /// The program.
        program: &'static str,
        /// The end of what it said.
        said: String,
    },
    /// The emulator does not answer on its control socket.
    #[error("machine {uid} does not answer on its control socket")]
    Control {
        /// Which machine.
        uid: String,
        /// Why.
        #[source]
        source: qemu::QmpError,
    },
}

impl Driver {
    /// Starts a machine and returns as soon as it has an address; follow it by [`Machine::watch`].
    ///
    /// # Errors
    /// It could not even be begun; nothing is left behind then.
    pub async fn start(&self, spec: Spec) -> Result<Machine, Error> {
        match self {
            Self::Qemu(driver) => driver.start(spec).await,
            Self::Sim(driver) => driver.start(spec).await,
        }
    }

    /// A machine by its identity, ended ones too until they are removed.
    pub fn get(&self, uid: &str) -> Option<Machine> {
        match self {
            Self::Qemu(driver) => driver.get(uid),
            Self::Sim(driver) => driver.get(uid),
        }
    }

    /// Takes up every machine that an earlier process of this state directory left; to be called once, first.
    ///
    /// # Errors
    /// The state directory cannot be read.
    pub async fn reattach(&self) -> Result<Vec<Machine>, Error> {
        match self {
            Self::Qemu(driver) => driver.reattach().await,
            Self::Sim(driver) => driver.reattach().await,
        }
    }

    /// Ends a machine if it runs, and removes everything of it. Unknown machines are gone already.
    ///
    /// # Errors
    /// Its state directory cannot be removed.
    pub async fn remove(&self, uid: &str) -> Result<(), Error> {
        match self {
            Self::Qemu(driver) => driver.remove(uid).await,
            Self::Sim(driver) => driver.remove(uid).await,
        }
    }

    /// What shall happen to a machine of these labels before its driver is asked: faults of the `sim` driver's rules.
    pub fn plan(&self, uid: &str, labels: &BTreeMap<String, String>) -> sim::Plan {
        match self {
            Self::Qemu(_) => sim::Plan::default(),
            Self::Sim(driver) => driver.plan(uid, labels),
        }
    }

    /// The word of the command line.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Qemu(_) => "qemu",
            Self::Sim(_) => "sim",
        }
    }
}
