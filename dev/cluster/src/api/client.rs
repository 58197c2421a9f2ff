//! The in-process client of controllers.

use serde_json::{Value, json};

use super::{Cluster, DeleteOptions, Deleted, Part, User, Writer};
use crate::object;
use crate::resource::{self, Resource};
use crate::status::Status;
use crate::store::{Expired, Key, Listing, ObjectRef, Watch};

/// A privileged client: no RBAC, no HTTP, but admission hooks, quota and finalizer rules as for everybody.
#[derive(Debug, Clone)]
pub struct Client {
    cluster: Cluster,
    user: User,
}

impl Client {
    pub(super) fn new(cluster: Cluster, user: &str) -> Self {
        Self { cluster, user: User::internal(user) }
    }

    fn writer(&self) -> Writer {
        Writer { user: self.user.clone(), manager: None, dry_run: false, warnings: Vec::new() }
    }

    /// The cluster it talks to.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Creates an object. `apiVersion` and `kind` are set from `resource`, the name may come from `generateName`.
    pub fn create(
        &self,
        resource: &'static Resource,
        namespace: &str,
        object: Value,
    ) -> Result<ObjectRef, Status> {
        self.cluster.create(resource, namespace, object, &mut self.writer())
    }

    /// The object, where it is there.
    pub fn find(&self, key: &Key) -> Option<ObjectRef> {
        self.cluster.store().get(key)
    }

    /// The object, or 404.
    pub fn get(&self, key: &Key) -> Result<ObjectRef, Status> {
        self.find(key).ok_or_else(|| Status::not_found(key.resource, &key.name))
    }

    /// All objects of a resource, in one namespace or (`None`) in all.
    pub fn list(&self, resource: &'static Resource, namespace: Option<&str>) -> Listing {
        self.cluster.store().list(resource, namespace)
    }

    /// Changes an object: `change` gets the current one and edits it; it may be called again when somebody else was
    /// faster. Where the resource has a `/status`, changes of `status` are dropped here, as on the real server. No
    /// change, no write. An `Err` from `change` ends the attempt and is returned.
    pub fn update(
        &self,
        key: &Key,
        mut change: impl FnMut(&mut Value) -> Result<(), Status>,
    ) -> Result<ObjectRef, Status> {
        self.change(key, Part::Main, &mut change)
    }

    /// Changes only `status`. For a resource without `/status` (VMI) it is the same as [`Client::update`].
    pub fn update_status(
        &self,
        key: &Key,
        mut change: impl FnMut(&mut Value) -> Result<(), Status>,
    ) -> Result<ObjectRef, Status> {
        let part = if key.resource.status { Part::Status } else { Part::Main };
        self.change(key, part, &mut change)
    }

    /// Takes the last finalizer off a namespace that is empty and being deleted.
    pub(crate) fn finish_namespace(&self, key: &Key) -> Result<(), Status> {
        let mut edit = |current: &Value| {
            let mut next = current.clone();
            object::child_mut(&mut next, "spec").remove("finalizers");
            Ok(next)
        };
        self.cluster.update(key, Part::Finalize, &mut edit, &mut self.writer()).map(|_| ())
    }

    fn change(
        &self,
        key: &Key,
        part: Part,
        change: &mut dyn FnMut(&mut Value) -> Result<(), Status>,
    ) -> Result<ObjectRef, Status> {
        let mut edit = |current: &Value| {
            let mut next = current.clone();
            change(&mut next)?;
            Ok(next)
        };
        self.cluster.update(key, part, &mut edit, &mut self.writer())
    }

    /// Deletes an object (or marks it, see [`Deleted`]). 404 where it is not there.
    pub fn delete(&self, key: &Key, options: &DeleteOptions) -> Result<Deleted, Status> {
        self.cluster.delete(key, options, &mut self.writer())
    }

    /// Follows a resource from a listing's version.
    pub fn watch(&self, resource: &'static Resource, version: u64) -> Result<Watch, Expired> {
        self.cluster.store().watch(resource, version)
    }

    /// Records an event about an object, as `kubectl get events` shows it.
    pub fn event(&self, about: &Value, kind: &str, reason: &str, message: &str, component: &str) {
        let namespace = match object::namespace(about) {
            "" => "default",
            other => other,
        };
        let now = object::now();
        let unique = format!("{:016x}", rand::random::<u64>());
        let event = json!({
            "metadata": {"name": format!("{}.{unique}", object::name(about)), "namespace": namespace},
            "involvedObject": {
                "apiVersion": about.get("apiVersion").cloned().unwrap_or_default(),
                "kind": about.get("kind").cloned().unwrap_or_default(),
                "namespace": object::namespace(about), "name": object::name(about),
                "uid": object::uid(about), "resourceVersion": object::resource_version(about),
            },
            "type": kind, "reason": reason, "message": message, "count": 1,
            "source": {"component": component}, "reportingComponent": component, "reportingInstance": "",
            "firstTimestamp": now, "lastTimestamp": now, "eventTime": null,
        });
        if let Err(refusal) = self.create(&resource::EVENTS, namespace, event) {
            tracing::debug!(error = %refusal, "an event was not recorded");
        }
    }
}
