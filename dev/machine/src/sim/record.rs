//! What of a played machine is on disk, so that a restarted process plays on where it was.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::guest::{Report, Settings};
use super::rules::Behaviour;
use crate::driver::Error;
use crate::machine::{End, Run, Status};

/// One machine on disk. It holds the agent's token: readable by us alone, as the whole state directory is.
#[derive(Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) settings: Settings,
    pub(super) behaviour: Behaviour,
    pub(super) address: Ipv4Addr,
    pub(super) life: Life,
    pub(super) report: Report,
    pub(super) resets: u32,
    pub(super) words: Vec<String>,
}

/// How far its life is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Life {
    Starting,
    Running,
    Shutdown,
    Crashed,
    Panicked,
    Killed,
}

impl Life {
    pub(super) fn of(run: Run) -> Self {
        match run {
            Run::Starting => Self::Starting,
            Run::Running => Self::Running,
            Run::Ended(End::Shutdown) => Self::Shutdown,
            Run::Ended(End::Crashed) => Self::Crashed,
            Run::Ended(End::Panicked) => Self::Panicked,
            Run::Ended(End::Killed) => Self::Killed,
        }
    }

    fn run(self) -> Run {
        match self {
            Self::Starting => Run::Starting,
            Self::Running => Run::Running,
            Self::Shutdown => Run::Ended(End::Shutdown),
            Self::Crashed => Run::Ended(End::Crashed),
            Self::Panicked => Run::Ended(End::Panicked),
            Self::Killed => Run::Ended(End::Killed),
        }
    }
}

const FILE: &str = "sim.json";

impl Record {
    pub(super) fn status(&self) -> Status {
        Status { run: self.life.run(), resets: self.resets }
    }

    /// Writes it whole or not at all.
    pub(super) async fn write(&self, directory: &Path) -> Result<(), Error> {
        let state = |source| Error::State { path: directory.join(FILE), source };
        let bytes = serde_json::to_vec(self).expect("plain data with string keys is always JSON");
        let fresh = directory.join("sim.json.new");
        tokio::fs::write(&fresh, bytes).await.map_err(state)?;
        tokio::fs::rename(&fresh, directory.join(FILE)).await.map_err(state)
    }

    /// Every record under a directory of machines. One that cannot be read was never whole: it is left out, and named.
    pub(super) async fn read_all(machines: &Path) -> Result<Vec<Self>, Error> {
        let state = |source| Error::State { path: machines.to_path_buf(), source };
        let mut entries = tokio::fs::read_dir(machines).await.map_err(state)?;
        let mut records = Vec::new();
        while let Some(entry) = entries.next_entry().await.map_err(state)? {
            let file: PathBuf = entry.path().join(FILE);
            let Ok(bytes) = tokio::fs::read(&file).await else { continue };
            match serde_json::from_slice(&bytes) {
                Ok(record) => records.push(record),
                Err(error) => {
                    tracing::warn!(file = %file.display(), %error, "a played machine's record is unreadable");
                }
            }
        }
        Ok(records)
    }
}
