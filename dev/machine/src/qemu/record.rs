//! What of a real machine is on disk beside its disks: enough to take it up again.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::driver::Error;
use crate::machine::End;

/// The file.
const FILE: &str = "machine.json";

/// One machine on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) address: Ipv4Addr,
    /// The emulator was started: what comes before that is begun anew.
    pub(super) started: bool,
    pub(super) resets: u32,
    pub(super) end: Option<Ended>,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ended {
    Shutdown,
    Crashed,
    Panicked,
    Killed,
}

impl From<End> for Ended {
    fn from(end: End) -> Self {
        match end {
            End::Shutdown => Self::Shutdown,
            End::Crashed => Self::Crashed,
            End::Panicked => Self::Panicked,
            End::Killed => Self::Killed,
        }
    }
}

impl From<Ended> for End {
    fn from(end: Ended) -> Self {
        match end {
            Ended::Shutdown => Self::Shutdown,
            Ended::Crashed => Self::Crashed,
            Ended::Panicked => Self::Panicked,
            Ended::Killed => Self::Killed,
        }
    }
}

impl Record {
    /// Writes it whole or not at all.
    pub(super) async fn write(&self, directory: &Path) -> Result<(), Error> {
        let state = |source| Error::State { path: directory.join(FILE), source };
        let bytes = serde_json::to_vec(self).expect("plain data with string keys is always JSON");
        let fresh = directory.join("machine.json.new");
        tokio::fs::write(&fresh, bytes).await.map_err(state)?;
        tokio::fs::rename(&fresh, directory.join(FILE)).await.map_err(state)
    }

    /// All machines under a directory; one without a readable record was never whole and comes as its directory's name.
    pub(super) async fn read_all(machines: &Path) -> Result<Vec<(PathBuf, Option<Self>)>, Error> {
        let state = |source| Error::State { path: machines.to_path_buf(), source };
        let mut entries = tokio::fs::read_dir(machines).await.map_err(state)?;
        let mut all = Vec::new();
        while let Some(entry) = entries.next_entry().await.map_err(state)? {
            let bytes = tokio::fs::read(entry.path().join(FILE)).await;
            let record = bytes.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
            all.push((entry.path(), record));
        }
        Ok(all)
    }
}
