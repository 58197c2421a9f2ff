//! From a VirtualMachine to its VirtualMachineInstance: a pure function, with the defaults that KubeVirt fills in.

use serde_json::{Map, Value, json};

use super::names::{CONTROLLER_FINALIZER, FOREGROUND_FINALIZER, GENERATION};
use crate::object;

/// The instance of a VM, as virt-controller creates it.
pub(super) fn instance(vm: &Value) -> Value {
    let template = object::at(vm, "spec.template").cloned().unwrap_or_default();
    let generation = object::at(vm, "metadata.generation").and_then(Value::as_i64).unwrap_or(1);
    let mut annotations =
        template.pointer("/metadata/annotations").and_then(Value::as_object).cloned().unwrap_or_default();
    annotations.insert(GENERATION.into(), generation.to_string().into());
    let mut vmi = json!({
        "metadata": {
            "name": object::name(vm),
            "namespace": object::namespace(vm),
            "annotations": annotations,
            "finalizers": [CONTROLLER_FINALIZER, FOREGROUND_FINALIZER],
            "ownerReferences": [object::controller_reference(vm)],
        },
        "spec": template.get("spec").cloned().unwrap_or_else(|| json!({})),
    });
    if let Some(labels) = template.pointer("/metadata/labels") {
        vmi["metadata"]["labels"] = labels.clone();
    }
    default_spec(&mut vmi["spec"]);
    let revision = format!("revision-start-vm-{}-{generation}", object::uid(vm));
    vmi["status"] = json!({"virtualMachineRevisionName": revision});
    vmi
}

/// What the mutating webhook fills into the spec of an instance.
pub(super) fn default_spec(spec: &mut Value) {
    set(spec, "architecture", || json!("amd64"));
    set(spec, "evictionStrategy", || json!("None"));
    let domain = object::child_mut(spec, "domain");
    domain.entry("machine").or_insert_with(|| json!({"type": "q35"}));
    let features = child(domain, "features");
    features.entry("acpi").or_insert_with(|| json!({}));
    if let Some(acpi) = features.get_mut("acpi").and_then(Value::as_object_mut) {
        acpi.entry("enabled").or_insert_with(|| json!(true));
    }
    let cpu = child(domain, "cpu");
    for (key, value) in [("cores", json!(1)), ("sockets", json!(1)), ("threads", json!(1))] {
        cpu.entry(key).or_insert(value);
    }
    cpu.entry("model").or_insert_with(|| json!("host-model"));
    let sockets = cpu.get("sockets").and_then(Value::as_i64).unwrap_or(1);
    cpu.entry("maxSockets").or_insert_with(|| json!(sockets * 4));
    memory(domain);
    network(spec);
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(disk) = volume.get_mut("containerDisk").and_then(Value::as_object_mut) else { continue };
        let image = disk.get("image").and_then(Value::as_str).unwrap_or_default();
        let floats = !image.contains('@')
            && (image.ends_with(":latest") || !image.rsplit('/').next().unwrap_or_default().contains(':'));
        let policy = if floats { "Always" } else { "IfNotPresent" };
        disk.entry("imagePullPolicy").or_insert_with(|| json!(policy));
    }
}

/// Each of "what the guest sees" and "what the pod asks for" follows from the other.
fn memory(domain: &mut Map<String, Value>) {
    let asked = domain.get("resources").and_then(|r| r.pointer("/requests/memory")).cloned();
    let guest = domain.get("memory").and_then(|m| m.get("guest")).cloned();
    match (guest, asked) {
        (None, Some(asked)) => {
            child(domain, "memory").insert("guest".into(), asked);
        }
        (Some(guest), None) => {
            let resources = child(domain, "resources");
            child(resources, "requests").insert("memory".into(), guest);
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
}

fn network(spec: &mut Value) {
    let wanted = object::at(spec, "domain.devices.autoattachPodInterface").and_then(Value::as_bool);
    let has = |path: &str| object::at(spec, path).and_then(Value::as_array).is_some_and(|l| !l.is_empty());
    if wanted == Some(false) || has("domain.devices.interfaces") || has("networks") {
        return;
    }
    spec["networks"] = json!([{"name": "default", "pod": {}}]);
    let devices = child(object::child_mut(spec, "domain"), "devices");
    devices.insert("interfaces".into(), json!([{"name": "default", "bridge": {}}]));
}

fn set(value: &mut Value, key: &str, default: impl FnOnce() -> Value) {
    if value.get(key).is_none() {
        value[key] = default();
    }
}

fn child<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let entry = map.entry(key).or_insert_with(|| json!({}));
    if !entry.is_object() {
        *entry = json!({});
    }
    entry.as_object_mut().expect("it was just made an object")
}

/// The status of a fresh instance.
pub(super) fn first_status(spec: &Value, known: &Value) -> Value {
    let number =
        |key: &str| object::at(spec, &format!("domain.cpu.{key}")).cloned().unwrap_or_else(|| json!(1));
    let mut status = json!({
        "currentCPUTopology": {"cores": number("cores"), "sockets": number("sockets"), "threads": number("threads")},
        "guestOSInfo": {},
        "phase": "Pending",
        "phaseTransitionTimestamps": [{"phase": "Pending", "phaseTransitionTimestamp": object::now()}],
        "runtimeUser": 107,
    });
    if let Some(guest) = object::at(spec, "domain.memory.guest") {
        status["memory"] = json!({"guestAtBoot": guest, "guestCurrent": guest, "guestRequested": guest});
    }
    if let Some(revision) = known.get("virtualMachineRevisionName") {
        status["virtualMachineRevisionName"] = revision.clone();
    }
    status
}

/// Bytes of a Kubernetes quantity, where it is one.
pub(super) fn bytes(quantity: &Value) -> Option<u64> {
    if let Some(number) = quantity.as_u64() {
        return Some(number);
    }
    let text = quantity.as_str()?;
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale: f64 = match unit {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        "Ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let value = number.parse::<f64>().ok()? * scale;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be a plausible size"
    )]
    (value.is_finite() && (0.0..1e18).contains(&value)).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantity_is_read_in_every_unit() {
        assert_eq!(bytes(&json!("128Mi")), Some(134_217_728));
        assert_eq!(bytes(&json!("1.5Gi")), Some(1_610_612_736));
        assert_eq!(bytes(&json!("2G")), Some(2_000_000_000));
        assert_eq!(bytes(&json!("536870912")), Some(536_870_912));
        assert_eq!(bytes(&json!("many")), None);
    }

    #[test]
    fn instance_without_an_interface_gets_the_bridge_on_the_pod_network() {
        let mut spec = json!({"domain": {"devices": {}, "resources": {"requests": {"memory": "64Mi"}}}});
        default_spec(&mut spec);
        assert_eq!(spec["domain"]["devices"]["interfaces"], json!([{"name": "default", "bridge": {}}]));
        assert_eq!(spec["networks"], json!([{"name": "default", "pod": {}}]));
        assert_eq!(spec["domain"]["memory"]["guest"], "64Mi");
    }
}
