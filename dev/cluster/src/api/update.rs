//! Changing objects.

use serde_json::Value;

use super::{Cluster, Writer, unrecorded};
use crate::object;
use crate::resource::PODS;
use crate::status::Status;
use crate::store::{Key, Object, ObjectRef, WriteError};
use crate::{managed, validate};

/// How often a change that did not name a resourceVersion is tried against somebody faster.
const ATTEMPTS: usize = 50;

/// Which part of an object a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything but `status`, where the resource has a `/status`.
    Main,
    /// Only `status`.
    Status,
    /// Only `spec.finalizers` of a namespace.
    Finalize,
}

impl Part {
    /// The name in paths and in `managedFields`.
    pub fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Finalize => "finalize",
        }
    }
}

impl Cluster {
    /// Changes an object. `change` makes the next state from the current one; a `resourceVersion` or `uid` in what it
    /// returns is a precondition. Removing the last finalizer of a terminating object removes it.
    pub(crate) fn update(
        &self,
        key: &Key,
        part: Part,
        change: &mut dyn FnMut(&Value) -> Result<Value, Status>,
        writer: &mut Writer,
    ) -> Result<ObjectRef, Status> {
        for _ in 0..ATTEMPTS {
            let current = self.store().get(key).ok_or_else(|| Status::not_found(key.resource, &key.name))?;
            let mut next = change(&current.value)?;
            let demanded = object::resource_version(&next);
            if !demanded.is_empty() && demanded != current.version.to_string() {
                return Err(Status::modified(key.resource, &key.name));
            }
            check_uid(key, &current, &next)?;
            settle(key, part, &current.value, &mut next);
            let sub = part.subresource();
            self.mutate(key.resource, sub, Some(&current.value), &mut next, writer)?;
            validate::on_update(key.resource, &current.value, &next)?;
            bump_generation(key, part, &current.value, &mut next);
            if next == current.value {
                writer.warnings.extend(self.warnings_of(key, sub, &current.value, &next, writer)?);
                return Ok(current);
            }
            let warnings = self.warnings_of(key, sub, &current.value, &next, writer)?;
            if let Some(manager) = writer.manager.clone() {
                managed::on_write(&mut next, Some(&current.value), &manager, "Update", sub);
            }
            match self.swap(key, &current, next, writer.dry_run) {
                Ok(stored) => {
                    writer.warnings.extend(warnings);
                    return Ok(stored);
                }
                Err(WriteError::Changed(_)) => {}
                Err(WriteError::NotFound) => return Err(Status::not_found(key.resource, &key.name)),
                Err(other) => return Err(unrecorded(&other)),
            }
        }
        Err(Status::modified(key.resource, &key.name))
    }

    /// Server-side apply on an existing object.
    pub(crate) fn apply(
        &self,
        key: &Key,
        config: &Value,
        manager: &str,
        force: bool,
        writer: &mut Writer,
    ) -> Result<ObjectRef, Status> {
        for _ in 0..ATTEMPTS {
            let current = self.store().get(key).ok_or_else(|| Status::not_found(key.resource, &key.name))?;
            let mut next = managed::apply(&current.value, config, manager, force)?;
            let demanded = object::resource_version(config);
            if !demanded.is_empty() && demanded != current.version.to_string() {
                return Err(Status::modified(key.resource, &key.name));
            }
            let entries = object::at(&next, "metadata.managedFields").cloned();
            settle(key, Part::Main, &current.value, &mut next);
            self.mutate(key.resource, "", Some(&current.value), &mut next, writer)?;
            validate::on_update(key.resource, &current.value, &next)?;
            bump_generation(key, Part::Main, &current.value, &mut next);
            let warnings = self.warnings_of(key, "", &current.value, &next, writer)?;
            if let Some(entries) = entries {
                object::meta_mut(&mut next).insert("managedFields".into(), entries);
            }
            if next == current.value {
                return Ok(current);
            }
            match self.swap(key, &current, next, writer.dry_run) {
                Ok(stored) => {
                    writer.warnings.extend(warnings);
                    return Ok(stored);
                }
                Err(WriteError::Changed(_)) => {}
                Err(WriteError::NotFound) => return Err(Status::not_found(key.resource, &key.name)),
                Err(other) => return Err(unrecorded(&other)),
            }
        }
        Err(Status::modified(key.resource, &key.name))
    }

    fn warnings_of(
        &self,
        key: &Key,
        subresource: &str,
        old: &Value,
        next: &Value,
        writer: &Writer,
    ) -> Result<Vec<String>, Status> {
        let mut probe = Writer { warnings: Vec::new(), ..writer.clone() };
        self.validate(key.resource, subresource, Some(old), next, &mut probe)?;
        Ok(probe.warnings)
    }

    fn swap(
        &self,
        key: &Key,
        current: &ObjectRef,
        next: Value,
        dry_run: bool,
    ) -> Result<ObjectRef, WriteError> {
        if dry_run {
            return Ok(std::sync::Arc::new(Object::unstored(key.clone(), next)));
        }
        if is_finished(&next) {
            self.store().remove(key, current.version, None)?;
            return Ok(std::sync::Arc::new(Object::at_version(key.clone(), current.version, next)));
        }
        self.store().replace(key, current.version, next)
    }
}

/// Whether nothing holds a terminating object any more.
pub(super) fn is_finished(object: &Value) -> bool {
    let grace = object::at(object, "metadata.deletionGracePeriodSeconds").and_then(Value::as_i64);
    let held = object::at(object, "spec.finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty())
        && object.get("kind").and_then(Value::as_str) == Some("Namespace");
    object::deletion_timestamp(object).is_some()
        && object::finalizers(object).is_empty()
        && grace.unwrap_or_default() == 0
        && !held
}

fn check_uid(key: &Key, current: &ObjectRef, next: &Value) -> Result<(), Status> {
    let demanded = object::uid(next);
    if demanded.is_empty() || demanded == current.uid() {
        return Ok(());
    }
    let group =
        if key.resource.group.is_empty() { String::new() } else { format!("{}/", key.resource.group) };
    let text = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{group}{}/{}/{}, ResourceVersion: 0, \
         AdditionalErrorMsg: Precondition failed: UID in precondition: {demanded}, UID in object meta: {}",
        key.resource.plural,
        key.namespace,
        key.name,
        current.uid()
    );
    Err(Status::conflict(key.resource, &key.name, &text))
}

/// Puts back what a write of this part may not change.
fn settle(key: &Key, part: Part, current: &Value, next: &mut Value) {
    if part == Part::Main {
        if key.resource.status {
            copy_key(current, next, "status");
        }
    } else {
        let kept = if part == Part::Status { "status" } else { "spec" };
        let changed = next.get(kept).cloned();
        *next = current.clone();
        if let Some(map) = next.as_object_mut() {
            match changed {
                Some(value) => map.insert(kept.into(), value),
                None => map.remove(kept),
            };
        }
    }
    copy_key(current, next, "apiVersion");
    copy_key(current, next, "kind");
    let meta = object::meta_mut(next);
    let old = object::meta(current);
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
        "generateName",
        "selfLink",
        "managedFields",
    ] {
        match old.and_then(|m| m.get(field)) {
            Some(value) => meta.insert(field.into(), value.clone()),
            None => meta.remove(field),
        };
    }
    meta.retain(|_, value| !value.is_null());
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty = meta.get(field).is_some_and(|v| {
            v.as_array().is_some_and(Vec::is_empty) || v.as_object().is_some_and(serde_json::Map::is_empty)
        });
        if empty {
            meta.remove(field);
        }
    }
}

fn copy_key(from: &Value, to: &mut Value, key: &str) {
    let Some(map) = to.as_object_mut() else { return };
    match from.get(key) {
        Some(value) => map.insert(key.to_owned(), value.clone()),
        None => map.remove(key),
    };
}

/// The generation counts changes of what is wanted: of everything but `metadata` and (with `/status`) `status`.
fn bump_generation(key: &Key, part: Part, current: &Value, next: &mut Value) {
    if !key.resource.generation || part == Part::Status {
        return;
    }
    let wanted = |object: &Value| {
        let mut map = object.as_object().cloned().unwrap_or_default();
        map.remove("metadata");
        if key.resource.status {
            map.remove("status");
        }
        if *key.resource == PODS
            && let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut)
        {
            // To be placed changes nothing of what is wanted.
            spec.remove("nodeName");
        }
        map
    };
    if wanted(current) != wanted(next) {
        let generation =
            object::at(current, "metadata.generation").and_then(Value::as_i64).unwrap_or_default();
        object::meta_mut(next).insert("generation".into(), (generation + 1).into());
    }
}
