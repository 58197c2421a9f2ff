//! The driver that plays: no guest, but an agent and a console on a loopback address, with chosen times and faults.
//!
//! A machine costs one task, two when its agent is up, and one descriptor: ten thousand of them fit a process.
//! Each is on disk as a small record, so that a restarted process plays on (a machine in the middle of a step
//! begins that step again).

mod agent;
mod guest;
mod http;
mod life;
mod record;
mod rules;
mod shell;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

use self::guest::{Guest, Phase, Report, Settings};
pub use self::http::router;
use self::record::Record;
pub use self::rules::{AgentFault, Behaviour, Death, Exec, Plan, Prepare, Rule, Rules, Times};
use crate::address;
use crate::console::Console;
use crate::driver::Error;
use crate::machine::{Machine, Run, Status};
use crate::spec::Spec;

/// The driver. Clones are the same driver.
#[derive(Clone)]
pub struct Sim(Arc<Inner>);

struct Inner {
    state: PathBuf,
    times: Times,
    rules: Arc<Mutex<Rules>>,
    planned: Mutex<HashMap<String, Behaviour>>,
    machines: Mutex<HashMap<String, Machine>>,
    tracker: TaskTracker,
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("state", &self.0.state).finish_non_exhaustive()
    }
}

/// Where the rules are kept over a restart.
const RULES: &str = "sim-rules.json";

impl Sim {
    /// A driver with its state under `state`; its tasks run on `tracker`.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(state: &Path, times: Times, tracker: TaskTracker) -> Result<Self, Error> {
        let machines = state.join("machines");
        std::fs::create_dir_all(&machines).map_err(|source| Error::State { path: machines, source })?;
        let rules = std::fs::read(state.join(RULES)).ok();
        let rules = rules.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        Ok(Self(Arc::new(Inner {
            state: state.to_path_buf(),
            times,
            rules: Arc::new(Mutex::new(rules)),
            planned: Mutex::default(),
            machines: Mutex::default(),
            tracker,
        })))
    }

    /// The rules now.
    pub fn rules(&self) -> Rules {
        lock(&self.0.rules).clone()
    }

    /// Sets the rules: for machines that start from now on (scripted answers of `/exec`: for all).
    ///
    /// # Errors
    /// They could not be written down; they hold nevertheless, until a restart.
    pub async fn set_rules(&self, rules: Rules) -> Result<(), Error> {
        let path = self.0.state.join(RULES);
        let bytes = serde_json::to_vec(&rules).expect("plain data with string keys is always JSON");
        *lock(&self.0.rules) = rules;
        tokio::fs::write(&path, bytes).await.map_err(|source| Error::State { path, source })
    }

    /// What shall happen to a machine before it starts, by the rules of now. The start will go by the latest plan.
    pub fn plan(&self, uid: &str, labels: &BTreeMap<String, String>) -> Plan {
        let behaviour = lock(&self.0.rules).take(labels);
        let plan = Plan {
            pull: Duration::from_millis(behaviour.pull_ms.unwrap_or(0)),
            unschedulable: behaviour.unschedulable.clone(),
            image_pull_error: behaviour.image_pull_error.clone(),
        };
        lock(&self.0.planned).insert(uid.to_owned(), behaviour);
        plan
    }

    fn behaviour(&self, uid: &str, labels: &BTreeMap<String, String>) -> Behaviour {
        let planned = lock(&self.0.planned).remove(uid);
        planned.unwrap_or_else(|| lock(&self.0.rules).take(labels))
    }

    /// A machine by its identity.
    pub fn get(&self, uid: &str) -> Option<Machine> {
        lock(&self.0.machines).get(uid).cloned()
    }

    /// All machines, ended ones too until they are removed.
    pub fn machines(&self) -> Vec<Machine> {
        lock(&self.0.machines).values().cloned().collect()
    }

    /// Starts a machine.
    pub(crate) async fn start(&self, spec: Spec) -> Result<Machine, Error> {
        if self.get(&spec.uid).is_some() {
            return Err(Error::Exists { uid: spec.uid });
        }
        let behaviour = self.behaviour(&spec.uid, &spec.labels);
        if behaviour.launcher_fails == Some(true) {
            return Err(Error::Told { uid: spec.uid });
        }
        let taken = |address| lock(&self.0.machines).values().any(|machine| machine.address() == address);
        let address =
            address::pick(taken).map_err(|source| Error::Address { uid: spec.uid.clone(), source })?;
        let record = Record {
            settings: Settings::from_user_data(&spec.seed.user_data),
            uid: spec.uid,
            namespace: spec.namespace,
            name: spec.name,
            labels: spec.labels,
            behaviour,
            address,
            life: record::Life::Starting,
            report: Report::at(Phase::Booting),
            resets: 0,
            words: Vec::new(),
        };
        let directory = self.directory(&record.uid);
        let state = |source| Error::State { path: directory.clone(), source };
        tokio::fs::create_dir_all(&directory).await.map_err(state)?;
        record.write(&directory).await?;
        Ok(self.play(record))
    }

    /// Takes up what an earlier process played.
    pub(crate) async fn reattach(&self) -> Result<Vec<Machine>, Error> {
        let records = Record::read_all(&self.0.state.join("machines")).await?;
        Ok(records.into_iter().map(|record| self.play(record)).collect())
    }

    /// Ends a machine and forgets it.
    pub(crate) async fn remove(&self, uid: &str) -> Result<(), Error> {
        lock(&self.0.planned).remove(uid);
        let known = self.get(uid);
        if let Some(machine) = &known {
            machine.kill().await;
        }
        let directory = self.directory(uid);
        let gone = tokio::fs::remove_dir_all(&directory).await;
        lock(&self.0.machines).remove(uid);
        match gone {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::State { path: directory, source })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn directory(&self, uid: &str) -> PathBuf {
        self.0.state.join("machines").join(uid)
    }

    fn play(&self, record: Record) -> Machine {
        let (status, seen) = watch::channel::<Status>(record.status());
        let (console, printer, typed) = Console::new();
        let (ask, control) = mpsc::channel(4);
        let mac = address::mac_of(record.address);
        let machine = Machine::new(record.uid.clone(), record.address, mac, seen, console, ask);
        lock(&self.0.machines).insert(record.uid.clone(), machine.clone());
        let ended = matches!(status.borrow().run, Run::Ended(_));
        if ended {
            // Nothing to play: the handle tells how it ended, and the line is closed with its printer.
            return machine;
        }
        let guest = Guest::new(
            record.name,
            record.labels,
            record.settings,
            record.behaviour,
            record.report,
            Arc::clone(&self.0.rules),
        );
        for word in &record.words {
            guest.remember(word);
        }
        let reserved = life::reserve(record.address);
        if let Err(error) = &reserved {
            tracing::warn!(vm.name = guest.name, %error, "a played machine's address is not free yet");
        }
        let life = life::Life {
            guest: Arc::new(guest),
            times: self.0.times,
            address: record.address,
            reserved: reserved.ok(),
            status,
            printer,
            typed,
            control,
            tracker: self.0.tracker.clone(),
            directory: self.directory(&record.uid),
            identity: (record.uid, record.namespace),
        };
        self.0.tracker.spawn(life.play());
        machine
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code of ours can panic between two halves of a change under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
