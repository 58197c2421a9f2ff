//! The thread that starts children and sees them end.
//!
//! Children get a parent-death signal, and the kernel ties that to the *thread* that started them: so one thread
//! starts all of them and lives exactly as long as the keeper. When the runner is killed, the thread dies with it,
//! and every child gets its signal.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::sync::{mpsc as async_mpsc, oneshot};

use super::ident::Ident;

/// A log that grew past this is set aside when its process starts again.
const LOG_LIMIT: u64 = 16 * 1024 * 1024;
/// How often the thread looks for ended children.
const LOOK: Duration = Duration::from_millis(40);

/// What to start, complete enough to start it again.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) cwd: PathBuf,
    pub(crate) log: PathBuf,
    /// Run as this user (needs root).
    pub(crate) user: Option<String>,
    /// Sent by the kernel when the keeper's thread is gone.
    pub(crate) death_signal: &'static str,
}

/// A child ended.
#[derive(Debug)]
pub(crate) struct Exited {
    pub(crate) name: String,
    pub(crate) ident: Ident,
    pub(crate) status: String,
}

enum Order {
    Start(Box<Launch>, oneshot::Sender<Result<Ident>>),
    Quit,
}

/// Handle to the thread. Dropping it ends the thread, not the children: end them first.
pub(crate) struct Keeper {
    orders: mpsc::Sender<Order>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread; ended children are reported on the receiver.
    pub(crate) fn start() -> Result<(Self, async_mpsc::UnboundedReceiver<Exited>)> {
        let (orders, received) = mpsc::channel();
        let (report, exits) = async_mpsc::unbounded_channel();
        let thread = std::thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(move || keep(&received, &report))
            .context("cannot start a thread")?;
        Ok((Self { orders, thread: Some(thread) }, exits))
    }

    /// Starts a child.
    pub(crate) async fn launch(&self, launch: Launch) -> Result<Ident> {
        let (answer, answered) = oneshot::channel();
        self.orders
            .send(Order::Start(Box::new(launch), answer))
            .map_err(|_| anyhow!("the keeper thread is gone"))?;
        answered.await.context("the keeper thread is gone")?
    }

    /// The same outside a runtime.
    pub(crate) fn launch_blocking(&self, launch: Launch) -> Result<Ident> {
        let (answer, answered) = oneshot::channel();
        self.orders
            .send(Order::Start(Box::new(launch), answer))
            .map_err(|_| anyhow!("the keeper thread is gone"))?;
        answered.blocking_recv().context("the keeper thread is gone")?
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Quit);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn keep(orders: &mpsc::Receiver<Order>, report: &async_mpsc::UnboundedSender<Exited>) {
    let mut children: HashMap<i32, (String, Ident, Child)> = HashMap::new();
    loop {
        match orders.recv_timeout(LOOK) {
            Ok(Order::Start(launch, answer)) => {
                let started = spawn(&launch).map(|(ident, child)| {
                    children.insert(ident.pid, (launch.name.clone(), ident.clone(), child));
                    ident
                });
                let _ = answer.send(started);
            }
            Ok(Order::Quit) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        children.retain(|_, (name, ident, child)| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                let exited = Exited { name: name.clone(), ident: ident.clone(), status: status.to_string() };
                let _ = report.send(exited);
                false
            }
            Err(_) => false,
        });
    }
}

fn spawn(launch: &Launch) -> Result<(Ident, Child)> {
    let log = open_log(&launch.log)?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", launch.death_signal]);
    if let Some(user) = &launch.user {
        command.args(["--reuid", user, "--regid", user, "--init-groups"]);
    }
    command
        .arg("--")
        .arg(&launch.program)
        .args(&launch.args)
        .current_dir(&launch.cwd)
        // A group of its own: Ctrl-C in the terminal reaches the supervisor only, which ends its children in order.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("cannot share a log file")?)
        .stderr(log);
    let child = command.spawn().with_context(|| {
        format!("cannot start {} (is `setpriv` of util-linux there?)", launch.program.display())
    })?;
    let pid = i32::try_from(child.id()).context("a pid out of range")?;
    let ident = Ident::of(pid).with_context(|| format!("{} ended at once", launch.name))?;
    Ok((ident, child))
}

fn open_log(path: &Path) -> Result<File> {
    if fs::metadata(path).is_ok_and(|meta| meta.len() > LOG_LIMIT) {
        let _ = fs::rename(path, path.with_extension("old.log"));
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("cannot write the log {}", path.display()))
}
