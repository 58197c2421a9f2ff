//! Which sessions are followed: each that starts or is ready has one follower.
//!
//! Three things make one: an event (a machine was provisioned), a change in the watch, and the look at all sessions.
//! Each of them may be missed; the look alone would do, only later.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lab_domain::{SessionId, State};
use lab_kit::{Shutdown, telemetry::chain};
use tokio::sync::{Notify, mpsc};

use crate::{
    apply::{Deps, Ended, Follower},
    cluster::Changed,
    decide::{Look, decide},
    events,
};

/// Between looks at all sessions.
const LOOK: Duration = Duration::from_secs(10);

/// The followers. Clones share them.
#[derive(Clone)]
pub struct Follow {
    deps: Arc<Deps>,
    shutdown: Shutdown,
    followers: Arc<Mutex<HashMap<SessionId, Arc<Handle>>>>,
    look_now: Arc<Notify>,
}

/// How a follower is told that something happened.
#[derive(Default)]
struct Handle {
    wake: Notify,
    /// Set with every wake: a follower that is about to go sees what came meanwhile.
    is_woken: AtomicBool,
}

impl Follow {
    /// Nobody is followed yet.
    #[must_use]
    pub fn new(deps: Arc<Deps>, shutdown: Shutdown) -> Self {
        Self { deps, shutdown, followers: Arc::default(), look_now: Arc::default() }
    }

    /// Something happened to this session: its follower looks at once; if it has none it gets one.
    pub fn wake(&self, session: SessionId) {
        let mut followers = self.lock();
        if let Some(handle) = followers.get(&session) {
            handle.is_woken.store(true, Ordering::Relaxed);
            handle.wake.notify_one();
            return;
        }
        let handle = Arc::new(Handle::default());
        followers.insert(session, Arc::clone(&handle));
        self.deps.metrics.followed.inc();
        let this = self.clone();
        self.shutdown.spawn(async move { this.follow(session, &handle).await });
    }

    async fn follow(&self, session: SessionId, handle: &Handle) {
        loop {
            handle.is_woken.store(false, Ordering::Relaxed);
            let follower = Follower::new(Arc::clone(&self.deps), session);
            // On the heap: one task per session lives as long as the session.
            let ended = Box::pin(follower.run(&handle.wake, &self.shutdown.token)).await;
            let mut followers = self.lock();
            // Wakes come under this lock, so none is lost between the look and the removal.
            if ended == Ended::Stopped || !handle.is_woken.load(Ordering::Relaxed) {
                followers.remove(&session);
                self.deps.metrics.followed.dec();
                return;
            }
        }
    }

    /// Hears what the watch tells, until the service stops.
    pub async fn hear(self, mut changed: mpsc::UnboundedReceiver<Changed>) {
        while let Some(Some(change)) = self.shutdown.token.run_until_cancelled(changed.recv()).await {
            match change {
                Some(session) => self.wake(session),
                None => {
                    // A machine that came while the watch was cut is told by no event: its session has no follower yet.
                    self.look_now.notify_one();
                    let all: Vec<SessionId> = self.lock().keys().copied().collect();
                    all.into_iter().for_each(|session| self.wake(session));
                }
            }
        }
    }

    /// Looks at all sessions now and then, until the service stops.
    pub async fn look(self) {
        let token = self.shutdown.token.clone();
        while !token.is_cancelled() {
            match events::sessions(&self.deps.bus).await {
                Ok(sessions) => sessions.iter().filter(|s| self.needs(s)).for_each(|s| self.wake(s.id)),
                Err(error) => tracing::debug!(error = chain(&error), "the sessions cannot be looked at"),
            }
            tokio::select! {
                () = token.cancelled() => {}
                () = tokio::time::sleep(LOOK) => {}
                () = self.look_now.notified() => {}
            }
        }
    }

    /// Whether a session has to be looked at: it has no follower, it ends, or a machine of it went.
    fn needs(&self, session: &events::Session) -> bool {
        let is_followed = self.lock().contains_key(&session.id);
        match session.state {
            State::Queued => false,
            State::Ending | State::Ended => is_followed,
            State::Requested | State::Provisioning | State::Booting | State::Preparing => !is_followed,
            State::Ready => {
                !is_followed
                    || session.machines.iter().any(|machine| {
                        let seen = self.deps.cluster.watched(session.id, &machine.name);
                        let (state, limits, now) = (session.state, &session.limits, self.deps.clock.now());
                        decide(state, limits, machine, seen.as_ref(), None, Look::Watched, now).look_afresh
                    })
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Handle>>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
