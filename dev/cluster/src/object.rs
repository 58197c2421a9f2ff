//! Reading and changing the metadata of objects, which are plain JSON here.
//!
//! An object is kept as `serde_json::Value`: the cluster must hand back every field that it was given, also those it
//! knows nothing about.

use serde_json::{Map, Value, json};
use time::OffsetDateTime;

/// The moment in the form that Kubernetes writes (`2026-12-01T12:50:14Z`).
pub fn timestamp(at: OffsetDateTime) -> String {
    let at = at.to_offset(time::UtcOffset::UTC);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second()
    )
}

/// The present moment in the form that Kubernetes writes.
pub fn now() -> String {
    timestamp(crate::clock::now())
}

/// `metadata`, where it is an object.
pub fn meta(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.as_object()
}

/// `metadata`, made where it is missing or of another type.
pub fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    child_mut(object, "metadata")
}

/// The object under `key`, made where it is missing or of another type.
pub fn child_mut<'a>(parent: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    as_map(map_entry(as_map(parent), key))
}

fn map_entry<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Value {
    map.entry(key).or_insert_with(|| json!({}))
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("it was just made an object")
}

fn meta_str<'a>(object: &'a Value, key: &str) -> &'a str {
    meta(object).and_then(|m| m.get(key)).and_then(Value::as_str).unwrap_or_default()
}

/// `metadata.name`, empty where absent.
pub fn name(object: &Value) -> &str {
    meta_str(object, "name")
}

/// `metadata.namespace`, empty where absent.
pub fn namespace(object: &Value) -> &str {
    meta_str(object, "namespace")
}

/// `metadata.uid`, empty where absent.
pub fn uid(object: &Value) -> &str {
    meta_str(object, "uid")
}

/// `metadata.resourceVersion`, empty where absent.
pub fn resource_version(object: &Value) -> &str {
    meta_str(object, "resourceVersion")
}

/// `metadata.deletionTimestamp`, where the object is being deleted.
pub fn deletion_timestamp(object: &Value) -> Option<&str> {
    meta(object)?.get("deletionTimestamp")?.as_str()
}

/// One label.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    meta(object)?.get("labels")?.get(key)?.as_str()
}

/// One annotation.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    meta(object)?.get("annotations")?.get(key)?.as_str()
}

/// `metadata.finalizers`.
pub fn finalizers(object: &Value) -> Vec<&str> {
    meta(object)
        .and_then(|m| m.get("finalizers"))
        .and_then(Value::as_array)
        .map(|all| all.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// Adds a finalizer, where it is not there.
pub fn add_finalizer(object: &mut Value, finalizer: &str) {
    if finalizers(object).contains(&finalizer) {
        return;
    }
    let entry = meta_mut(object).entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = entry.as_array_mut() {
        list.push(json!(finalizer));
    } else {
        *entry = json!([finalizer]);
    }
}

/// Removes a finalizer; the key goes with the last one, as in the real server.
pub fn remove_finalizer(object: &mut Value, finalizer: &str) {
    let meta = meta_mut(object);
    let Some(list) = meta.get_mut("finalizers").and_then(Value::as_array_mut) else { return };
    list.retain(|f| f.as_str() != Some(finalizer));
    if list.is_empty() {
        meta.remove("finalizers");
    }
}

/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerReference {
    /// `apiVersion` of the owner.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// uid of the owner: the only part that counts.
    pub uid: String,
    /// The one managing controller.
    pub controller: bool,
    /// The owner's foreground deletion waits for this dependent.
    pub block_owner_deletion: bool,
}

/// `metadata.ownerReferences`.
pub fn owner_references(object: &Value) -> Vec<OwnerReference> {
    let Some(list) = meta(object).and_then(|m| m.get("ownerReferences")).and_then(Value::as_array) else {
        return Vec::new();
    };
    let text = |r: &Value, key: &str| r.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let flag = |r: &Value, key: &str| r.get(key).and_then(Value::as_bool).unwrap_or_default();
    list.iter()
        .map(|r| OwnerReference {
            api_version: text(r, "apiVersion"),
            kind: text(r, "kind"),
            name: text(r, "name"),
            uid: text(r, "uid"),
            controller: flag(r, "controller"),
            block_owner_deletion: flag(r, "blockOwnerDeletion"),
        })
        .collect()
}

/// The reference by which `owner` controls another object.
pub fn controller_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner.get("apiVersion").cloned().unwrap_or_default(),
        "kind": owner.get("kind").cloned().unwrap_or_default(),
        "name": name(owner),
        "uid": uid(owner),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// The value at a dotted path (`status.phase`).
pub fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |v, key| v.get(key))
}

/// The string at a dotted path, empty where absent.
pub fn text_at<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}
