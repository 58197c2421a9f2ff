//! The window of latest changes of one resource, and watches as cursors into it.

use std::collections::VecDeque;
use std::collections::vec_deque::Iter;
use std::sync::Arc;

use tokio::sync::watch;

use super::{Key, ObjectRef, Store};
use crate::resource::Resource;

/// How many changes a watch takes at a time.
const BATCH: usize = 256;

/// One change of one object. Either `before` or `after` is there, or both.
#[derive(Debug)]
pub struct Change {
    /// The resourceVersion of the change.
    pub version: u64,
    /// The object before; `None` where it was created.
    pub before: Option<ObjectRef>,
    /// The object after; `None` where it was removed.
    pub after: Option<ObjectRef>,
    /// On removal: the last state, with the resourceVersion of the removal.
    pub last: Option<ObjectRef>,
}

impl Change {
    /// The object as it stands after the change (on removal: its last state).
    pub fn object(&self) -> &ObjectRef {
        let shown = self.after.as_ref().or(self.last.as_ref()).or(self.before.as_ref());
        shown.expect("a change has an object before or after it")
    }
    /// The key of the object.
    pub fn key(&self) -> &Key {
        &self.object().key
    }
    /// Whether the object is gone.
    pub fn is_removal(&self) -> bool {
        self.after.is_none()
    }
}

/// The asked version lies before the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked} ({oldest})")]
pub struct Expired {
    /// What was asked for.
    pub asked: u64,
    /// The oldest version from which changes are still known.
    pub oldest: u64,
}

/// The last changes of a resource, oldest first.
#[derive(Debug)]
pub(super) struct Window {
    changes: VecDeque<Arc<Change>>,
    capacity: usize,
    oldest: u64,
}

impl Window {
    pub(super) fn new(capacity: usize) -> Self {
        Self { changes: VecDeque::new(), capacity: capacity.max(1), oldest: 0 }
    }

    /// Forgets everything; only what comes after `version` will be known.
    pub(super) fn start_at(&mut self, version: u64) {
        self.changes.clear();
        self.oldest = version;
    }

    pub(super) fn push(&mut self, change: Arc<Change>) {
        if self.changes.len() == self.capacity
            && let Some(dropped) = self.changes.pop_front()
        {
            self.oldest = dropped.version;
        }
        self.changes.push_back(change);
    }

    /// Changes after `version`.
    pub(super) fn since(&self, version: u64) -> Result<Since<'_>, Expired> {
        if version < self.oldest {
            return Err(Expired { asked: version, oldest: self.oldest });
        }
        let from = self.changes.partition_point(|c| c.version <= version);
        Ok(Since { changes: &self.changes, from })
    }
}

/// The tail of a window.
pub(super) struct Since<'a> {
    changes: &'a VecDeque<Arc<Change>>,
    from: usize,
}

impl<'a> Since<'a> {
    pub(super) fn iter(&self) -> Iter<'a, Arc<Change>> {
        self.changes.range(self.from..)
    }
}

/// A cursor that follows one resource.
#[derive(Debug)]
pub struct Watch {
    store: Store,
    resource: &'static Resource,
    version: u64,
    signal: watch::Receiver<u64>,
    taken: VecDeque<Arc<Change>>,
}

impl Watch {
    pub(super) fn new(
        store: Store,
        resource: &'static Resource,
        version: u64,
        signal: watch::Receiver<u64>,
    ) -> Self {
        Self { store, resource, version, signal, taken: VecDeque::new() }
    }

    /// The version of the last change that was handed out (or from which the watch began).
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Where nothing is waiting: the version up to which this watch has seen everything (for bookmarks).
    pub fn caught_up(&mut self) -> Option<u64> {
        if !self.taken.is_empty() {
            return None;
        }
        let version = self.store.quiet_since(self.resource, self.version)?;
        self.version = version;
        Some(version)
    }

    /// The next change. Cancel safe. `Expired`: the window moved past this watch; list again and start anew.
    pub async fn next(&mut self) -> Result<Arc<Change>, Expired> {
        loop {
            if let Some(change) = self.taken.pop_front() {
                self.version = change.version;
                return Ok(change);
            }
            self.signal.borrow_and_update();
            self.taken = self.store.changes_since(self.resource, self.version, BATCH)?.into();
            if self.taken.is_empty() && self.signal.changed().await.is_err() {
                // The store holds the sender and this watch holds the store: it cannot be gone.
                std::future::pending::<()>().await;
            }
        }
    }
}
