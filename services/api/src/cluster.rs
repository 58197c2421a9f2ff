//! The api's own view of the machines in the cluster: what capacity counts and what ghosts are told by.
//!
//! Two sources, one set: a watch per kind tells changes at once, and a list every 15 s replaces what the watches may
//! have lost. Without a complete list for 45 s the view says "unknown" and nobody is admitted: never a guess. An object
//! that a late list brings back after its deletion counts until the next list; that errs on the safe side.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams, ObjectMeta},
    runtime::{WatchStreamExt as _, watcher},
};
use lab_domain::{MachineName, ObjectUid, SessionId, capacity::Place, ghost::Seen};
use lab_kit::{Clock, Shutdown};
use lab_kubevirt::{Installation, kinds::Kind, labels};
use time::OffsetDateTime;
use tokio::{sync::watch, time::Instant};

/// Kinds that take a place.
const KINDS: [Kind; 3] = [Kind::VirtualMachine, Kind::VirtualMachineInstance, Kind::Pod];
/// How often everything is listed afresh.
const LIST_EVERY: Duration = Duration::from_secs(15);
/// Without a list for this many intervals nothing is known.
const LISTS_MISSED: u32 = 3;
/// Pause after a list that failed.
const LIST_AGAIN: Duration = Duration::from_secs(2);
/// One list request.
const REQUEST: Duration = Duration::from_secs(10);
/// Objects a page.
const PAGE: u32 = 500;

/// No list has succeeded for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cluster's machines could not be listed for too long")]
pub struct Unknown;

/// One object with our environment's label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) uid: ObjectUid,
    pub(crate) place: Place,
    /// Of our installation: only these can be ghosts of ours.
    pub(crate) is_ours: bool,
}

/// A complete list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Before the first request was sent.
    pub(crate) begun_at: OffsetDateTime,
    pub(crate) objects: Vec<Object>,
}

impl Listed {
    /// The machines that ghosts are told by.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let ours = self.objects.iter().filter(|o| o.is_ours);
        ours.map(|o| Seen { session: o.place.0, machine: o.place.1.clone(), uid: o.uid.clone() }).collect()
    }
}

#[derive(Debug, Default)]
struct Current {
    objects: HashMap<ObjectUid, Place>,
    listed_at: Option<Instant>,
}

/// The view. Clones share it.
#[derive(Debug, Clone)]
pub struct View {
    current: Arc<Mutex<Current>>,
    lists: Arc<watch::Sender<Option<Arc<Listed>>>>,
    list_every: Duration,
}

impl Default for View {
    fn default() -> Self {
        Self::every(LIST_EVERY)
    }
}

impl View {
    /// A view that knows nothing yet and lists at this interval; three intervals without a list, and it knows nothing
    /// again.
    #[must_use]
    pub fn every(list_every: Duration) -> Self {
        Self { current: Arc::default(), lists: Arc::new(watch::Sender::new(None)), list_every }
    }

    /// The places that the cluster shows as taken.
    ///
    /// # Errors
    /// If no list has succeeded for too long.
    pub fn places(&self) -> Result<HashSet<Place>, Unknown> {
        let current = self.lock();
        match current.listed_at {
            Some(at) if at.elapsed() < self.list_every * LISTS_MISSED => {
                Ok(current.objects.values().cloned().collect())
            }
            Some(_) | None => Err(Unknown),
        }
    }

    /// The last complete list, if it is fresh.
    ///
    /// # Errors
    /// If no list has succeeded for too long.
    pub(crate) fn fresh(&self) -> Result<Arc<Listed>, Unknown> {
        self.places()?;
        self.lists.borrow().clone().ok_or(Unknown)
    }

    /// Follows the complete lists.
    pub(crate) fn lists(&self) -> watch::Receiver<Option<Arc<Listed>>> {
        self.lists.subscribe()
    }

    /// Takes in a complete list.
    pub(crate) fn replace(&self, listed: Listed) {
        let objects = listed.objects.iter().map(|o| (o.uid.clone(), o.place.clone())).collect();
        *self.lock() = Current { objects, listed_at: Some(Instant::now()) };
        self.lists.send_replace(Some(Arc::new(listed)));
    }

    /// Keeps the view true until the process stops.
    pub fn keep(
        &self,
        client: &Client,
        namespace: &str,
        ours: &Installation,
        clock: Arc<dyn Clock>,
        shutdown: &Shutdown,
    ) {
        let eyes: Vec<Eye> = KINDS.iter().map(|kind| Eye::new(client, namespace, *kind, ours)).collect();
        for eye in &eyes {
            let (view, eye, token) = (self.clone(), eye.clone(), shutdown.token.clone());
            shutdown.spawn(async move {
                token.run_until_cancelled(view.watch(eye)).await;
            });
        }
        let (view, token) = (self.clone(), shutdown.token.clone());
        shutdown.spawn(async move {
            token.run_until_cancelled(view.list(eyes, clock)).await;
        });
    }

    async fn list(&self, eyes: Vec<Eye>, clock: Arc<dyn Clock>) {
        let mut failures = 0_u32;
        loop {
            let begun_at = clock.now();
            let lists = futures::future::try_join_all(eyes.iter().map(Eye::list)).await;
            let pause = match lists {
                Ok(lists) => {
                    if failures > 0 {
                        tracing::info!(failures, "the cluster can be listed again");
                    }
                    failures = 0;
                    self.replace(Listed { begun_at, objects: lists.concat() });
                    self.list_every
                }
                Err(error) => {
                    failures += 1;
                    if failures == 1 {
                        tracing::warn!(error = %lab_kit::telemetry::chain(&error), "the cluster cannot be listed");
                    }
                    LIST_AGAIN.min(self.list_every)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn watch(&self, eye: Eye) {
        let events =
            watcher(eye.api.clone(), watcher::Config::default().labels(&eye.selector)).default_backoff();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                    if let Some(object) = eye.object(&object) {
                        self.lock().objects.insert(object.uid, object.place);
                    }
                }
                Ok(watcher::Event::Delete(object)) => {
                    if let Some(object) = eye.object(&object) {
                        self.lock().objects.remove(&object.uid);
                    }
                }
                Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
                Err(error) => tracing::debug!(kind = eye.kind.as_str(), error = %error, "watch interrupted"),
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a list failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot list {kind}")]
struct ListFailed {
    kind: &'static str,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// Looks at one kind.
#[derive(Debug, Clone)]
struct Eye {
    kind: Kind,
    api: Api<DynamicObject>,
    selector: String,
    ours: Installation,
}

impl Eye {
    fn new(client: &Client, namespace: &str, kind: Kind, ours: &Installation) -> Self {
        let mut selector = ours.environment_selector();
        if kind == Kind::Pod {
            selector = format!("{selector},{}={}", labels::LAUNCHER, labels::LAUNCHER_VALUE);
        }
        let api = Api::namespaced_with(client.clone(), namespace, &kind.resource());
        Self { kind, api, selector, ours: ours.clone() }
    }

    async fn list(&self) -> Result<Vec<Object>, ListFailed> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| ListFailed {
            kind: self.kind.as_str(),
            source,
        };
        let pages = futures::stream::try_unfold(Some(String::new()), |next| async move {
            let Some(token) = next else { return Ok(None) };
            let mut params = ListParams::default().labels(&self.selector).limit(PAGE);
            if !token.is_empty() {
                params = params.continue_token(&token);
            }
            let page = tokio::time::timeout(REQUEST, self.api.list(&params)).await;
            let page = page.map_err(|e| failed(e.into()))?.map_err(|e| failed(e.into()))?;
            let next = page.metadata.continue_.filter(|token| !token.is_empty());
            Ok(Some((page.items, next)))
        });
        let pages: Vec<Vec<DynamicObject>> = pages.try_collect().await?;
        Ok(pages.iter().flatten().filter_map(|object| self.object(object)).collect())
    }

    fn object(&self, object: &DynamicObject) -> Option<Object> {
        let uid = ObjectUid::new(object.metadata.uid.clone()?).ok()?;
        let place = place(&object.metadata, &uid);
        let is_ours = self.ours.identity(&object.metadata).is_some();
        Some(Object { kind: self.kind, name: object.name_any(), uid, place, is_ours })
    }
}

/// Whose place an object takes. One whose labels cannot be read takes a place of its own.
fn place(meta: &ObjectMeta, uid: &ObjectUid) -> Place {
    let session = labels::label(meta, labels::SESSION).and_then(|s| s.parse::<SessionId>().ok());
    let machine = labels::label(meta, labels::MACHINE).and_then(|m| m.parse::<MachineName>().ok());
    match (session, machine) {
        (Some(session), Some(machine)) => (session, machine),
        (_, machine) => {
            let own = SessionId(uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, uid.as_str().as_bytes()));
            let unnamed = || MachineName::new("unnamed").expect("the literal is a machine name");
            (own, machine.unwrap_or_else(unnamed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(uid: &str, session: u128) -> Object {
        Object {
            kind: Kind::VirtualMachine,
            name: uid.to_owned(),
            uid: ObjectUid::new(uid).unwrap(),
            place: (SessionId(uuid::Uuid::from_u128(session)), MachineName::new("main").unwrap()),
            is_ours: true,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_list_is_no_knowledge() {
        let view = View::default();
        assert_eq!(view.places(), Err(Unknown));
        let objects = vec![object("a", 1), object("b", 1), object("c", 2)];
        view.replace(Listed { begun_at: OffsetDateTime::UNIX_EPOCH, objects });
        assert_eq!(view.places().unwrap().len(), 2);
        tokio::time::advance(Duration::from_secs(44)).await;
        assert!(view.fresh().is_ok());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(view.places(), Err(Unknown));
        assert_eq!(view.fresh(), Err(Unknown));
    }

    #[test]
    fn an_object_without_readable_labels_still_takes_a_place() {
        let (a, b) = (ObjectUid::new("a").unwrap(), ObjectUid::new("b").unwrap());
        let nothing = ObjectMeta::default();
        assert_ne!(place(&nothing, &a), place(&nothing, &b));
        assert_eq!(place(&nothing, &a), place(&nothing, &a));
    }
}
