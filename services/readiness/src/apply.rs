//! Following one session: look, decide, report, talk to its agents, until it is ready; then watch that its machines stay.
//!
//! ```text
//!        ┌──────────────────────────── woken by: the watch, an event, an agent's answer, a time ◀──┐
//!        ▼                                                                                         │
//!  ask the api ─▶ decide from the watch ─┬─▶ publish what the api does not show ───────────────────┤
//!                                        ├─▶ long poll the agent ──────────────────────────────────┤
//!                                        └─▶ look afresh, ask again, decide again ─────────────────┘
//! ```
//!
//! One task per session, and no state that matters in it: another replica or the next start of this one comes to the
//! same facts under the same ids.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use lab_bus::Bus;
use lab_domain::{EventId, MachineName, ObjectUid, SessionId, State, token::TokenKey};
use lab_kit::{Clock, telemetry::chain};
use lab_kubevirt::manifest::AGENT_PORT;
use secrecy::SecretString;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    agent::{self, Report},
    cluster::Cluster,
    decide::{self, Agent, Decision, Kind, Look, Machine, Outcome, decide},
    events::{self, Session},
    metrics::{CallKind, Metrics},
};

/// A session that starts is looked at this often even if nothing happens.
const LOOK_STARTING: Duration = Duration::from_secs(10);
/// A session that is ready is woken by the watch and the list of all sessions; this is for what both missed.
const LOOK_READY: Duration = Duration::from_secs(300);
/// After a question without an answer or a failed look.
const RETRY: Duration = Duration::from_secs(1);
/// A fact is repeated after this, doubled each time.
const REPEAT: Duration = Duration::from_secs(2);
/// The longest pause between repeats.
const MAX_REPEAT: Duration = Duration::from_secs(30);
/// The first look whether a fact was projected, doubled each time.
const FIRST_ECHO: Duration = Duration::from_millis(10);
/// An address that gave no answer is looked up again after this.
const STALE_ADDRESS: Duration = Duration::from_secs(3);
/// An agent that answers at once with nothing new is asked no faster than this.
const UNCHANGED: Duration = Duration::from_secs(1);

/// What all followers share.
pub struct Deps {
    /// The bus.
    pub bus: Bus,
    /// The machines.
    pub cluster: Cluster,
    /// Makes the agents' tokens.
    pub key: TokenKey,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Counters.
    pub metrics: Metrics,
    /// Port of the agents.
    pub agent_port: u16,
}

impl Deps {
    /// With the agents' usual port.
    #[must_use]
    pub fn new(bus: Bus, cluster: Cluster, key: TokenKey, clock: Arc<dyn Clock>, metrics: Metrics) -> Self {
        Self { bus, cluster, key, clock, metrics, agent_port: AGENT_PORT }
    }

    /// The token of a machine's agent.
    #[must_use]
    pub fn token(&self, session: SessionId, machine: &MachineName) -> SecretString {
        SecretString::from(self.key.token(session, machine))
    }
}

/// How a follower came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// There is nothing to follow (any more).
    Over,
    /// The service stops.
    Stopped,
}

/// What this process remembers of one machine.
#[derive(Default)]
struct Memory {
    agent: Option<Agent>,
    word: Option<&'static str>,
    address: Option<(IpAddr, Instant)>,
    first_call: Option<Instant>,
    is_calling: bool,
    next_pause: Duration,
    next_look: Option<Instant>,
    sent: HashMap<EventId, Sent>,
}

struct Sent {
    at: Instant,
    times: u32,
}

/// What a call to an agent came to.
struct Called {
    machine: MachineName,
    uid: ObjectUid,
    address: Option<IpAddr>,
    took: Duration,
    result: Result<Answer, &'static str>,
}

struct Answer {
    report: Report,
    /// The machine was looked at after the answer and is still the one that was dialled.
    is_confirmed: bool,
}

/// Follows one session.
pub struct Follower {
    deps: Arc<Deps>,
    session: SessionId,
    machines: HashMap<MachineName, Memory>,
    calls: FuturesUnordered<BoxFuture<'static, Called>>,
    echo: Duration,
}

impl Follower {
    /// A follower that has seen nothing yet.
    #[must_use]
    pub fn new(deps: Arc<Deps>, session: SessionId) -> Self {
        Self { deps, session, machines: HashMap::new(), calls: FuturesUnordered::new(), echo: FIRST_ECHO }
    }

    /// Follows until there is nothing to follow or the service stops.
    pub async fn run(mut self, wake: &Notify, token: &CancellationToken) -> Ended {
        loop {
            let pause = match token.run_until_cancelled(self.step()).await {
                None => return Ended::Stopped,
                Some(None) => return Ended::Over,
                Some(Some(pause)) => pause,
            };
            tokio::select! {
                () = token.cancelled() => return Ended::Stopped,
                () = wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
                Some(called) = self.calls.next(), if !self.calls.is_empty() => self.heard(called),
            }
        }
    }

    /// One round; the time until the next, or `None` if there is nothing to follow.
    async fn step(&mut self) -> Option<Duration> {
        let session = match events::session(&self.deps.bus, self.session).await {
            Ok(session) => session?,
            Err(error) => {
                tracing::debug!(session.id = %self.session, error = chain(&error), "asked in vain");
                return Some(RETRY);
            }
        };
        match session.state {
            State::Queued | State::Ending | State::Ended => return None,
            State::Requested | State::Provisioning | State::Booting | State::Preparing | State::Ready => {}
        }
        let is_ready = session.machines.iter().all(|m| m.facts.ready.is_some());
        let mut pause = if is_ready { LOOK_READY } else { LOOK_STARTING };
        let mut is_echo_awaited = false;
        for machine in &session.machines {
            let decision = self.decide(&session, machine).await;
            if let Some(at) = decision.wake_at {
                let left = at - self.deps.clock.now();
                pause = pause.min(Duration::try_from(left).unwrap_or_default().max(Duration::from_millis(5)));
            }
            if decision.look_afresh {
                pause = pause.min(RETRY);
            }
            for kind in decision.facts {
                is_echo_awaited = true;
                self.report(&session, &machine.name, kind).await;
            }
            if let Some(uid) = decision.poll {
                self.call(machine, uid);
            }
        }
        if is_echo_awaited {
            pause = pause.min(self.echo);
            self.echo = (self.echo * 2).min(REPEAT);
        } else {
            self.echo = FIRST_ECHO;
        }
        Some(pause)
    }

    /// Decides from the watch and, where that would end the session, once more from a fresh look.
    async fn decide(&mut self, session: &Session, machine: &Machine) -> Decision {
        let deps = Arc::clone(&self.deps);
        let memory = self.machines.entry(machine.name.clone()).or_default();
        let seen = deps.cluster.watched(session.id, &machine.name);
        let judge = |session: &Session, machine: &Machine, seen: Option<&decide::Seen>, agent, look| {
            decide(session.state, &session.limits, machine, seen, agent, look, deps.clock.now())
        };
        let watched = judge(session, machine, seen.as_ref(), memory.agent.as_ref(), Look::Watched);
        if !watched.look_afresh || memory.next_look.is_some_and(|at| Instant::now() < at) {
            return watched;
        }
        memory.next_look = Some(Instant::now() + RETRY);
        deps.metrics.looks.inc();
        let (seen, has_vm) = match deps.cluster.look(session.id, &machine.name).await {
            Ok(look) => look,
            Err(error) => {
                tracing::warn!(session.id = %session.id, error = chain(&error), "a machine cannot be looked at");
                return watched;
            }
        };
        // Asked after the look: what the reaper has deleted by now belongs to a session that is ending by now.
        match events::session(&deps.bus, session.id).await {
            Ok(Some(session)) => match session.machine(&machine.name) {
                Some(machine) => {
                    let look = Look::Fresh { has_vm };
                    judge(&session, machine, seen.as_ref(), memory.agent.as_ref(), look)
                }
                None => Decision::default(),
            },
            Ok(None) => Decision::default(),
            Err(_) => watched,
        }
    }

    /// Publishes a fact, unless that was done a moment ago.
    async fn report(&mut self, session: &Session, machine: &MachineName, kind: Kind) {
        let Some(id) = events::fact_id(session.id, &kind) else { return };
        let memory = self.machines.entry(machine.clone()).or_default();
        let times = match memory.sent.get(&id) {
            Some(sent) if sent.at.elapsed() < repeat_after(sent.times) => return,
            Some(sent) => sent.times,
            None => 0,
        };
        let name = lab_proto::subjects::kind_name(&kind);
        match events::publish(&self.deps.bus, self.deps.clock.as_ref(), session, kind).await {
            Ok(()) => {
                self.deps.metrics.facts.inc();
                tracing::info!(session.id = %session.id, machine = %machine, fact = name, times, "reported");
            }
            Err(error) => {
                tracing::warn!(session.id = %session.id, machine = %machine, fact = name, error = chain(&error), "not reported yet");
            }
        }
        memory.sent.insert(id, Sent { at: Instant::now(), times: times + 1 });
        if times == 0 {
            self.echo = FIRST_ECHO;
        }
    }

    /// Starts a call to the agent unless one is under way.
    fn call(&mut self, machine: &Machine, uid: ObjectUid) {
        let memory = self.machines.entry(machine.name.clone()).or_default();
        if memory.is_calling {
            return;
        }
        if memory.agent.as_ref().is_none_or(|agent| agent.uid != uid) {
            let agent = Agent { uid: uid.clone(), reached_at: None, outcome: None, trouble: None };
            *memory =
                Memory { agent: Some(agent), sent: std::mem::take(&mut memory.sent), ..Memory::default() };
        }
        let is_reached = memory.agent.as_ref().is_some_and(|agent| agent.reached_at.is_some());
        memory.is_calling = true;
        memory.first_call.get_or_insert_with(Instant::now);
        let call = Call {
            deps: Arc::clone(&self.deps),
            session: self.session,
            machine: machine.name.clone(),
            uid,
            address: memory
                .address
                .filter(|(_, at)| is_reached || at.elapsed() < STALE_ADDRESS)
                .map(|(a, _)| a),
            word: memory.word,
            is_reached,
            pause: memory.next_pause,
        };
        self.calls.push(call.run().boxed());
    }

    /// Takes in what a call came to.
    fn heard(&mut self, called: Called) {
        let now = self.deps.clock.now();
        let Some(memory) = self.machines.get_mut(&called.machine) else { return };
        memory.is_calling = false;
        self.deps.metrics.called(CallKind::Ready, called.result.is_ok());
        let known = memory.address.map(|(address, _)| address);
        if known != called.address {
            memory.address = called.address.map(|address| (address, Instant::now()));
        }
        let Some(agent) = memory.agent.as_mut().filter(|agent| agent.uid == called.uid) else { return };
        match called.result {
            Ok(answer) => {
                agent.trouble = None;
                let is_news = memory.word != Some(answer.report.word());
                memory.word = Some(answer.report.word());
                memory.next_pause =
                    if is_news || called.took > UNCHANGED { Duration::ZERO } else { UNCHANGED };
                if answer.is_confirmed {
                    agent.reached_at.get_or_insert(now);
                    agent.outcome = match answer.report {
                        Report::Booting | Report::Preparing => None,
                        Report::Ready => Some(Outcome::Ready { at: now }),
                        Report::Failed { cause, exit_code, log_tail } => {
                            Some(Outcome::Failed { cause, exit_code, log_tail })
                        }
                    };
                }
            }
            Err(trouble) => {
                if agent.trouble != Some(trouble) {
                    tracing::debug!(session.id = %self.session, machine = %called.machine, trouble, "agent");
                }
                agent.trouble = Some(trouble);
                // The known word is asked for again: after a broken call it is the answer that counts.
                memory.word = None;
                let since = memory.first_call.map_or(Duration::ZERO, |at| at.elapsed());
                memory.next_pause = pause_after(since);
                if memory.address.is_some_and(|(_, at)| at.elapsed() >= STALE_ADDRESS) {
                    memory.address = None;
                }
            }
        }
    }
}

/// One call, with the looks before and after it.
struct Call {
    deps: Arc<Deps>,
    session: SessionId,
    machine: MachineName,
    uid: ObjectUid,
    address: Option<IpAddr>,
    word: Option<&'static str>,
    is_reached: bool,
    pause: Duration,
}

impl Call {
    async fn run(self) -> Called {
        tokio::time::sleep(self.pause).await;
        let started = Instant::now();
        let mut address = self.address;
        let result = self.dial(&mut address).await;
        Called { machine: self.machine, uid: self.uid, address, took: started.elapsed(), result }
    }

    async fn dial(&self, address: &mut Option<IpAddr>) -> Result<Answer, &'static str> {
        if address.is_none() {
            *address = self.deps.cluster.launcher(&self.uid).await.map_err(|_| "cluster_unknown")?;
        }
        let dialled = (*address).ok_or("no_address")?;
        let token = self.deps.token(self.session, &self.machine);
        let socket = SocketAddr::new(dialled, self.deps.agent_port);
        // The first call is not held: it tells whether anybody is there.
        let wait = if self.word.is_some() { agent::MAX_WAIT } else { Duration::ZERO };
        let report = agent::ready(socket, &token, wait, self.word).await.map_err(|error| error.word())?;
        if self.is_reached && !report.is_final() {
            return Ok(Answer { report, is_confirmed: false });
        }
        // A pod's address may have been given to another one while the answer was on its way.
        let still = self.deps.cluster.is_still(self.session, &self.machine, &self.uid, dialled).await;
        match still {
            Ok(true) => Ok(Answer { report, is_confirmed: true }),
            Ok(false) => {
                *address = None;
                Err("machine_moved")
            }
            Err(_) => Err("cluster_unknown"),
        }
    }
}

/// A twentieth of the time that it has taken so far: quick where machines start quickly, and never a storm.
fn pause_after(since: Duration) -> Duration {
    (since / 20).clamp(Duration::from_millis(25), Duration::from_secs(1))
}

fn repeat_after(times: u32) -> Duration {
    REPEAT.saturating_mul(1 << times.saturating_sub(1).min(5)).min(MAX_REPEAT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_the_wait_and_stay_bounded() {
        assert_eq!(pause_after(Duration::ZERO), Duration::from_millis(25));
        assert_eq!(pause_after(Duration::from_secs(4)), Duration::from_millis(200));
        assert_eq!(pause_after(Duration::from_secs(3600)), Duration::from_secs(1));
        assert_eq!(repeat_after(1), REPEAT);
        assert_eq!(repeat_after(2), REPEAT * 2);
        assert_eq!(repeat_after(u32::MAX), MAX_REPEAT);
    }
}
