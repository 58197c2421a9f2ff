//! What a running stack tells about itself: `state.json` in its state directory.
//!
//! The supervisor alone writes it, whole or not at all; `up`, `down`, `status` and `logs` read it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::paths::write_atomically;
use crate::process::ident::Ident;

/// Where the stack is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    Starting,
    Up,
    Stopping,
    Failed,
}

/// How a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Health {
    Starting,
    Healthy,
    Unhealthy,
    /// It ended and is started again after a pause.
    Restarting,
}

impl Health {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
            Self::Restarting => "restarting",
        }
    }
}

/// One process of the stack.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ProcessRecord {
    pub(crate) name: String,
    pub(crate) ident: Ident,
    pub(crate) health: Health,
    /// What the health check said, where it said something.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) detail: Option<String>,
    pub(crate) restarts: u32,
    pub(crate) log: PathBuf,
}

/// Where everything is reached.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Addresses {
    pub(crate) web: String,
    pub(crate) nats: String,
    pub(crate) database: String,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) kubernetes: String,
    pub(crate) namespace: String,
    pub(crate) environment: String,
    pub(crate) driver: String,
}

/// The whole file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) phase: Phase,
    /// What is being done while starting or stopping.
    pub(crate) step: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) error: Option<String>,
    /// Things that work, but less well than they could.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    pub(crate) supervisor: Ident,
    pub(crate) addresses: Addresses,
    pub(crate) processes: Vec<ProcessRecord>,
}

impl Record {
    /// The record in a file; none if there is no file or it is no record of this version.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).context("a record that JSON cannot hold")?;
        write_atomically(path, &text, 0o600)
    }

    /// True if its supervisor runs.
    pub(crate) fn is_current(&self) -> bool {
        self.supervisor.is_alive()
    }
}
