//! Which fields a kind has: enough to name unknown ones, as the real server does.
//!
//! `kubevirt.json` holds the field names and types of VM and VMI specs, in the shape of an example: an object of
//! fields, a list of one element, or the name of a type (`=X` refers to another entry). Built-in kinds are known by
//! their top-level fields and their metadata.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::resource::{self, Resource};

static KUBEVIRT: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("schema/kubevirt.json")).expect("the file is part of this crate")
});

/// The shape of the `spec` of a KubeVirt kind (`VirtualMachine`, `VirtualMachineInstance`).
pub fn kubevirt_spec(kind: &str) -> Option<&'static Value> {
    KUBEVIRT.get(kind)
}

/// Follows a `=Kind` reference of the shape.
pub fn resolve(shape: &'static Value) -> &'static Value {
    let reference = shape.as_str().and_then(|text| text.strip_prefix('='));
    reference.and_then(kubevirt_spec).unwrap_or(shape)
}

const METADATA: &[&str] = &[
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

fn top_level(resource: &Resource) -> Option<&'static [&'static str]> {
    Some(match resource.kind {
        "Secret" => &["data", "immutable", "stringData", "type"],
        "ConfigMap" => &["binaryData", "data", "immutable"],
        "ServiceAccount" => &["automountServiceAccountToken", "imagePullSecrets", "secrets"],
        "Namespace"
        | "Pod"
        | "PersistentVolume"
        | "PersistentVolumeClaim"
        | "ResourceQuota"
        | "Node"
        | "Service"
        | "VirtualMachine"
        | "VirtualMachineInstance"
        | "DataVolume" => &["spec", "status"],
        "NetworkPolicy" | "NetworkAttachmentDefinition" | "LimitRange" => &["spec"],
        "Role" => &["rules"],
        "ClusterRole" => &["aggregationRule", "rules"],
        "RoleBinding" | "ClusterRoleBinding" => &["roleRef", "subjects"],
        _ => return None,
    })
}

/// Removes the fields that the kind does not have and returns their paths.
pub(crate) fn prune(resource: &Resource, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    let Some(known) = top_level(resource) else { return unknown };
    if let Some(map) = object.as_object_mut() {
        keep(map, "", &mut unknown, |key| {
            known.contains(&key) || matches!(key, "apiVersion" | "kind" | "metadata")
        });
    }
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        keep(meta, "metadata.", &mut unknown, |key| METADATA.contains(&key));
    }
    if *resource == resource::VIRTUAL_MACHINES || *resource == resource::VIRTUAL_MACHINE_INSTANCES {
        let shape = kubevirt_spec(resource.kind);
        if let (Some(shape), Some(spec)) = (shape, object.get_mut("spec")) {
            walk(shape, spec, "spec", &mut unknown);
        }
    }
    unknown
}

fn keep(map: &mut Map<String, Value>, prefix: &str, unknown: &mut Vec<String>, known: impl Fn(&str) -> bool) {
    map.retain(|key, _| {
        let stays = known(key);
        if !stays {
            unknown.push(format!("{prefix}{key}"));
        }
        stays
    });
}

fn walk(shape: &'static Value, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    let shape = resolve(shape);
    if let (Some(fields), Some(map)) = (shape.as_object(), value.as_object_mut()) {
        keep(map, &format!("{path}."), unknown, |key| fields.contains_key(key));
        for (key, child) in map {
            if let Some(shape) = fields.get(key) {
                walk(shape, child, &format!("{path}.{key}"), unknown);
            }
        }
    } else if let (Some([element]), Some(list)) = (shape.as_array().map(Vec::as_slice), value.as_array_mut())
    {
        for (i, child) in list.iter_mut().enumerate() {
            walk(element, child, &format!("{path}[{i}]"), unknown);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_are_named_and_dropped() {
        let mut vm = json!({
            "metadata": {"name": "a", "colour": 1},
            "spec": {"bogus": 1, "runStrategy": "Once", "template": {"spec": {
                "domain": {"fooBar": 1, "devices": {"disks": [{"name": "a", "zz": 1}]}},
                "volumes": [{"name": "a", "containerDisk": {"image": "i"}}],
            }}},
        });
        let unknown = prune(&resource::VIRTUAL_MACHINES, &mut vm);
        assert_eq!(
            unknown,
            [
                "metadata.colour",
                "spec.bogus",
                "spec.template.spec.domain.fooBar",
                "spec.template.spec.domain.devices.disks[0].zz"
            ]
        );
        assert!(prune(&resource::VIRTUAL_MACHINES, &mut vm).is_empty());
        assert!(vm["spec"].get("bogus").is_none());
    }
}
