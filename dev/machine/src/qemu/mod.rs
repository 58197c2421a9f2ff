//! The driver that runs real guests with QEMU.
//!
//! Each machine is a directory under the state: its layer over the image, its seed, its sockets, its record. The
//! emulator is a daemon of its own session, so that it outlives this process; the next one finds it by its control
//! socket. A machine's process is ended before its directory goes: nothing is left of a removed machine.

mod command;
mod life;
mod process;
mod qmp;
mod record;
mod socket;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::command::Accelerator;
use self::life::Life;
pub use self::qmp::Error as QmpError;
use self::qmp::Qmp;
use self::record::Record;
use crate::address;
use crate::console::Console;
use crate::driver::Error;
use crate::machine::{End, Machine, Run, Status};
use crate::spec::{RootDisk, Seed, Spec};

/// The emulator.
const QEMU: &str = "qemu-system-x86_64";
/// Starts that are tried where an address was taken under our hands.
const TRIES: u32 = 5;
/// What QEMU says then.
const TAKEN: &str = "Could not set up host forwarding rule";
/// How long an emulator that said it runs may take until its control socket answers.
const SETTLE: Duration = Duration::from_secs(10);

/// The driver. Clones are the same driver.
#[derive(Debug, Clone)]
pub struct Qemu(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    machines_dir: PathBuf,
    accelerator: Accelerator,
    machines: Mutex<HashMap<String, Machine>>,
    tracker: TaskTracker,
}

impl Qemu {
    /// A driver with its state under `state`; its tasks run on `tracker`.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(state: &Path, tracker: TaskTracker) -> Result<Self, Error> {
        let failed = |source| Error::State { path: state.to_path_buf(), source };
        // Absolute, because QEMU works in a directory of its own; as it was named, because others look for that name.
        let machines_dir = std::path::absolute(state).map_err(failed)?.join("machines");
        std::fs::create_dir_all(&machines_dir).map_err(failed)?;
        // Seeds hold tokens, and whoever reaches the sockets holds the machines.
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&machines_dir, std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
        let accelerator = Accelerator::of_this_host();
        tracing::info!(?accelerator, "guests are run by QEMU");
        Ok(Self(Arc::new(Inner { machines_dir, accelerator, machines: Mutex::default(), tracker })))
    }

    fn machines(&self) -> MutexGuard<'_, HashMap<String, Machine>> {
        // No code of ours can panic between two halves of a change under this lock.
        self.0.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn directory(&self, uid: &str) -> PathBuf {
        self.0.machines_dir.join(uid)
    }

    /// A machine by its identity.
    pub(crate) fn get(&self, uid: &str) -> Option<Machine> {
        self.machines().get(uid).cloned()
    }

    /// Starts a machine. Where it fails nothing of it is left.
    pub(crate) async fn start(&self, spec: Spec) -> Result<Machine, Error> {
        if self.get(&spec.uid).is_some() {
            return Err(Error::Exists { uid: spec.uid });
        }
        let directory = self.directory(&spec.uid);
        let started = self.try_start(&spec, &directory).await;
        if started.is_err() {
            // Whatever was begun: the error that is told is the first one.
            let _shot = process::shoot(&directory, &spec.uid).await;
            let _removed = tokio::fs::remove_dir_all(&directory).await.is_ok();
        }
        started
    }

    async fn try_start(&self, spec: &Spec, directory: &Path) -> Result<Machine, Error> {
        let state = |source| Error::State { path: directory.to_path_buf(), source };
        tokio::fs::create_dir_all(directory).await.map_err(state)?;
        let mut record = Record {
            uid: spec.uid.clone(),
            namespace: spec.namespace.clone(),
            name: spec.name.clone(),
            address: std::net::Ipv4Addr::LOCALHOST,
            started: false,
            resets: 0,
            end: None,
        };
        record.write(directory).await?;
        if let RootDisk::Overlay { base, format, .. } = &spec.root {
            process::run(&spec.uid, directory, "qemu-img", &command::overlay(base, *format)).await?;
        }
        for (index, disk) in spec.empty_disks.iter().enumerate() {
            let file =
                tokio::fs::File::create(directory.join(command::empty_disk(index))).await.map_err(state)?;
            file.set_len(disk.bytes).await.map_err(state)?;
        }
        seed(&spec.uid, directory, &spec.seed).await?;
        self.spawn(spec, directory, &mut record).await?;
        record.started = true;
        record.write(directory).await?;
        let qmp = settle(directory, &spec.uid).await?;
        Ok(self.take_up(record, directory, qmp))
    }

    /// Starts the emulator on an address that nobody else has.
    async fn spawn(&self, spec: &Spec, directory: &Path, record: &mut Record) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let taken = |address| self.machines().values().any(|machine| machine.address() == address);
            let address =
                address::pick(taken).map_err(|source| Error::Address { uid: spec.uid.clone(), source })?;
            record.address = address;
            record.write(directory).await?;
            let mac = address::mac_of(address);
            let arguments = command::arguments(spec, directory, address, &mac, self.0.accelerator);
            match process::run(&spec.uid, directory, QEMU, &arguments).await {
                Err(Error::Failed { said, .. }) if said.contains(TAKEN) && tries < TRIES => {}
                result => return result,
            }
        }
    }

    /// Makes the handle of a running machine and begins to watch it.
    fn take_up(&self, record: Record, directory: &Path, qmp: Qmp) -> Machine {
        let (status, seen) = watch::channel(Status { run: Run::Running, resets: record.resets });
        let (console, printer, typed) = Console::new();
        let (ask, control) = mpsc::channel(4);
        let mac = address::mac_of(record.address);
        let uid = record.uid.clone();
        let machine = Machine::new(uid.clone(), record.address, mac, seen, console, ask);
        self.machines().insert(uid, machine.clone());
        let let_go = CancellationToken::new();
        self.0.tracker.spawn(life::serial(directory.to_path_buf(), printer, typed, let_go.clone()));
        let life = Life { record, directory: directory.to_path_buf(), qmp, status, control, let_go };
        self.0.tracker.spawn(life.watch());
        machine
    }

    /// The handle of a machine that has ended.
    fn ended(&self, record: &Record, end: End) -> Machine {
        let (_, seen) = watch::channel(Status { run: Run::Ended(end), resets: record.resets });
        let (console, printer, _) = Console::new();
        // Dropping the guest's end closes the line.
        drop(printer);
        let (ask, _) = mpsc::channel(1);
        let mac = address::mac_of(record.address);
        let machine = Machine::new(record.uid.clone(), record.address, mac, seen, console, ask);
        self.machines().insert(record.uid.clone(), machine.clone());
        machine
    }

    /// Takes up what an earlier process left.
    pub(crate) async fn reattach(&self) -> Result<Vec<Machine>, Error> {
        let mut found = Vec::new();
        for (directory, record) in Record::read_all(&self.0.machines_dir).await? {
            let uid =
                directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            match record {
                Some(record) => {
                    if let Some(machine) = self.find_again(record, &directory).await {
                        found.push(machine);
                    }
                }
                None => discard(&directory, &uid).await,
            }
        }
        Ok(found)
    }

    async fn find_again(&self, mut record: Record, directory: &Path) -> Option<Machine> {
        if let Some(end) = record.end {
            // Its emulator was told to end before the note was made, or right after: look once more.
            process::shoot(directory, &record.uid).await;
            return Some(self.ended(&record, end.into()));
        }
        if process::find(directory, &record.uid).is_none() {
            if !record.started {
                // It never ran: the next start begins it anew.
                discard(directory, &record.uid).await;
                return None;
            }
            return Some(self.ended(&record, End::Crashed));
        }
        let status = async {
            let mut qmp = Qmp::connect(directory, command::CONTROL).await?;
            let status = qmp.execute("query-status").await?;
            Ok::<_, QmpError>((qmp, status))
        };
        match status.await {
            Ok((qmp, status)) => {
                record.started = true;
                let is =
                    status.get("status").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
                match is.as_str() {
                    "shutdown" => {
                        process::shoot(directory, &record.uid).await;
                        Some(self.ended(&record, End::Shutdown))
                    }
                    "guest-panicked" => {
                        process::shoot(directory, &record.uid).await;
                        Some(self.ended(&record, End::Panicked))
                    }
                    _ => Some(self.take_up(record, directory, qmp)),
                }
            }
            Err(error) => {
                tracing::warn!(vm.name = record.name, %error, "a machine of an earlier run does not answer; it is ended");
                process::shoot(directory, &record.uid).await;
                Some(self.ended(&record, End::Crashed))
            }
        }
    }

    /// Ends a machine and removes all of it.
    pub(crate) async fn remove(&self, uid: &str) -> Result<(), Error> {
        let known = self.get(uid);
        if let Some(machine) = known {
            machine.kill().await;
        }
        let directory = self.directory(uid);
        process::shoot(&directory, uid).await;
        let gone = tokio::fs::remove_dir_all(&directory).await;
        self.machines().remove(uid);
        match gone {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::State { path: directory, source })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Ends the emulators of a state directory that no process looks after, and says how many there were: what is left
    /// to do when a cluster is taken down for good. The disks and records stay.
    ///
    /// # Errors
    /// The state directory cannot be read.
    pub async fn end_all(state: &Path) -> Result<usize, Error> {
        let machines = state.join("machines");
        if !machines.is_dir() {
            return Ok(0);
        }
        let mut ended = 0;
        for (directory, _) in Record::read_all(&machines).await? {
            let uid =
                directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if process::find(&directory, &uid).is_some() {
                ended += 1;
                process::shoot(&directory, &uid).await;
            }
        }
        Ok(ended)
    }
}

/// Removes what never became a machine.
async fn discard(directory: &Path, uid: &str) {
    process::shoot(directory, uid).await;
    if let Err(error) = tokio::fs::remove_dir_all(directory).await {
        tracing::warn!(directory = %directory.display(), %error, "the remains of a start cannot be removed");
    }
}

/// Waits for the control socket of an emulator that was just started.
async fn settle(directory: &Path, uid: &str) -> Result<Qmp, Error> {
    let until = tokio::time::Instant::now() + SETTLE;
    loop {
        match Qmp::connect(directory, command::CONTROL).await {
            Ok(qmp) => return Ok(qmp),
            Err(_) if tokio::time::Instant::now() < until && process::find(directory, uid).is_some() => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(source) => return Err(Error::Control { uid: uid.to_owned(), source }),
        }
    }
}

/// Makes the NoCloud seed.
async fn seed(uid: &str, directory: &Path, seed: &Seed) -> Result<(), Error> {
    let files = directory.join("seed");
    let state = |source| Error::State { path: files.clone(), source };
    tokio::fs::create_dir_all(&files).await.map_err(state)?;
    tokio::fs::write(files.join("meta-data"), &seed.meta_data).await.map_err(state)?;
    tokio::fs::write(files.join("user-data"), &seed.user_data).await.map_err(state)?;
    if let Some(network) = &seed.network_data {
        tokio::fs::write(files.join("network-config"), network).await.map_err(state)?;
    }
    let arguments: Vec<OsString> = [
        "-quiet",
        "-volid",
        "cidata",
        "-joliet",
        "-rock",
        "-input-charset",
        "utf-8",
        "-output",
        command::SEED,
        "seed",
    ]
    .into_iter()
    .map(OsString::from)
    .collect();
    process::run(uid, directory, "xorrisofs", &arguments).await?;
    // It is in the image now; the token need not lie about twice.
    tokio::fs::remove_dir_all(&files).await.map_err(state)
}
