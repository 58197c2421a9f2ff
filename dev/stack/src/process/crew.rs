//! The processes of one stack: started in order, watched, started again when they end by themselves, ended in order.
//!
//! A process that ends is started again after 0.2 s, doubling up to 10 s; one that lived a minute begins anew.
//! Sessions go on meanwhile: every service finds its work again in PostgreSQL, on the bus and in the cluster.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::board::Board;
use super::ident::Ident;
use super::keeper::{Exited, Keeper, Launch};
use super::probe::Probe;
use super::sweep;
use crate::http::Http;
use crate::record::Health;
use crate::ui;

/// A process that ends this often while the stack starts will not come up.
const HOPELESS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// When a process is ended: a higher stage ends before a lower one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Store,
    Bus,
    Cluster,
    Service,
    Door,
}

/// A process and all that is needed to look after it.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) launch: Launch,
    pub(crate) probe: Probe,
    pub(crate) stage: Stage,
    pub(crate) stop: Signal,
    pub(crate) stop_within: Duration,
}

struct Alive {
    member: Member,
    ident: Ident,
    since: Instant,
    /// Ends in a row without a minute of life in between.
    ends: u32,
}

struct Inner {
    board: Arc<Board>,
    state: PathBuf,
    keeper: Keeper,
    members: Mutex<BTreeMap<String, Alive>>,
    stopping: AtomicBool,
    http: Http,
}

/// Dropping it ends every process, the guests too.
pub(crate) struct Crew {
    inner: Arc<Inner>,
    cancel: CancellationToken,
    warden: Option<Child>,
}

impl Crew {
    /// Starts the thread and tasks that look after processes, and the warden that cleans up after a killed runner.
    pub(crate) fn assemble(
        board: Arc<Board>,
        state: &Path,
        program: &Path,
        remove_state: bool,
    ) -> Result<Self> {
        let (keeper, exits) = Keeper::start()?;
        let inner = Arc::new(Inner {
            board,
            state: state.to_path_buf(),
            keeper,
            members: Mutex::default(),
            stopping: AtomicBool::new(false),
            http: Http::new(),
        });
        let cancel = CancellationToken::new();
        let tracker = TaskTracker::new();
        tracker.spawn(nurse(Arc::clone(&inner), exits, cancel.clone(), tracker.clone()));
        tracker.spawn(look_after(Arc::clone(&inner), cancel.clone()));
        let mut warden = Command::new("setsid");
        warden.arg(program).arg("warden").arg("--state-dir").arg(state);
        if remove_state {
            warden.arg("--remove");
        }
        let warden = warden
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { inner, cancel, warden: Some(warden) })
    }

    /// Starts a process; [`Crew::healthy`] tells when it is there.
    pub(crate) async fn start(&self, member: Member) -> Result<()> {
        self.inner.launch(member, 0).await
    }

    /// Waits until all of these are healthy.
    pub(crate) async fn healthy(&self, names: &[&str], within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        let mut look = tokio::time::interval(Duration::from_millis(50));
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut waiting: Vec<&str> = names.to_vec();
        loop {
            look.tick().await;
            let mut still = Vec::new();
            for name in waiting {
                if self.inner.ask(name).await != Health::Healthy {
                    still.push(name);
                }
            }
            waiting = still;
            let Some(first) = waiting.first() else { return Ok(()) };
            let process =
                self.inner.board.process(first).with_context(|| format!("{first} was never started"))?;
            let said = process.detail.unwrap_or_default();
            if process.restarts >= HOPELESS {
                bail!(
                    "{first} does not stay up ({said}). Its log, {}, ends:\n{}",
                    process.log.display(),
                    ui::tail(&process.log, 15)
                );
            }
            if Instant::now() > deadline {
                bail!(
                    "{first} is not healthy after {} s ({said}). Its log, {}, ends:\n{}",
                    within.as_secs(),
                    process.log.display(),
                    ui::tail(&process.log, 15)
                );
            }
        }
    }

    /// The process that has this name now.
    pub(crate) fn ident(&self, name: &str) -> Option<Ident> {
        self.inner.lock().get(name).map(|alive| alive.ident.clone())
    }

    /// Ends everything, in order. Blocks up to the sum of the stages' limits.
    pub(crate) fn stop(&mut self) {
        if self.inner.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        self.cancel.cancel();
        for stage in [Stage::Door, Stage::Service, Stage::Cluster, Stage::Bus, Stage::Store] {
            self.inner.stop_stage(stage);
            if stage == Stage::Cluster {
                // Guests outlive the cluster's process on purpose; here they are to go with it.
                sweep::end_guests(&self.inner.state);
            }
        }
        if let Some(mut warden) = self.warden.take() {
            drop(warden.stdin.take());
            let _ = warden.wait();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Alive>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn launch(&self, member: Member, ends: u32) -> Result<()> {
        member.probe.forget();
        let ident = self.keeper.launch(member.launch.clone()).await?;
        let name = member.launch.name.clone();
        self.board.started(&name, ident.clone(), member.launch.log.clone());
        let orphan = {
            let mut members = self.lock();
            let alive = Alive { member, ident: ident.clone(), since: Instant::now(), ends };
            members.insert(name, alive);
            self.stopping.load(Ordering::SeqCst)
        };
        if orphan {
            // The stop began while this one was being started and may not have seen it.
            ident.signal(Signal::SIGKILL);
        }
        Ok(())
    }

    async fn ask(&self, name: &str) -> Health {
        let Some((probe, ident)) =
            self.lock().get(name).map(|alive| (alive.member.probe.clone(), alive.ident.clone()))
        else {
            return Health::Unhealthy;
        };
        if !ident.is_alive() {
            return Health::Restarting;
        }
        let (health, detail) = match probe.ask(&self.http).await {
            Ok(()) => (Health::Healthy, None),
            Err(why) => {
                let was_healthy =
                    self.board.process(name).is_some_and(|process| process.health != Health::Starting);
                (if was_healthy { Health::Unhealthy } else { Health::Starting }, Some(why))
            }
        };
        self.board.health(name, health, detail);
        health
    }

    fn stop_stage(&self, stage: Stage) {
        let members: Vec<(Ident, Signal, Duration)> = self
            .lock()
            .values()
            .filter(|alive| alive.member.stage == stage)
            .map(|alive| (alive.ident.clone(), alive.member.stop, alive.member.stop_within))
            .collect();
        for (ident, signal, _) in &members {
            ident.signal(*signal);
        }
        for (ident, signal, within) in members {
            ident.end(signal, within);
        }
    }
}

/// Starts again what ended by itself.
async fn nurse(
    inner: Arc<Inner>,
    mut exits: tokio::sync::mpsc::UnboundedReceiver<Exited>,
    cancel: CancellationToken,
    tracker: TaskTracker,
) {
    loop {
        let exited = tokio::select! {
            () = cancel.cancelled() => return,
            exited = exits.recv() => exited,
        };
        let Some(exited) = exited else { return };
        let found = inner.lock().get(&exited.name).filter(|alive| alive.ident == exited.ident).map(|alive| {
            let fresh = alive.since.elapsed() > Duration::from_secs(60);
            (alive.member.clone(), if fresh { 0 } else { alive.ends })
        });
        let Some((member, ends)) = found else { continue };
        inner.board.ended(&exited.name, &exited.status);
        let pause = FIRST_PAUSE.saturating_mul(1 << ends.min(6)).min(LONGEST_PAUSE);
        note_end(&member.launch.log, &exited, pause);
        let (inner, cancel) = (Arc::clone(&inner), cancel.clone());
        tracker.spawn(async move {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            if let Err(error) = inner.launch(member, ends + 1).await {
                ui::warn(format_args!("[stack] {} cannot be started again: {error:#}", exited.name));
            }
        });
    }
}

fn note_end(log: &Path, exited: &Exited, pause: Duration) {
    let line = format!("[stack] {} ended ({}); started again in {pause:?}", exited.name, exited.status);
    if let Ok(mut file) = std::fs::OpenOptions::new().append(true).open(log) {
        let _ = writeln!(file, "{line}");
    }
    ui::warn(line);
}

/// Asks everybody every two seconds.
async fn look_after(inner: Arc<Inner>, cancel: CancellationToken) {
    let mut look = tokio::time::interval(Duration::from_secs(2));
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = look.tick() => {}
        }
        let names: Vec<String> = inner.lock().keys().cloned().collect();
        for name in names {
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = inner.ask(&name) => {}
            }
        }
    }
}
