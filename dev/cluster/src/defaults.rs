//! What the server fills in when an object is created.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::object::{self, child_mut};
use crate::resource::{self, Resource};

/// Fills in the defaults of a new object.
pub(crate) fn on_create(resource: &Resource, object: &mut Value) {
    if !resource.custom {
        drop_nulls(object);
    }
    always(resource, object);
    if *resource == resource::NAMESPACES {
        let name = object::name(object).to_owned();
        child_mut(object, "spec").insert("finalizers".into(), json!(["kubernetes"]));
        object["status"] = json!({"phase": "Active"});
        let labels = object::meta_mut(object).entry("labels").or_insert_with(|| json!({}));
        labels["kubernetes.io/metadata.name"] = name.into();
    } else if *resource == resource::PERSISTENT_VOLUME_CLAIMS {
        object::add_finalizer(object, "kubernetes.io/pvc-protection");
        object["status"] = json!({"phase": "Pending"});
    } else if *resource == resource::PERSISTENT_VOLUMES {
        object::add_finalizer(object, "kubernetes.io/pv-protection");
        object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": object::now()});
    } else if *resource == resource::RESOURCE_QUOTAS {
        object["status"] = json!({});
    } else if *resource == resource::PODS {
        object["status"] = json!({"phase": "Pending", "qosClass": qos_class(object)});
    } else if *resource == resource::NODES {
        node(object);
    }
}

/// KubeVirt's webhooks write an object through its types, which leave empty lists and maps of labels out.
fn without_empties(spec: &mut Value) {
    if let Some(map) = spec.as_object_mut() {
        map.retain(|key, value| {
            let labels = matches!(key.as_str(), "labels" | "annotations");
            let empty_map = labels && value.as_object().is_some_and(serde_json::Map::is_empty);
            !empty_map && !value.as_array().is_some_and(Vec::is_empty)
        });
        map.values_mut().for_each(without_empties);
    } else if let Some(list) = spec.as_array_mut() {
        list.iter_mut().for_each(without_empties);
    }
}

/// Defaults that also hold for updates.
pub(crate) fn always(resource: &Resource, object: &mut Value) {
    if *resource == resource::SECRETS {
        secret(object);
    } else if *resource == resource::PERSISTENT_VOLUME_CLAIMS {
        child_mut(object, "spec").entry("volumeMode").or_insert_with(|| json!("Filesystem"));
    } else if *resource == resource::PERSISTENT_VOLUMES {
        let spec = child_mut(object, "spec");
        spec.entry("volumeMode").or_insert_with(|| json!("Filesystem"));
        spec.entry("persistentVolumeReclaimPolicy").or_insert_with(|| json!("Retain"));
        if spec.get("storageClassName").and_then(Value::as_str) == Some("") {
            spec.remove("storageClassName");
        }
        if let Some(path) = spec.get_mut("hostPath").and_then(Value::as_object_mut) {
            path.entry("type").or_insert_with(|| json!(""));
        }
    } else if *resource == resource::NETWORK_POLICIES {
        let spec = child_mut(object, "spec");
        let types =
            if spec.contains_key("egress") { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        spec.entry("podSelector").or_insert_with(|| json!({}));
        spec.entry("policyTypes").or_insert(types);
    } else if *resource == resource::PODS {
        let spec = child_mut(object, "spec");
        spec.entry("restartPolicy").or_insert_with(|| json!("Always"));
        spec.entry("terminationGracePeriodSeconds").or_insert_with(|| json!(30));
        spec.entry("dnsPolicy").or_insert_with(|| json!("ClusterFirst"));
        spec.entry("schedulerName").or_insert_with(|| json!("default-scheduler"));
    } else if resource.group == resource::ROLES.group {
        role_binding(object);
    } else if (*resource == resource::VIRTUAL_MACHINES || *resource == resource::VIRTUAL_MACHINE_INSTANCES)
        && let Some(spec) = object.get_mut("spec")
    {
        without_empties(spec);
    }
}

fn secret(object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    if let Some(Value::Object(plain)) = map.remove("stringData") {
        let mut data = map.remove("data").unwrap_or_else(|| json!({}));
        for (key, text) in plain {
            data[&key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
        }
        map.insert("data".into(), data);
    }
    if map.get("data").and_then(Value::as_object).is_some_and(serde_json::Map::is_empty) {
        map.remove("data");
    }
    if map.get("type").and_then(Value::as_str).unwrap_or_default().is_empty() {
        map.insert("type".into(), json!("Opaque"));
    }
}

fn role_binding(object: &mut Value) {
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        let is_account = subject.get("kind").and_then(Value::as_str) == Some("ServiceAccount");
        if let Some(map) = subject.as_object_mut().filter(|_| !is_account) {
            map.entry("apiGroup").or_insert_with(|| json!("rbac.authorization.k8s.io"));
        }
    }
    if let Some(reference) = object.get_mut("roleRef").and_then(Value::as_object_mut) {
        reference.entry("apiGroup").or_insert_with(|| json!("rbac.authorization.k8s.io"));
    }
}

/// The class of a pod: which of requests and limits its containers name.
fn qos_class(pod: &Value) -> &'static str {
    let lists = ["spec.containers", "spec.initContainers"]
        .map(|path| object::at(pod, path).and_then(Value::as_array));
    let resources: Vec<&Value> =
        lists.into_iter().flatten().flatten().map(|c| c.get("resources").unwrap_or(&Value::Null)).collect();
    let part = |r: &Value, part: &str, name: &str| r.get(part).and_then(|p| p.get(name)).cloned();
    let names = ["cpu", "memory"];
    let any =
        |r: &&Value| names.iter().any(|n| part(r, "requests", n).is_some() || part(r, "limits", n).is_some());
    let full = |r: &&Value| {
        names.iter().all(|n| {
            let limit = part(r, "limits", n);
            limit.is_some() && part(r, "requests", n).is_none_or(|request| Some(request) == limit)
        })
    };
    if !resources.iter().any(any) {
        "BestEffort"
    } else if resources.iter().all(full) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

fn node(object: &mut Value) {
    let taint = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    child_mut(object, "spec").entry("taints").or_insert(taint);
    object["status"] = json!({
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": {
            "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
            "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "",
            "architecture": "",
        },
    });
}

/// A typed server does not keep a null.
fn drop_nulls(value: &mut Value) {
    if let Some(map) = value.as_object_mut() {
        map.retain(|key, v| !v.is_null() || key == "eventTime");
        map.values_mut().for_each(drop_nulls);
    } else if let Some(list) = value.as_array_mut() {
        list.iter_mut().for_each(drop_nulls);
    }
}
