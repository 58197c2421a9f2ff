//! Deleting objects.

use serde_json::{Value, json};

use super::update::is_finished;
use super::{Cluster, Writer, unrecorded};
use crate::object;
use crate::resource::{NAMESPACES, PODS};
use crate::status::{Details, Status};
use crate::store::{Key, ObjectRef, WriteError};

/// What becomes of the dependents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Propagation {
    /// They are collected after the object is gone.
    #[default]
    Background,
    /// They are deleted first.
    Foreground,
    /// They stay, without the reference.
    Orphan,
}

/// Options of a delete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// What becomes of the dependents; `None`: background.
    pub propagation: Option<Propagation>,
    /// Grace in seconds; `None`: what the object says. Only pods have grace.
    pub grace: Option<i64>,
    /// Precondition.
    pub uid: Option<String>,
    /// Precondition.
    pub version: Option<String>,
}

impl DeleteOptions {
    /// At once, without grace.
    pub fn now() -> Self {
        Self { grace: Some(0), ..Self::default() }
    }
}

/// What a delete did.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// The object is gone; this was its last state.
    Gone(ObjectRef),
    /// The object is marked and waits for finalizers or its grace period.
    Marked(ObjectRef),
}

impl Cluster {
    /// Deletes an object, or marks it where finalizers or a grace period hold it.
    pub(crate) fn delete(
        &self,
        key: &Key,
        options: &DeleteOptions,
        writer: &mut Writer,
    ) -> Result<Deleted, Status> {
        loop {
            let current = self.store().get(key).ok_or_else(|| Status::not_found(key.resource, &key.name))?;
            check_preconditions(key, &current, options)?;
            let next = marked(key, &current.value, options);
            let result = if is_finished(&next) {
                if writer.dry_run {
                    return Ok(Deleted::Gone(current));
                }
                self.store().remove(key, current.version, None).map(Deleted::Gone)
            } else if next == current.value || writer.dry_run {
                return Ok(Deleted::Marked(current));
            } else {
                self.store().replace(key, current.version, next).map(Deleted::Marked)
            };
            match result {
                Ok(done) => return Ok(done),
                Err(WriteError::Changed(_)) => {}
                Err(WriteError::NotFound) => return Err(Status::not_found(key.resource, &key.name)),
                Err(other) => return Err(unrecorded(&other)),
            }
        }
    }
}

fn check_preconditions(key: &Key, current: &ObjectRef, options: &DeleteOptions) -> Result<(), Status> {
    let conflict = |text: String| {
        let kind = key.resource.kind;
        let message = format!("Operation cannot be fulfilled on {kind} \"{}\": {text}", key.name);
        let details = Details {
            name: key.name.to_string(),
            group: key.resource.group.to_owned(),
            kind: kind.to_owned(),
            ..Details::default()
        };
        Status::new(409, "Conflict", message, Some(details))
    };
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != current.uid()) {
        return Err(conflict(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). \
             The object might have been deleted and then recreated",
            current.uid()
        )));
    }
    let version = current.version.to_string();
    if let Some(demanded) = options.version.as_deref().filter(|v| *v != version) {
        return Err(conflict(format!(
            "the ResourceVersion in the precondition ({demanded}) does not match the ResourceVersion in record \
             ({version}). The object might have been modified"
        )));
    }
    Ok(())
}

/// The object with the marks of a deletion: timestamp, grace, finalizers of the propagation, generation.
fn marked(key: &Key, current: &Value, options: &DeleteOptions) -> Value {
    let mut next = current.clone();
    match options.propagation {
        Some(Propagation::Foreground) => object::add_finalizer(&mut next, "foregroundDeletion"),
        Some(Propagation::Orphan) => object::add_finalizer(&mut next, "orphan"),
        Some(Propagation::Background) | None => {}
    }
    let first = object::deletion_timestamp(&next).is_none();
    if *key.resource == NAMESPACES {
        if first {
            object::meta_mut(&mut next).insert("deletionTimestamp".into(), object::now().into());
            object::child_mut(&mut next, "status").insert("phase".into(), "Terminating".into());
        }
        return next;
    }
    let grace = if *key.resource == PODS { pod_grace(current, options) } else { 0 };
    let meta = object::meta_mut(&mut next);
    if first {
        let at = crate::clock::now() + time::Duration::seconds(grace);
        meta.insert("deletionTimestamp".into(), object::timestamp(at).into());
        meta.insert("deletionGracePeriodSeconds".into(), grace.into());
        if let Some(generation) = meta.get("generation").and_then(Value::as_i64) {
            meta.insert("generation".into(), (generation + 1).into());
        }
    } else if *key.resource == PODS
        && meta.get("deletionGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|old| grace < old)
    {
        meta.insert("deletionGracePeriodSeconds".into(), json!(grace));
    }
    next
}

/// A pod that no kubelet runs needs no grace; one that is over neither.
fn pod_grace(pod: &Value, options: &DeleteOptions) -> i64 {
    let over = matches!(object::text_at(pod, "status.phase"), "Succeeded" | "Failed");
    if object::text_at(pod, "spec.nodeName").is_empty() || over {
        return 0;
    }
    let own = object::at(pod, "spec.terminationGracePeriodSeconds").and_then(Value::as_i64);
    options.grace.or(own).unwrap_or(30).max(0)
}
