//! Sessions that end: noted, deleted, looked at until they are gone.
//!
//! ```text
//!  SessionEnding ─┐                                        ┌─ something is there, or unseen: again, ever rarer
//!                 ├─▶ note ─▶ ask ─▶ look ─▶ delete ─▶ decide ─ gone, but something may cross: again
//!  list, every 10 s                                        └─ gone for good ─▶ SessionReaped, until the api says ended
//! ```
//!
//! What is noted lives in memory only: it is found again by the list, and then waits its 20 s anew. A message is acked when the
//! deletes of one whole look were sent.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use lab_bus::{Delivery, Disposition, event};
use lab_domain::{SessionId, State, id::object_name};
use lab_kit::Shutdown;
use lab_kubevirt::{Installation, kinds::Kind};
use lab_proto::v1;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::{
    Reaper,
    decide::{
        Object,
        ending::{self, Look, Then},
    },
    error::Error,
    known::Known,
    outside::{Outside, Snapshot},
};

/// Sessions looked at at once.
const AT_ONCE: usize = 8;
/// More than this many due sessions share one look over everything.
const FEW: usize = 4;
/// Sessions that are due within this time are taken along.
const TOGETHER: Duration = Duration::from_millis(250);
/// Until the api is asked whether it took SessionReaped in.
const TAKEN_IN: Duration = Duration::from_secs(5);

/// A session of whose end we know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noted {
    /// When we first learned of it, on our own monotonic clock.
    heard: Instant,
    /// Version of the SessionEnding that is carried out.
    version: u64,
    /// The api said so once more, after the session had ended.
    again: bool,
    looks: u32,
    next: Instant,
}

/// What one look over everything and one list of sessions showed.
struct Shared {
    snapshot: Snapshot,
    sessions: HashMap<SessionId, Known>,
}

impl<O: Outside> Reaper<O> {
    /// An event: a session ends.
    pub(crate) async fn on_ending(self: Arc<Self>, delivery: Delivery) -> Disposition {
        let event::Kind::SessionEnding(ending) = &delivery.kind else { return Disposition::Ack };
        self.note(delivery.session, delivery.event.session_version, ending.again);
        let span = tracing::info_span!("reap", session.id = %delivery.session);
        let result = self.round(delivery.session, None).instrument(span).await;
        self.wake.notify_one();
        match result {
            Ok(()) => Disposition::Ack,
            Err(error) => {
                self.put_off(delivery.session, &error);
                delivery.retry()
            }
        }
    }

    /// The periodic look: every session that the api calls ending.
    pub(crate) async fn list_endings(&self) {
        match self.sessions().await {
            Ok(sessions) => {
                for known in sessions.values().filter(|known| known.state == State::Ending) {
                    self.note_once(known.id, known.ending_version);
                }
                self.wake.notify_one();
            }
            Err(error) => {
                self.metrics.put_off();
                tracing::warn!(error = %lab_kit::telemetry::chain(&error), "the ending sessions cannot be listed");
            }
        }
    }

    /// Looks at what is due until the process stops.
    pub(crate) async fn keep_looking(self: Arc<Self>, shutdown: Shutdown) {
        while !shutdown.is_stopping() {
            let due = self.due(Instant::now() + TOGETHER);
            if !due.is_empty() {
                shutdown.token.run_until_cancelled(self.look_at(due)).await;
            }
            let next = self.next().unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                () = shutdown.token.cancelled() => return,
                () = tokio::time::sleep_until(next.max(Instant::now() + TOGETHER)) => {}
                () = self.wake.notified() => {}
            }
        }
    }

    /// One look at each of these, shared where they are many.
    pub(crate) async fn look_at(&self, due: Vec<SessionId>) {
        let shared = if due.len() > FEW { self.shared().await } else { None };
        let shared = shared.as_ref();
        stream::iter(due)
            .for_each_concurrent(AT_ONCE, |session| async move {
                let span = tracing::info_span!("reap", session.id = %session);
                if let Err(error) = self.round(session, shared).instrument(span).await {
                    self.put_off(session, &error);
                }
            })
            .await;
    }

    async fn shared(&self) -> Option<Shared> {
        let us = self.installation().ok()?;
        let snapshot = self.outside.look(&us, None).await;
        let sessions = self.sessions().await.ok()?;
        Some(Shared { snapshot, sessions })
    }

    /// Everything that can be done for a session now.
    async fn round(&self, session: SessionId, shared: Option<&Shared>) -> Result<(), Error> {
        let us = self.installation()?;
        let Some(noted) = self.begin(session) else { return Ok(()) };
        let listed = shared.and_then(|s| s.sessions.get(&session)).cloned();
        let known = match listed {
            Some(known) => Some(known),
            None => self.ask(session).await?,
        };
        let Some(known) = known.filter(|known| ending::is_due(Some(known), noted.again)) else {
            self.forget(session);
            return Ok(());
        };
        let names: HashSet<String> = known.machines.iter().map(|m| object_name(session, &m.name)).collect();
        let Snapshot { began, objects, is_complete } = match shared {
            Some(shared) => shared.snapshot.clone_of(|object| is_of(object, session, &names)),
            None => self.look_alone(&us, session, &names).await,
        };
        let heard_for = began.saturating_duration_since(noted.heard);
        let look = Look { objects: objects.iter().collect(), is_complete, heard_for };
        let decision = ending::decide(&known, &look);
        // One that cannot be deleted must not keep the others.
        let mut refused = None;
        for object in decision.delete {
            match self.outside.delete(object).await {
                Ok(()) => self.metrics.deleted(object.kind),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        if let Some(error) = refused {
            return Err(error);
        }
        let now = Instant::now();
        match decision.then {
            Then::Reaped => self.reaped(&known, noted).await?,
            Then::LookAgain => self.again_at(session, now + ending::pause(noted.looks)),
            Then::LookAfter(rest) => self.again_at(session, now + rest.min(TAKEN_IN)),
        }
        if is_complete { Ok(()) } else { Err(Error::Unseen { session }) }
    }

    /// A look at one session: its labels, and its Secrets by name, for one that lost its session label still lies there.
    async fn look_alone(&self, us: &Installation, session: SessionId, names: &HashSet<String>) -> Snapshot {
        let mut look = self.outside.look(us, Some(session)).await;
        let secrets = names.iter().map(|name| self.outside.secret(us, name));
        for secret in futures::future::join_all(secrets).await {
            match secret {
                Ok(Some(secret)) if look.objects.iter().all(|o| o.uid != secret.uid) => {
                    look.objects.push(secret)
                }
                Ok(_) => {}
                Err(error) => {
                    look.is_complete = false;
                    self.put_off(session, &error);
                }
            }
        }
        look
    }

    async fn reaped(&self, known: &Known, noted: Noted) -> Result<(), Error> {
        let ending_version = noted.version.max(known.ending_version);
        let kind = event::Kind::SessionReaped(v1::SessionReaped { ending_version });
        self.outside.publish(&known.envelope, kind).await?;
        if noted.again {
            // The session had ended before: nothing will confirm this one.
            self.forget(known.id);
        } else {
            self.again_at(known.id, Instant::now() + TAKEN_IN);
        }
        self.metrics.reaped(noted.heard.elapsed());
        tracing::info!(elapsed_ms = noted.heard.elapsed().as_millis(), "everything of the session is gone");
        Ok(())
    }

    async fn ask(&self, session: SessionId) -> Result<Option<Known>, Error> {
        let answer = self.outside.ask(session).await?;
        answer.as_ref().map(Known::read).transpose().map_err(|source| Error::Answer { session, source })
    }

    /// All live and ending sessions. One that cannot be read is left out: whoever needs it asks for it by itself.
    pub(crate) async fn sessions(&self) -> Result<HashMap<SessionId, Known>, Error> {
        let all = self.outside.sessions().await?;
        Ok(all.iter().filter_map(|s| Known::read(s).ok()).map(|known| (known.id, known)).collect())
    }

    fn put_off(&self, session: SessionId, error: &Error) {
        self.metrics.put_off();
        tracing::warn!(session.id = %session, error = %lab_kit::telemetry::chain(error), "the look is put off");
    }
}

/// Whether an object belongs to a session, by its label or as a Secret by its name.
fn is_of(object: &Object, session: SessionId, names: &HashSet<String>) -> bool {
    object.session() == Some(session) || (object.kind == Kind::Secret && names.contains(&object.name))
}

/// The notes.
impl<O> Reaper<O> {
    /// A message says that it ends.
    pub(crate) fn note(&self, session: SessionId, version: u64, again: bool) {
        let now = Instant::now();
        let mut all = self.notes();
        let noted = all.entry(session).or_insert(Noted { heard: now, version, again, looks: 0, next: now });
        if version > noted.version || (again && !noted.again) {
            // A later end: whatever was created meanwhile may still be on its way.
            *noted = Noted { heard: now, version, again, looks: 0, next: now };
        }
        self.metrics.endings.set(all.len().try_into().unwrap_or(i64::MAX));
    }

    /// A list says that it ends; what a message said is better known already.
    pub(crate) fn note_once(&self, session: SessionId, version: u64) {
        if !self.notes().contains_key(&session) {
            self.note(session, version, false);
        }
    }

    /// Counts a look; until it says otherwise the next one comes after the usual pause, also if it fails.
    fn begin(&self, session: SessionId) -> Option<Noted> {
        let mut all = self.notes();
        let noted = all.get_mut(&session)?;
        let now = *noted;
        noted.looks = noted.looks.saturating_add(1);
        noted.next = Instant::now() + ending::pause(noted.looks);
        Some(now)
    }

    fn again_at(&self, session: SessionId, at: Instant) {
        if let Some(noted) = self.notes().get_mut(&session) {
            noted.next = at;
        }
    }

    fn forget(&self, session: SessionId) {
        let mut all = self.notes();
        all.remove(&session);
        self.metrics.endings.set(all.len().try_into().unwrap_or(i64::MAX));
    }

    fn due(&self, now: Instant) -> Vec<SessionId> {
        self.notes().iter().filter(|(_, noted)| noted.next <= now).map(|(session, _)| *session).collect()
    }

    fn next(&self) -> Option<Instant> {
        self.notes().values().map(|noted| noted.next).min()
    }

    pub(crate) fn notes(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Noted>> {
        self.endings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
