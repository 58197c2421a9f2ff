//! What others may hang into the API: admission hooks, subresource handlers, controllers.
//!
//! `kubevirt::register` is the place where the KubeVirt part of this crate does it.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::{Cluster, User};
use crate::resource::Resource;
use crate::status::Status;
use crate::store::Store;

/// What is being done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// POST, or an apply that creates.
    Create,
    /// PUT, any patch of an existing object, and a controller's update.
    Update,
}

/// What a hook may look at.
#[derive(Debug)]
pub struct AdmissionRequest<'a> {
    /// Create or update.
    pub operation: Operation,
    /// The resource.
    pub resource: &'static Resource,
    /// Empty, or `status`.
    pub subresource: &'a str,
    /// Namespace of the object, empty for cluster-scoped ones.
    pub namespace: &'a str,
    /// The object as it is stored now, on update.
    pub old: Option<&'a Value>,
    /// Who asks.
    pub user: &'a User,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// Everything that is stored, for look-ups.
    pub store: &'a Store,
}

/// A pair of webhooks, in process. `mutate` runs on the object as sent (after defaulting), `validate` on the final
/// object right before it is stored. Both may run several times for one request (a lost race is tried again), so they
/// must not have effects. An `Err` is answered as it is: see [`Status::denied_by_webhook`].
pub trait Admission: Send + Sync {
    /// Whether this hook wants to see the resource (main resource or `status`).
    fn wants(&self, resource: &'static Resource, subresource: &str) -> bool;
    /// Changes the object.
    fn mutate(&self, request: &AdmissionRequest<'_>, object: &mut Value) -> Result<(), Status>;
    /// Refuses the object, or returns warnings that go into `Warning` headers.
    fn validate(&self, request: &AdmissionRequest<'_>, object: &Value) -> Result<Vec<String>, Status>;
}

/// A call of a subresource of another group than that of the object, e.g.
/// `PUT /apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachines/vm/start`.
/// Authentication, RBAC and the 406 for `Accept: application/json` alone lie behind it.
#[derive(Debug)]
pub struct SubresourceCall {
    /// `v1` or `v1alpha3`.
    pub version: String,
    /// `virtualmachines` or `virtualmachineinstances`.
    pub resource: String,
    /// Namespace in the path.
    pub namespace: String,
    /// Name in the path.
    pub name: String,
    /// What follows the name, e.g. `console` or `vnc/screenshot`.
    pub subresource: String,
    /// Who asks.
    pub user: User,
    /// The request itself: method, headers, body, and the upgrade.
    pub request: Request,
}

/// Answers subresource calls. Unknown ones are answered with [`crate::http::page_not_found`].
pub trait Subresources: Send + Sync {
    /// Answers one call.
    fn call(&self, call: SubresourceCall) -> BoxFuture<'static, Response>;
}

/// What a controller gets when the cluster has started.
#[derive(Debug, Clone)]
pub struct ControllerContext {
    /// The cluster; `cluster.client("system:serviceaccount:kubevirt:kubevirt-controller")` makes a client.
    pub cluster: Cluster,
    /// Tasks belong here.
    pub tracker: TaskTracker,
    /// Ends them.
    pub shutdown: CancellationToken,
}

type Start = Box<dyn FnOnce(ControllerContext) -> BoxFuture<'static, ()> + Send>;

/// Everything that was hung in.
#[derive(Default)]
pub struct Registry {
    pub(crate) admission: Vec<Arc<dyn Admission>>,
    pub(crate) subresources: Option<Arc<dyn Subresources>>,
    pub(crate) operator: Option<axum::Router>,
    pub(crate) controllers: Vec<(&'static str, Start)>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.controllers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Registry").field("controllers", &names).finish_non_exhaustive()
    }
}

impl Registry {
    /// Adds an admission hook; hooks run in the order of their registration.
    pub fn admission(&mut self, hook: impl Admission + 'static) -> &mut Self {
        self.admission.push(Arc::new(hook));
        self
    }

    /// Sets the handler of group `subresources.kubevirt.io`.
    pub fn subresources(&mut self, handler: impl Subresources + 'static) -> &mut Self {
        self.subresources = Some(Arc::new(handler));
        self
    }

    /// Sets what answers under `/sim/`: no part of Kubernetes, but a handle for tests. Only who may use any path that
    /// is no resource (the administrator) gets there.
    pub fn operator(&mut self, router: axum::Router) -> &mut Self {
        self.operator = Some(router);
        self
    }

    /// Adds a controller: a future that runs until the context's shutdown, on the cluster's tracker. It starts after
    /// the deploy manifests are loaded and before the HTTP port is published.
    pub fn controller<F, Fut>(&mut self, name: &'static str, start: F) -> &mut Self
    where
        F: FnOnce(ControllerContext) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.controllers.push((name, Box::new(move |context| Box::pin(start(context)))));
        self
    }
}
