//! The one-machine cluster: the part of the Kubernetes API that the services use, in one process.
//!
//! ```text
//!  HTTP (axum)                       controllers (gc, namespaces, quota, pvc, kubevirt)
//!  authn -> RBAC -> negotiate             |  api::Client  (no RBAC)
//!        \                                |
//!         +--------> api::Cluster <-------+     admission hooks, validation, quota,
//!                        |                      finalizers, generation, managedFields
//!                    store::Store               one resourceVersion, windows, log on disk
//! ```
//!
//! # For what is built on top (the `kubevirt` module)
//!
//! `kubevirt::register(&DriverArgs, state_dir, &mut Registry)` is called once before the start and hangs in:
//! - **admission hooks** ([`admission::Admission`]): `wants` chooses resources, `mutate` changes the object as sent,
//!   `validate` refuses it with a [`status::Status`] or returns warnings. Synchronous, without effects, may run twice.
//! - **the subresource handler** ([`admission::Subresources`]) for `/apis/subresources.kubevirt.io/…/{console,vnc,
//!   start,stop,restart,…}`: it gets the caller and the raw axum request (upgrade included) and returns a response;
//!   RBAC is done before. [`http::status_response`] makes a response from a `Status`.
//! - **controllers** (`registry.controller("vm", |context| async move { … })`): started after the manifests are loaded,
//!   before the port is published; they run until `context.shutdown`, further tasks go on `context.tracker`.
//!
//! Controllers use [`api::Client`] (`context.cluster.client("system:serviceaccount:kubevirt:kubevirt-controller")`):
//! `create`, `get`/`find`, `list`, `update` and `update_status` (a closure edits the current object; it is called
//! again when somebody else was faster; no change, no write), `delete`, `watch`, `event`. All but the watch are
//! synchronous, take microseconds and may be called from async code. Keys are [`store::Key`]`::new(&resource::PODS,
//! namespace, name)`. To follow a resource: `let l = client.list(&PODS, None); let mut w = client.watch(&PODS,
//! l.version)?; loop { select! { c = w.next() => …, _ = shutdown.cancelled() => break } }`; each
//! [`store::Change`] has the object before and after; on `Expired` list again. Never keep state that is not rebuilt
//! from a list: the process may be killed at any moment and everything in the store survives.
//!
//! The rules of the real server hold for controllers too: `update` keeps `status` of a resource with `/status` (VM,
//! Pod, PVC, DataVolume; not VMI), the last finalizer taken from a terminating object removes it, ownerReferences are
//! collected ~50 ms after the owner is gone, pods with a node are only marked by a delete until somebody (the kubelet's
//! role) deletes them with `DeleteOptions::now()`.
//!
//! # What it does not do
//! No conversion between versions (all served versions have one form), no schema but for unknown fields, no
//! aggregation, no CRDs at run time: the kinds are [`resource::TABLE`].

pub mod admission;
pub mod api;
mod auth;
mod clock;
pub mod config;
mod controllers;
mod defaults;
mod deploy;
pub mod http;
mod kubeconfig;
mod kubevirt;
mod managed;
pub mod object;
mod quota;
mod rbac;
pub mod resource;
pub mod schema;
pub mod selector;
mod server;
pub mod status;
pub mod store;
mod validate;

pub use self::server::{Running, start, start_with};
