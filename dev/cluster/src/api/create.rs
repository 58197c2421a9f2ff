//! Creating objects.

use std::sync::PoisonError;

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Cluster, Writer, unrecorded};
use crate::admission::{AdmissionRequest, Operation};
use crate::object;
use crate::resource::{NAMESPACES, Resource};
use crate::status::{Cause, Status};
use crate::store::{Key, ObjectRef, WriteError};
use crate::{defaults, managed, quota, validate};

impl Cluster {
    /// Creates an object in `namespace` (empty for cluster-scoped resources).
    pub(crate) fn create(
        &self,
        resource: &'static Resource,
        namespace: &str,
        object: Value,
        writer: &mut Writer,
    ) -> Result<ObjectRef, Status> {
        self.create_as(resource, namespace, object, "Update", writer)
    }

    /// The same for an apply that found nothing: its manager owns the fields as applied ones.
    pub(crate) fn create_applied(
        &self,
        resource: &'static Resource,
        namespace: &str,
        object: Value,
        writer: &mut Writer,
    ) -> Result<ObjectRef, Status> {
        self.create_as(resource, namespace, object, "Apply", writer)
    }

    fn create_as(
        &self,
        resource: &'static Resource,
        namespace: &str,
        mut object: Value,
        operation: &str,
        writer: &mut Writer,
    ) -> Result<ObjectRef, Status> {
        if !object.is_object() {
            object = json!({});
        }
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.into();
        let generated = name_it(&mut object);
        prepare(resource, namespace, &mut object);
        defaults::on_create(resource, &mut object);
        self.namespace_takes(resource, namespace, object::name(&object))?;
        let sent = (operation == "Apply").then(|| object.clone());
        self.mutate(resource, "", None, &mut object, writer)?;
        validate::on_create(resource, &object)?;
        self.validate(resource, "", None, &object, writer)?;
        if let Some(manager) = writer.manager.clone() {
            // What hooks add belongs to nobody who applies.
            let owned = sent.as_ref();
            managed::on_create(&mut object, owned, &manager, operation);
        }
        let key = Key::new(resource, namespace, object::name(&object));
        let _lock = self.0.quota.lock().unwrap_or_else(PoisonError::into_inner);
        quota::admit(self.store(), &key, &object)?;
        if writer.dry_run {
            return match self.store().get(&key) {
                Some(existing) => Err(exists(&existing)),
                None => Ok(std::sync::Arc::new(crate::store::Object::unstored(key, object))),
            };
        }
        match self.store().create(key, object) {
            Ok(stored) => Ok(stored),
            Err(WriteError::Exists(_)) if generated => Err(Status::new(
                409,
                "AlreadyExists",
                format!("{} could not be given a unique name", resource.plural),
                None,
            )),
            Err(WriteError::Exists(existing)) => Err(exists(&existing)),
            Err(other) => Err(unrecorded(&other)),
        }
    }

    /// 404 where the namespace does not exist, 403 where it is on its way out.
    fn namespace_takes(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
    ) -> Result<(), Status> {
        if !resource.namespaced {
            return Ok(());
        }
        let Some(found) = self.store().get(&Key::new(&NAMESPACES, "", namespace)) else {
            return Err(Status::not_found(&NAMESPACES, namespace));
        };
        if object::deletion_timestamp(&found.value).is_none() {
            return Ok(());
        }
        let because =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let refusal = Status::forbidden(resource, name, &because);
        let mut details = refusal.details().cloned().unwrap_or_default();
        details.causes.push(Cause::new(
            "NamespaceTerminating",
            format!("namespace {namespace} is being terminated"),
            "metadata.namespace",
        ));
        Err(Status::new(403, "Forbidden", refusal.message(), Some(details)))
    }

    pub(super) fn mutate(
        &self,
        resource: &'static Resource,
        subresource: &str,
        old: Option<&Value>,
        object: &mut Value,
        writer: &Writer,
    ) -> Result<(), Status> {
        for hook in self.0.admission.iter().filter(|h| h.wants(resource, subresource)) {
            let namespace = object::namespace(object).to_owned();
            let request = self.request(resource, subresource, &namespace, old, writer);
            hook.mutate(&request, object)?;
        }
        Ok(())
    }

    pub(super) fn validate(
        &self,
        resource: &'static Resource,
        subresource: &str,
        old: Option<&Value>,
        object: &Value,
        writer: &mut Writer,
    ) -> Result<(), Status> {
        for hook in self.0.admission.iter().filter(|h| h.wants(resource, subresource)) {
            let request = self.request(resource, subresource, object::namespace(object), old, writer);
            let warnings = hook.validate(&request, object)?;
            writer.warnings.extend(warnings);
        }
        Ok(())
    }

    fn request<'a>(
        &'a self,
        resource: &'static Resource,
        subresource: &'a str,
        namespace: &'a str,
        old: Option<&'a Value>,
        writer: &'a Writer,
    ) -> AdmissionRequest<'a> {
        AdmissionRequest {
            operation: if old.is_some() { Operation::Update } else { Operation::Create },
            resource,
            subresource,
            namespace,
            old,
            user: &writer.user,
            dry_run: writer.dry_run,
            store: self.store(),
        }
    }
}

fn exists(existing: &ObjectRef) -> Status {
    let terminating = object::deletion_timestamp(&existing.value).is_some();
    Status::already_exists(existing.key.resource, &existing.key.name, terminating)
}

/// Makes a name from `generateName`; whether it did.
fn name_it(object: &mut Value) -> bool {
    let meta = object::meta_mut(object);
    let has_name = meta.get("name").and_then(Value::as_str).is_some_and(|n| !n.is_empty());
    let base = meta.get("generateName").and_then(Value::as_str).unwrap_or_default();
    if has_name || base.is_empty() {
        return false;
    }
    let kept: String = base.chars().take(58).collect();
    let name = format!("{kept}{}", suffix());
    meta.insert("name".into(), name.into());
    true
}

/// Five characters that spell no words.
fn suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5).map(|_| char::from(LETTERS[rand::random_range(0..LETTERS.len())])).collect()
}

/// Sets what only the server sets.
fn prepare(resource: &Resource, namespace: &str, object: &mut Value) {
    let meta = object::meta_mut(object);
    for key in
        ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "selfLink", "managedFields"]
    {
        meta.remove(key);
    }
    meta.retain(|_, value| !value.is_null());
    if resource.namespaced {
        meta.insert("namespace".into(), namespace.into());
    } else {
        meta.remove("namespace");
    }
    meta.insert("uid".into(), Uuid::new_v4().to_string().into());
    meta.insert("creationTimestamp".into(), object::now().into());
    if resource.generation {
        meta.insert("generation".into(), 1.into());
    } else {
        meta.remove("generation");
    }
    if resource.status
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
    }
    for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let meta = object::meta_mut(object);
        let empty = meta.get(key).is_some_and(|v| {
            v.as_array().is_some_and(Vec::is_empty) || v.as_object().is_some_and(serde_json::Map::is_empty)
        });
        if empty {
            meta.remove(key);
        }
    }
}
