//! The object store: everything the cluster knows, in memory and on disk, under one resourceVersion.
//!
//! - One counter for all resources; each change takes the next number and is recorded as one [`Change`].
//! - Each resource keeps a window of its latest changes. Watches are cursors into that window, not queues: a slow
//!   watcher costs nothing and gets *expired* (410) once the window has moved past it, never a gap it cannot see.
//! - A change carries the object before and after, so that an older state of a resource (continued lists) can be
//!   rebuilt by walking back, and so that a watch with a selector sees objects enter and leave it.
//! - Each change is one line in the log before it is visible to anybody; what a client was answered survives
//!   `kill -9`. The windows do not: after a restart every older resourceVersion is expired, as on a real server.
//!
//! The store knows nothing of admission, finalizers or rights: that is [`crate::api`]. All of it is synchronous; the
//! lock is held for map updates, one serialisation and one `write(2)`.

mod log;
mod window;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

pub use self::log::Error;
use self::log::Log;
use self::window::Window;
pub use self::window::{Change, Expired, Watch};
use crate::object;
use crate::resource::{self, Resource};

/// The address of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Its resource.
    pub resource: &'static Resource,
    /// Its namespace, empty for cluster-scoped ones.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl Key {
    /// The key of `name` in `namespace` (empty for cluster-scoped resources).
    pub fn new(resource: &'static Resource, namespace: &str, name: &str) -> Self {
        Self { resource, namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}/{}", self.resource.qualified(), self.name)
        } else {
            write!(f, "{}/{}/{}", self.resource.qualified(), self.namespace, self.name)
        }
    }
}

/// One version of one object. Immutable; a change makes a new one.
#[derive(Debug)]
pub struct Object {
    /// Its address.
    pub key: Key,
    /// The resourceVersion of this version.
    pub version: u64,
    /// The whole object, `apiVersion` and `kind` included.
    pub value: Value,
    /// The same as JSON text, made once.
    pub json: Bytes,
}

impl Object {
    fn new(key: Key, version: u64, mut value: Value) -> Self {
        object::meta_mut(&mut value).insert("resourceVersion".into(), version.to_string().into());
        let json = Bytes::from(serde_json::to_vec(&value).unwrap_or_default());
        Self { key, version, value, json }
    }
    /// A version that was never stored (dry run).
    pub(crate) fn unstored(key: Key, value: Value) -> Self {
        let json = Bytes::from(serde_json::to_vec(&value).unwrap_or_default());
        Self { key, version: 0, value, json }
    }
    /// A state that is shown but was not stored: an update that finished a deletion.
    pub(crate) fn at_version(key: Key, version: u64, value: Value) -> Self {
        Self::new(key, version, value)
    }
    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        object::uid(&self.value)
    }
}

/// A shared version of an object.
pub type ObjectRef = Arc<Object>;

/// Why a compare-and-swap did not happen.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// An object of that name is there.
    #[error("{} exists", .0.key)]
    Exists(ObjectRef),
    /// No such object.
    #[error("no such object")]
    NotFound,
    /// The object has another resourceVersion by now.
    #[error("{} was changed", .0.key)]
    Changed(ObjectRef),
    /// The change could not be recorded; nothing has happened.
    #[error("the change could not be recorded")]
    Log(#[from] Error),
}

#[derive(Debug)]
struct Table {
    objects: BTreeMap<(Arc<str>, Arc<str>), ObjectRef>,
    counts: HashMap<Arc<str>, usize>,
    window: Window,
    signal: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    version: u64,
    tables: HashMap<&'static Resource, Table>,
    uids: HashMap<String, Key>,
    dependents: HashMap<String, BTreeSet<Key>>,
    feeds: Vec<mpsc::UnboundedSender<Arc<Change>>>,
    log: Option<Log>,
}

/// What a list found, and the version it is true for.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Objects by namespace and name.
    pub items: Vec<ObjectRef>,
    /// The resourceVersion of this state.
    pub version: u64,
}

/// The store; clones share it.
#[derive(Debug, Clone)]
pub struct Store(Arc<Mutex<State>>);

impl Store {
    /// A store that lives in memory only, with windows of `window` changes.
    pub fn in_memory(window: usize) -> Self {
        Self::with(State::empty(window, None))
    }

    /// Opens (or makes) the store that lies in `dir`.
    pub fn open(dir: &Path, window: usize) -> Result<Self, Error> {
        let (log, loaded) = Log::open(dir)?;
        let mut state = State::empty(window, Some(log));
        state.version = loaded.version;
        for (resource, version, value) in loaded.objects {
            let key = Key::new(resource, object::namespace(&value), object::name(&value));
            state.place(&Arc::new(Object::new(key, version, value)));
        }
        for table in state.tables.values_mut() {
            table.window.start_at(loaded.version);
            table.signal.send_replace(loaded.version);
        }
        Ok(Self::with(state))
    }

    fn with(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest resourceVersion.
    pub fn version(&self) -> u64 {
        self.state().version
    }

    /// The current version of an object.
    pub fn get(&self, key: &Key) -> Option<ObjectRef> {
        self.state().get(key).cloned()
    }

    /// The object with that uid.
    pub fn by_uid(&self, uid: &str) -> Option<ObjectRef> {
        let state = self.state();
        let key = state.uids.get(uid)?;
        state.get(key).cloned()
    }

    /// Objects that name `uid` as an owner.
    pub fn dependents(&self, uid: &str) -> Vec<ObjectRef> {
        let state = self.state();
        let keys = state.dependents.get(uid);
        keys.into_iter().flatten().filter_map(|key| state.get(key).cloned()).collect()
    }

    /// All objects of a resource, in one namespace or (`None`) in all.
    pub fn list(&self, resource: &'static Resource, namespace: Option<&str>) -> Listing {
        let state = self.state();
        Listing { items: state.range(resource, namespace), version: state.version }
    }

    /// The same as it was at `version`; expired where the window does not go back that far.
    pub fn list_at(
        &self,
        resource: &'static Resource,
        namespace: Option<&str>,
        version: u64,
    ) -> Result<Listing, Expired> {
        let state = self.state();
        let items = state.range(resource, namespace);
        let Some(table) = state.tables.get(resource) else { return Ok(Listing { items, version }) };
        let mut then: BTreeMap<_, _> =
            items.into_iter().map(|o| ((o.key.namespace.clone(), o.key.name.clone()), o)).collect();
        for change in table.window.since(version)?.iter().rev() {
            let key = change.key();
            if namespace.is_some_and(|ns| ns != &*key.namespace) {
                continue;
            }
            let at = (key.namespace.clone(), key.name.clone());
            match &change.before {
                Some(before) => then.insert(at, before.clone()),
                None => then.remove(&at),
            };
        }
        Ok(Listing { items: then.into_values().collect(), version })
    }

    /// The version of the latest change of a resource (or of the start).
    pub fn latest(&self, resource: &'static Resource) -> u64 {
        self.state().tables.get(resource).map_or(0, |t| *t.signal.borrow())
    }

    /// How many objects of a resource a namespace holds.
    pub fn count(&self, resource: &'static Resource, namespace: &str) -> usize {
        let state = self.state();
        state.tables.get(resource).and_then(|t| t.counts.get(namespace)).copied().unwrap_or_default()
    }

    /// Stores a new object. The resourceVersion is set here.
    pub fn create(&self, key: Key, value: Value) -> Result<ObjectRef, WriteError> {
        let mut state = self.state();
        if let Some(existing) = state.get(&key) {
            return Err(WriteError::Exists(existing.clone()));
        }
        let object = Arc::new(Object::new(key, state.version + 1, value));
        state.commit(Change {
            version: object.version,
            before: None,
            after: Some(object.clone()),
            last: None,
        })?;
        Ok(object)
    }

    /// Replaces the version `expected` of an object.
    pub fn replace(&self, key: &Key, expected: u64, value: Value) -> Result<ObjectRef, WriteError> {
        let mut state = self.state();
        let before = state.expect(key, expected)?;
        let object = Arc::new(Object::new(key.clone(), state.version + 1, value));
        state.commit(Change {
            version: object.version,
            before: Some(before),
            after: Some(object.clone()),
            last: None,
        })?;
        Ok(object)
    }

    /// Removes the version `expected` of an object; `last` is what watchers see as its last state (else `before`).
    /// Returns that last state, which carries the resourceVersion of the removal.
    pub fn remove(&self, key: &Key, expected: u64, last: Option<Value>) -> Result<ObjectRef, WriteError> {
        let mut state = self.state();
        let before = state.expect(key, expected)?;
        let value = last.unwrap_or_else(|| before.value.clone());
        let last = Arc::new(Object::new(key.clone(), state.version + 1, value));
        state.commit(Change {
            version: last.version,
            before: Some(before),
            after: None,
            last: Some(last.clone()),
        })?;
        Ok(last)
    }

    /// Follows a resource from `version` (exclusive). Expired where the window does not go back that far.
    pub fn watch(&self, resource: &'static Resource, version: u64) -> Result<Watch, Expired> {
        let state = self.state();
        let Some(table) = state.tables.get(resource) else {
            return Err(Expired { asked: version, oldest: state.version });
        };
        table.window.since(version)?;
        Ok(Watch::new(self.clone(), resource, version, table.signal.subscribe()))
    }

    /// Every change of every resource from now on, for the cluster's own controllers.
    pub fn feed(&self) -> mpsc::UnboundedReceiver<Arc<Change>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.state().feeds.push(sender);
        receiver
    }

    fn changes_since(
        &self,
        resource: &'static Resource,
        version: u64,
        most: usize,
    ) -> Result<Vec<Arc<Change>>, Expired> {
        let state = self.state();
        let Some(table) = state.tables.get(resource) else { return Ok(Vec::new()) };
        Ok(table.window.since(version)?.iter().take(most).cloned().collect())
    }

    /// The store's version, where the resource has not changed after `version`.
    fn quiet_since(&self, resource: &'static Resource, version: u64) -> Option<u64> {
        let state = self.state();
        let table = state.tables.get(resource)?;
        let quiet = table.window.since(version).ok()?.iter().next().is_none();
        quiet.then_some(state.version)
    }

    /// Forgets all windows, as a restart of a real server does. Faults on demand and tests use it.
    pub fn forget_windows(&self) {
        let mut state = self.state();
        let version = state.version;
        for table in state.tables.values_mut() {
            table.window.start_at(version);
        }
    }

    /// Writes everything to the disk itself; called on an orderly end.
    pub fn sync(&self) -> Result<(), Error> {
        self.state().log.as_mut().map_or(Ok(()), Log::sync)
    }
}

impl State {
    fn empty(window: usize, log: Option<Log>) -> Self {
        let table = |_: &&'static Resource| Table {
            objects: BTreeMap::new(),
            counts: HashMap::new(),
            window: Window::new(window),
            signal: watch::Sender::new(0),
        };
        let stored = resource::TABLE.iter().filter(|r| !r.review);
        let tables = stored.map(|r| (*r, table(r))).collect();
        Self { version: 1, tables, uids: HashMap::new(), dependents: HashMap::new(), feeds: Vec::new(), log }
    }

    fn get(&self, key: &Key) -> Option<&ObjectRef> {
        self.tables.get(key.resource)?.objects.get(&(key.namespace.clone(), key.name.clone()))
    }

    fn expect(&self, key: &Key, expected: u64) -> Result<ObjectRef, WriteError> {
        let current = self.get(key).ok_or(WriteError::NotFound)?;
        if current.version == expected {
            Ok(current.clone())
        } else {
            Err(WriteError::Changed(current.clone()))
        }
    }

    fn range(&self, resource: &'static Resource, namespace: Option<&str>) -> Vec<ObjectRef> {
        let Some(table) = self.tables.get(resource) else { return Vec::new() };
        let Some(namespace) = namespace else { return table.objects.values().cloned().collect() };
        let from = (Arc::from(namespace), Arc::from(""));
        let all = table.objects.range((Bound::Included(from), Bound::Unbounded));
        all.take_while(|((ns, _), _)| &**ns == namespace).map(|(_, o)| o.clone()).collect()
    }

    /// Records a change in the log, then in memory, then tells the watchers.
    fn commit(&mut self, change: Change) -> Result<(), Error> {
        if let Some(log) = &mut self.log {
            log.append(&change)?;
        }
        self.version = change.version;
        if let Some(before) = &change.before {
            self.unplace(before);
        }
        if let Some(after) = &change.after {
            self.place(after);
        }
        let change = Arc::new(change);
        let version = self.version;
        if let Some(table) = self.tables.get_mut(change.key().resource) {
            table.window.push(change.clone());
            table.signal.send_replace(version);
        }
        self.feeds.retain(|feed| feed.send(change.clone()).is_ok());
        if self.log.as_ref().is_some_and(Log::is_overgrown) {
            self.compact()?;
        }
        Ok(())
    }

    fn compact(&mut self) -> Result<(), Error> {
        let objects: Vec<ObjectRef> =
            self.tables.values().flat_map(|t| t.objects.values().cloned()).collect();
        let version = self.version;
        self.log.as_mut().map_or(Ok(()), |log| log.compact(version, &objects))
    }

    fn place(&mut self, object: &ObjectRef) {
        let key = &object.key;
        let Some(table) = self.tables.get_mut(key.resource) else { return };
        table.objects.insert((key.namespace.clone(), key.name.clone()), object.clone());
        *table.counts.entry(key.namespace.clone()).or_default() += 1;
        self.uids.insert(object.uid().to_owned(), key.clone());
        for owner in object::owner_references(&object.value) {
            self.dependents.entry(owner.uid).or_default().insert(key.clone());
        }
    }

    fn unplace(&mut self, object: &ObjectRef) {
        let key = &object.key;
        let Some(table) = self.tables.get_mut(key.resource) else { return };
        table.objects.remove(&(key.namespace.clone(), key.name.clone()));
        if let Some(count) = table.counts.get_mut(&key.namespace) {
            *count -= 1;
        }
        self.uids.remove(object.uid());
        for owner in object::owner_references(&object.value) {
            if let Some(keys) = self.dependents.get_mut(&owner.uid) {
                keys.remove(key);
                if keys.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
