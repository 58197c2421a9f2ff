//! The four kinds of patch.

use http::HeaderMap;
use serde_json::{Map, Value};

use super::body::{go_error, media_type};
use crate::resource::Resource;
use crate::status::{Details, Status};

/// A patch that was understood.
#[derive(Debug, Clone)]
pub(super) enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

impl Patch {
    pub(super) fn read(resource: &Resource, headers: &HeaderMap, body: &[u8]) -> Result<Self, Status> {
        let media = media_type(headers);
        match media {
            "application/json-patch+json" => {
                let operations: Vec<Value> =
                    serde_json::from_slice(body).map_err(|error| cannot_decode(&error, body))?;
                serde_json::from_value(Value::Array(operations))
                    .map(Self::Json)
                    .map_err(|error| Status::bad_request(format!("the patch cannot be read: {error}")))
            }
            "application/merge-patch+json" => object(body).map(Self::Merge),
            "application/strategic-merge-patch+json" if resource.custom => {
                Err(Status::unsupported_media_type(
                    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                ))
            }
            "application/strategic-merge-patch+json" => object(body).map(Self::Strategic),
            "application/apply-patch+yaml" => {
                let text = std::str::from_utf8(body).unwrap_or_default();
                let parsed = serde_json::from_str(text).ok().or_else(|| serde_saphyr::from_str(text).ok());
                let config: Option<Value> = parsed.filter(Value::is_object);
                config
                    .map(Self::Apply)
                    .ok_or_else(|| Status::bad_request("error decoding YAML: the patch is not an object"))
            }
            _ => {
                let message = "415: Unsupported Media Type";
                Err(Status::new(415, "UnsupportedMediaType", message, Some(Details::default())))
            }
        }
    }
}

fn object(body: &[u8]) -> Result<Value, Status> {
    let value: Value = serde_json::from_slice(body).map_err(|error| cannot_decode(&error, body))?;
    if value.is_object() { Ok(value) } else { Err(Status::bad_request("the patch is not an object")) }
}

fn cannot_decode(error: &serde_json::Error, body: &[u8]) -> Status {
    Status::bad_request(format!("error decoding patch: {}", go_error(error, body)))
}

/// The object with the patch on it.
pub(super) fn patched(resource: &Resource, patch: &Patch, current: &Value) -> Result<Value, Status> {
    let mut next = current.clone();
    match patch {
        Patch::Json(patch) => {
            json_patch::patch(&mut next, patch).map_err(|_| {
                let message = "the server rejected our request due to an error in our request";
                Status::new(422, "Invalid", message, Some(Details::default()))
            })?;
        }
        Patch::Merge(patch) => json_patch::merge(&mut next, patch),
        Patch::Strategic(patch) => strategic(resource, "", &mut next, patch),
        Patch::Apply(_) => {}
    }
    if next.is_object() { Ok(next) } else { Err(Status::bad_request("the patched object is no object")) }
}

/// The key by which a list of objects is merged; `Some("")`: a set of scalars; `None`: replaced as a whole.
fn merge_key(path: &str) -> Option<&'static str> {
    Some(match path {
        "metadata.finalizers" => "",
        "metadata.ownerReferences" => "uid",
        "status.conditions" | "status.addresses" => "type",
        "spec.containers"
        | "spec.initContainers"
        | "spec.volumes"
        | "spec.containers.env"
        | "spec.initContainers.env"
        | "spec.imagePullSecrets"
        | "imagePullSecrets"
        | "secrets" => "name",
        "spec.containers.ports" => "containerPort",
        "spec.containers.volumeMounts" | "spec.initContainers.volumeMounts" => "mountPath",
        "spec.ports" => "port",
        _ => return None,
    })
}

fn strategic(resource: &Resource, path: &str, target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *target = Value::Object(without_directives(patch));
            return;
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return;
        }
        Some(_) | None => {}
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().cloned().unwrap_or_default();
            if let Some(items) = map.get_mut(list).and_then(Value::as_array_mut) {
                items.retain(|item| !gone.contains(item));
            }
        } else if key.starts_with('$') {
            // Orders of list elements are not kept here.
        } else if value.is_null() {
            map.remove(key);
        } else {
            let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let child = map.entry(key.clone()).or_insert(Value::Null);
            match (merge_key(&below), value.as_array()) {
                (Some(by), Some(items)) => merge_list(resource, &below, child, items, by),
                _ => strategic(resource, &below, child, value),
            }
        }
    }
}

fn merge_list(resource: &Resource, path: &str, target: &mut Value, patch: &[Value], by: &str) {
    let directive = |item: &Value, wanted: &str| item.get("$patch").and_then(Value::as_str) == Some(wanted);
    let mut list = target.as_array().cloned().unwrap_or_default();
    if patch.iter().any(|item| directive(item, "replace")) {
        list.clear();
    }
    for item in patch.iter().filter(|item| !directive(item, "replace")) {
        if by.is_empty() {
            if !list.contains(item) {
                list.push(item.clone());
            }
            continue;
        }
        let position = list.iter().position(|old| old.get(by).is_some() && old.get(by) == item.get(by));
        match position {
            Some(i) if directive(item, "delete") => {
                list.remove(i);
            }
            Some(i) => strategic(resource, path, &mut list[i], item),
            None if directive(item, "delete") => {}
            None => list.push(item.clone()),
        }
    }
    *target = Value::Array(list);
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    patch.iter().filter(|(key, _)| !key.starts_with('$')).map(|(k, v)| (k.clone(), v.clone())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::PODS;

    #[test]
    fn strategic_merge_knows_the_lists_of_pods() {
        let pod = json!({
            "metadata": {"finalizers": ["a/a"], "labels": {"x": "1", "y": "2"}},
            "spec": {"containers": [{"name": "c", "image": "1"}, {"name": "d", "image": "1"}]},
            "status": {"conditions": [{"type": "Ready", "status": "False"}]},
        });
        let patch = json!({
            "metadata": {"finalizers": ["b/b"], "labels": {"y": null}},
            "spec": {"containers": [{"name": "c", "image": "2"}, {"name": "d", "$patch": "delete"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "X"}]},
        });
        let next = patched(&PODS, &Patch::Strategic(patch), &pod).unwrap();
        assert_eq!(
            next,
            json!({
                "metadata": {"finalizers": ["a/a", "b/b"], "labels": {"x": "1"}},
                "spec": {"containers": [{"name": "c", "image": "2"}]},
                "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "X"}]},
            })
        );
    }
}
