//! The rules of the API server around the store: what a create, an update and a delete mean.
//!
//! Both ways in go through here: HTTP ([`crate::http`]) and the cluster's own controllers ([`Client`]). Everything is
//! synchronous. Rights are not checked here but at the HTTP door.
//!
//! ```text
//! create: defaults -> mutating hooks -> namespace there? -> validation -> validating hooks -> quota -> store
//! update: read -> change -> system fields -> mutating hooks -> validation -> no change? -> validating hooks -> swap
//! delete: read -> preconditions -> grace, finalizers? -> mark, or remove
//! ```

mod client;
mod create;
mod delete;
mod update;

use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use self::client::Client;
pub use self::delete::{DeleteOptions, Deleted, Propagation};
pub use self::update::Part;
use crate::admission::{Admission, Registry, Subresources};
use crate::auth::Tokens;
use crate::status::Status;
use crate::store::{Store, WriteError};

pub use crate::auth::User;

/// Chosen paces; the defaults are what was seen on the real thing.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// From an owner's end to the collection of its dependents.
    pub collect: Duration,
    /// Between two looks at a namespace that is being deleted.
    pub namespace: Duration,
    /// From a change to the corrected `status.used` of a quota.
    pub quota: Duration,
    /// Periodic bookmarks.
    pub bookmark: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            collect: Duration::from_millis(50),
            namespace: Duration::from_secs(5),
            quota: Duration::from_millis(40),
            bookmark: Duration::from_secs(60),
        }
    }
}

/// The cluster: the store and its rules. Clones share it.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    store: Store,
    admission: Vec<Arc<dyn Admission>>,
    subresources: Option<Arc<dyn Subresources>>,
    operator: Option<axum::Router>,
    tokens: Tokens,
    pace: Pace,
    /// Held over "count, compare with the quota, create": two creates must not both take the last place.
    quota: Mutex<()>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("pace", &self.0.pace).finish_non_exhaustive()
    }
}

/// Who writes, and how.
#[derive(Debug, Clone)]
pub struct Writer {
    /// Who asks.
    pub user: User,
    /// Field manager; `None`: `managedFields` are not kept for this write.
    pub manager: Option<String>,
    /// Nothing is stored.
    pub dry_run: bool,
    /// Warnings for the answer.
    pub warnings: Vec<String>,
}

impl Cluster {
    /// A cluster over `store` with what `registry` holds (its controllers are not started here).
    pub(crate) fn new(store: Store, tokens: Tokens, pace: Pace, registry: &Registry) -> Self {
        Self(Arc::new(Inner {
            store,
            admission: registry.admission.clone(),
            subresources: registry.subresources.clone(),
            operator: registry.operator.clone(),
            tokens,
            pace,
            quota: Mutex::new(()),
        }))
    }

    /// The store, for reading and watching.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// A client that acts as `user` without asking for rights. Hooks see that name.
    pub fn client(&self, user: &str) -> Client {
        Client::new(self.clone(), user)
    }

    pub(crate) fn pace(&self) -> Pace {
        self.0.pace
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    pub(crate) fn operator(&self) -> Option<axum::Router> {
        self.0.operator.clone()
    }

    pub(crate) fn subresources(&self) -> Option<Arc<dyn Subresources>> {
        self.0.subresources.clone()
    }
}

/// A change that the store refused for a reason that no client can do anything about.
fn unrecorded(error: &WriteError) -> Status {
    tracing::error!(error = %error, "the store could not record a change");
    Status::internal("the change could not be recorded")
}
