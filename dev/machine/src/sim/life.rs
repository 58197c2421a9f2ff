//! The life of one played machine: one task, one clock, no guest.
//!
//! ```text
//! Boot ─▶ Agent ─▶ CloudInit ─▶ Prepare ─▶ Idle      (a reboot goes back to Agent, by way of Boot's time)
//! ```
//!
//! The task ends when the machine has ended; what it knew by then is in the machine's record.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpSocket;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::agent;
use super::guest::{Cause, Guest, Phase, Report};
use super::record::{Life as Lived, Record};
use super::rules::{AgentFault, Death, Prepare, Times};
use super::shell::{Shell, Wish};
use crate::address::AGENT_PORT;
use crate::console::Printer;
use crate::machine::{Control, End, Run, Status};

/// Connections that wait for the agent to take them.
const BACKLOG: u32 = 64;
/// How soon a listener is tried again.
const AGAIN: Duration = Duration::from_millis(20);
/// How long after new words the record is written.
const WRITE_AFTER: Duration = Duration::from_millis(200);
/// "Never", as a time that can be waited for.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// What happens next by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Boot,
    Agent,
    CloudInit,
    Prepare,
    Idle,
}

/// Everything that the task owns.
pub(super) struct Life {
    pub(super) guest: Arc<Guest>,
    pub(super) times: Times,
    pub(super) address: Ipv4Addr,
    /// Bound and not listening: connections are refused, and nobody else can have the address.
    pub(super) reserved: Option<TcpSocket>,
    pub(super) status: watch::Sender<Status>,
    pub(super) printer: Printer,
    pub(super) typed: mpsc::Receiver<Bytes>,
    pub(super) control: mpsc::Receiver<Control>,
    pub(super) tracker: TaskTracker,
    pub(super) directory: PathBuf,
    pub(super) identity: (String, String),
}

/// What is due when.
struct Due {
    step: (Step, Instant),
    death: Option<Instant>,
    agent_stops: Option<Instant>,
    button: Option<Instant>,
    grace: Option<Instant>,
    write: Option<Instant>,
}

impl Due {
    fn earliest(&self) -> Instant {
        [self.death, self.agent_stops, self.button, self.grace, self.write]
            .into_iter()
            .flatten()
            .fold(self.step.1, Instant::min)
    }
}

fn is_due(at: &mut Option<Instant>, now: Instant) -> bool {
    let due = at.is_some_and(|at| at <= now);
    if due {
        *at = None;
    }
    due
}

impl Life {
    /// Plays until the end.
    pub(super) async fn play(mut self) {
        let mut shell = Shell::default();
        let mut up = CancellationToken::new();
        let mut due = self.first();
        let end = loop {
            let next = shell.next();
            let sent = next.as_ref().map_or(0, Bytes::len);
            let wish = tokio::select! {
                () = tokio::time::sleep_until(due.earliest()) => {
                    match self.tick(&mut due, &mut shell, &mut up).await {
                        Some(end) => break end,
                        None => None,
                    }
                }
                asked = self.control.recv() => match asked {
                    Some(Control::Kill) => break End::Killed,
                    Some(Control::PowerDown { grace }) => {
                        self.press(&mut due, grace);
                        None
                    }
                    // Every handle and the driver are gone: the process ends, the machine does not.
                    None => {
                        up.cancel();
                        return;
                    }
                },
                typed = self.typed.recv(), if shell.listens() => {
                    let before = due.write;
                    due.write = before.or(Some(Instant::now() + WRITE_AFTER));
                    typed.and_then(|bytes| shell.typed(&bytes, &self.guest))
                }
                () = self.printer.print(next.unwrap_or_default()), if sent > 0 => shell.shown(sent, &self.guest),
            };
            match wish {
                Some(Wish::Poweroff) => break End::Shutdown,
                Some(Wish::Crash) => break End::Crashed,
                Some(Wish::Panic) => break End::Panicked,
                Some(Wish::Reboot) => self.reboot(&mut due, &mut shell, &mut up),
                None => {}
            }
        };
        up.cancel();
        if let Some(last) = shell.next() {
            // Last words for a client that reads; one that does not must not keep a dead machine.
            let _unread = tokio::time::timeout(AGAIN, self.printer.print(last)).await.is_err();
        }
        // The record first: whoever sees the end may remove the directory.
        self.write_as(Run::Ended(end)).await;
        self.status.send_modify(|status| status.run = Run::Ended(end));
    }

    /// Where a machine begins, or begins again in a new process.
    fn first(&self) -> Due {
        let now = Instant::now();
        let behaviour = &self.guest.behaviour;
        let step = match self.status.borrow().run {
            Run::Running => (Step::Agent, now),
            Run::Starting | Run::Ended(_) if behaviour.never_boots == Some(true) => (Step::Boot, now + NEVER),
            Run::Starting | Run::Ended(_) => (Step::Boot, now + behaviour.boot(self.times)),
        };
        Due { step, death: None, agent_stops: None, button: None, grace: None, write: None }
    }

    /// The power button, and the grace that follows.
    fn press(&self, due: &mut Due, grace: Duration) {
        let now = Instant::now();
        let deaf = self.guest.behaviour.ignores_power_button == Some(true);
        if !deaf && due.button.is_none() {
            due.button = Some(now + Duration::from_millis(self.guest.behaviour.shutdown_ms.unwrap_or(50)));
        }
        due.grace = Some(due.grace.map_or(now + grace, |before| before.min(now + grace)));
    }

    async fn tick(&mut self, due: &mut Due, shell: &mut Shell, up: &mut CancellationToken) -> Option<End> {
        let now = Instant::now();
        if is_due(&mut due.button, now) {
            return Some(End::Shutdown);
        }
        if is_due(&mut due.grace, now) {
            return Some(End::Killed);
        }
        if is_due(&mut due.death, now) {
            return Some(match self.guest.behaviour.dies_as {
                Some(Death::Poweroff) => End::Shutdown,
                Some(Death::Panic) => End::Panicked,
                Some(Death::Crash) | None => End::Crashed,
            });
        }
        if is_due(&mut due.agent_stops, now) {
            up.cancel();
        }
        if is_due(&mut due.write, now) {
            self.write().await;
        }
        if due.step.1 > now {
            return None;
        }
        match due.step.0 {
            Step::Boot => {
                if self.guest.behaviour.fails_to_boot == Some(true) {
                    return Some(End::Crashed);
                }
                self.status.send_modify(|status| status.run = Run::Running);
                self.write().await;
                due.death = self.guest.behaviour.dies_after_ms.map(|ms| now + Duration::from_millis(ms));
                due.step = (Step::Agent, now + self.guest.behaviour.agent_up(self.times));
            }
            Step::Agent => self.agent_up(due, shell, up),
            Step::CloudInit => self.cloud_init_done(due).await,
            Step::Prepare => {
                self.guest.report.send_replace(outcome(&self.guest));
                due.step = (Step::Idle, now + NEVER);
                self.write().await;
            }
            Step::Idle => due.step.1 = now + NEVER,
        }
        None
    }

    /// The getty is there, and the agent answers, if it is not to be absent.
    fn agent_up(&mut self, due: &mut Due, shell: &mut Shell, up: &mut CancellationToken) {
        let now = Instant::now();
        if self.guest.behaviour.agent != Some(AgentFault::Absent) {
            let socket = self.reserved.take().map_or_else(|| reserve(self.address), Ok);
            let listener = match socket.and_then(|socket| socket.listen(BACKLOG)) {
                Ok(listener) => listener,
                Err(error) => {
                    // After a reboot the old listener may need a moment to go; out of descriptors it may pass.
                    tracing::debug!(vm.name = self.guest.name, %error, "a played agent cannot listen yet");
                    due.step = (Step::Agent, now + AGAIN);
                    return;
                }
            };
            *up = CancellationToken::new();
            let serving = agent::serve(listener, Arc::clone(&self.guest), self.tracker.clone(), up.clone());
            self.tracker.spawn(serving);
            due.agent_stops =
                self.guest.behaviour.agent_stops_after_ms.map(|ms| now + Duration::from_millis(ms));
        }
        shell.wake(&self.guest);
        due.step = match self.guest.report.borrow().phase {
            // A machine that was ready is not sent back by a reboot, and a failed one stays failed.
            Phase::Ready | Phase::Failed => (Step::Idle, now + NEVER),
            Phase::Booting | Phase::Preparing => {
                (Step::CloudInit, now + Duration::from_millis(self.guest.behaviour.booting_ms.unwrap_or(0)))
            }
        };
    }

    async fn cloud_init_done(&mut self, due: &mut Due) {
        let now = Instant::now();
        if self.guest.behaviour.prepare == Some(Prepare::CloudInit) {
            self.guest.report.send_replace(Report::failed(Cause::CloudInit, None, "cloud-init failed\n"));
            due.step = (Step::Idle, now + NEVER);
            self.write().await;
            return;
        }
        self.guest.report.send_replace(Report::at(Phase::Preparing));
        let takes = match self.guest.behaviour.prepare {
            Some(Prepare::Hangs { .. }) => Duration::from_secs(self.guest.settings.prepare_timeout_s),
            Some(Prepare::Stuck) => NEVER,
            None | Some(Prepare::Exit { .. } | Prepare::Signal | Prepare::CloudInit) => {
                self.guest.behaviour.preparing(self.times)
            }
        };
        due.step = (Step::Prepare, now + takes);
    }

    fn reboot(&mut self, due: &mut Due, shell: &mut Shell, up: &mut CancellationToken) {
        up.cancel();
        shell.sleep("\r\nreboot: Restarting system\r\n");
        self.status.send_modify(|status| status.resets += 1);
        let behaviour = &self.guest.behaviour;
        let back = behaviour.boot(self.times) + behaviour.agent_up(self.times);
        due.step = (Step::Agent, Instant::now() + back);
        due.agent_stops = None;
    }

    /// Writes the record. A disk that refuses costs a restart its memory, never the running machine.
    async fn write(&self) {
        let run = self.status.borrow().run;
        self.write_as(run).await;
    }

    async fn write_as(&self, run: Run) {
        let resets = self.status.borrow().resets;
        let (uid, namespace) = self.identity.clone();
        let record = Record {
            uid,
            namespace,
            name: self.guest.name.clone(),
            labels: self.guest.labels.clone(),
            settings: self.guest.settings.clone(),
            behaviour: self.guest.behaviour.clone(),
            address: self.address,
            life: Lived::of(run),
            report: self.guest.report.borrow().clone(),
            resets,
            words: self.guest.words(),
        };
        if let Err(error) = record.write(&self.directory).await {
            tracing::debug!(vm.name = self.guest.name, %error, "a played machine's record was not written");
        }
    }
}

/// Binds the address without listening on it.
pub(super) fn reserve(address: Ipv4Addr) -> std::io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // The address is the machine's alone: what lingers there are connections of its own earlier boot.
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((address, AGENT_PORT)))?;
    Ok(socket)
}

/// What the prepare script came to.
fn outcome(guest: &Guest) -> Report {
    let printed = |log: &str, megabytes: u32| {
        let noise =
            if megabytes > 0 { "prepare: one more line of very many\n".repeat(200) } else { String::new() };
        noise + log
    };
    match &guest.behaviour.prepare {
        None => Report::at(Phase::Ready),
        Some(Prepare::Exit { code: 0, log, megabytes }) => {
            Report { log_tail: super::guest::tail(&printed(log, *megabytes)), ..Report::at(Phase::Ready) }
        }
        Some(Prepare::Exit { code, log, megabytes }) => {
            Report::failed(Cause::ExitStatus, Some(*code), &printed(log, *megabytes))
        }
        Some(Prepare::Hangs { log }) => Report::failed(Cause::Timeout, None, log),
        Some(Prepare::Signal) => Report::failed(Cause::Signal, None, "Killed\n"),
        Some(Prepare::CloudInit) => Report::failed(Cause::CloudInit, None, "cloud-init failed\n"),
        Some(Prepare::Stuck) => Report::at(Phase::Preparing),
    }
}
