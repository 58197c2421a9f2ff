//! The status of a VirtualMachine: a pure function of the VM, its instance and its disks.

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::conditions::{self, Condition};
use super::names::GENERATION;
use super::template;
use crate::object;

/// What is known beside the VM.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Around<'a> {
    /// The VM's own instance.
    pub(super) vmi: Option<&'a Value>,
    /// A DataVolume of the VM is not done yet.
    pub(super) importing: bool,
    /// A DataVolume of the VM has failed.
    pub(super) import_failed: bool,
    /// Which of its claims exist, by volume name.
    pub(super) claims: &'a [String],
}

/// The run strategy of a VM, the deprecated `running` included.
pub(super) fn strategy(vm: &Value) -> &str {
    match object::text_at(vm, "spec.runStrategy") {
        "" => match object::at(vm, "spec.running").and_then(Value::as_bool) {
            Some(true) => "Always",
            Some(false) | None => "Halted",
        },
        named => named,
    }
}

/// Whether a phase is an end.
pub(super) fn is_final(vmi: &Value) -> bool {
    matches!(phase(vmi), "Succeeded" | "Failed")
}

/// `status.phase`.
pub(super) fn phase(vmi: &Value) -> &str {
    object::text_at(vmi, "status.phase")
}

/// Whether the instance was ever Running.
pub(super) fn ever_ran(vmi: &Value) -> bool {
    let all = object::at(vmi, "status.phaseTransitionTimestamps").and_then(Value::as_array);
    all.is_some_and(|all| all.iter().any(|entry| object::text_at(entry, "phase") == "Running"))
}

/// The first status of a VM: before anything was done for it.
pub(super) fn first(vm: &Value, around: Around<'_>) -> Value {
    let mut status = json!({"printableStatus": "Stopped"});
    show_snapshots(&mut status, snapshots(vm, around));
    status
}

/// The status that the VM should show.
pub(super) fn next(vm: &Value, around: Around<'_>, now: OffsetDateTime) -> Value {
    let mut status = vm.get("status").cloned().unwrap_or_else(|| json!({}));
    let strategy = strategy(vm).to_owned();
    conditions_from(vm, &mut status, around);
    let ready = conditions::is_true(&status, "Ready");
    flag(&mut status, "ready", ready);
    flag(&mut status, "created", around.vmi.is_some());
    let known = status.get("runStrategy").is_some();
    if around.vmi.is_some() || known {
        status["runStrategy"] = strategy.as_str().into();
        let generation = object::at(vm, "metadata.generation").cloned().unwrap_or_else(|| json!(1));
        status["desiredGeneration"] = generation;
    }
    if let Some(observed) =
        around.vmi.and_then(|vmi| object::annotation(vmi, GENERATION)?.parse::<i64>().ok())
    {
        status["observedGeneration"] = observed.into();
    }
    start_failure(&mut status, around, now);
    status["printableStatus"] = printable(vm, &status, around, &strategy).into();
    show_snapshots(&mut status, snapshots(vm, around));
    status
}

fn flag(status: &mut Value, key: &str, set: bool) {
    let Some(map) = status.as_object_mut() else { return };
    if set {
        map.insert(key.into(), true.into());
    } else {
        map.remove(key);
    }
}

/// The conditions are those of the instance; what is only the VM's own is kept.
fn conditions_from(vm: &Value, status: &mut Value, around: Around<'_>) {
    let terminating = object::deletion_timestamp(vm).is_some();
    let Some(vmi) = around.vmi else {
        // Without an instance nothing but its absence is known, and that the next one will be another.
        for old in kinds(status).into_iter().filter(|kind| kind != "Ready" && kind != "RestartRequired") {
            conditions::remove(status, &old);
        }
        conditions::set(status, Condition::not_ready("VMINotExists", "VMI does not exist"));
        return;
    };
    let own = vmi.get("status").cloned().unwrap_or_default();
    let theirs = kinds(&own);
    for old in kinds(status) {
        if old != "RestartRequired" && old != "Ready" && !theirs.contains(&old) {
            conditions::remove(status, &old);
        }
    }
    if conditions::find(&own, "Ready").is_none() {
        conditions::set(
            status,
            Condition::not_ready("VMIConditionMissing", "VMI is missing the Ready condition"),
        );
    }
    for condition in own.get("conditions").and_then(Value::as_array).into_iter().flatten() {
        conditions::put(status, condition.clone());
    }
    if restart_required(vm, vmi) && !terminating {
        conditions::set(
            status,
            Condition {
                kind: "RestartRequired",
                status: true,
                reason: "",
                message: "a non-live-updatable field was changed in the template spec",
                probed: false,
            },
        );
    } else {
        conditions::remove(status, "RestartRequired");
    }
}

fn kinds(status: &Value) -> Vec<String> {
    let list = status.get("conditions").and_then(Value::as_array);
    list.into_iter().flatten().map(|c| object::text_at(c, "type").to_owned()).collect()
}

/// Whether the template asks for another machine than the one that runs.
pub(super) fn restart_required(vm: &Value, vmi: &Value) -> bool {
    let generation = object::at(vm, "metadata.generation").and_then(Value::as_i64).unwrap_or(1).to_string();
    object::annotation(vmi, GENERATION) != Some(generation.as_str())
        && template::instance(vm).get("spec") != vmi.get("spec")
}

/// Counts starts that failed before the guest ever ran, and when the next may be tried.
fn start_failure(status: &mut Value, around: Around<'_>, now: OffsetDateTime) {
    let Some(vmi) = around.vmi else { return };
    if ever_ran(vmi) {
        if let Some(map) = status.as_object_mut() {
            map.remove("startFailure");
        }
        return;
    }
    let known = object::text_at(status, "startFailure.lastFailedVMIUID");
    if phase(vmi) != "Failed" || known == object::uid(vmi) {
        return;
    }
    let count =
        object::at(status, "startFailure.consecutiveFailCount").and_then(Value::as_i64).unwrap_or(0) + 1;
    let base = 10 * count * count;
    let delay = (base + rand::random_range(0..=base / 2)).min(300);
    status["startFailure"] = json!({
        "consecutiveFailCount": count,
        "lastFailedVMIUID": object::uid(vmi),
        "retryAfterTimestamp": object::timestamp(now + time::Duration::seconds(delay)),
    });
}

/// The first that holds, in virt-controller's order.
fn printable(vm: &Value, status: &Value, around: Around<'_>, strategy: &str) -> &'static str {
    if object::deletion_timestamp(vm).is_some() {
        return match around.vmi {
            None if around.importing => "Provisioning",
            None | Some(_) => "Terminating",
        };
    }
    if let Some(vmi) = around.vmi.filter(|vmi| !is_final(vmi)) {
        let own = vmi.get("status").cloned().unwrap_or_default();
        let because = |kind: &str, reason: &str| conditions::is_false_because(&own, kind, reason);
        return match phase(vmi) {
            _ if object::deletion_timestamp(vmi).is_some() || stop_requested(status, vmi) => "Stopping",
            "Running" => "Running",
            _ if because("Synchronized", "FailedPvcNotFound") => "ErrorPvcNotFound",
            _ if around.import_failed => "DataVolumeError",
            _ if because("PodScheduled", "Unschedulable") => "ErrorUnschedulable",
            _ if because("Synchronized", "ErrImagePull") => "ErrImagePull",
            _ if because("Synchronized", "ImagePullBackOff") => "ImagePullBackOff",
            _ => "Starting",
        };
    }
    let failing = object::at(status, "startFailure.consecutiveFailCount").is_some();
    match around.vmi {
        None if around.import_failed => "DataVolumeError",
        None if around.importing && strategy != "Halted" => "Provisioning",
        None | Some(_) if failing && strategy != "Halted" => "CrashLoopBackOff",
        None | Some(_) => "Stopped",
    }
}

/// Whether the first request in line asks for the end of this instance.
pub(super) fn stop_requested(status: &Value, vmi: &Value) -> bool {
    let first = status.get("stateChangeRequests").and_then(|list| list.get(0));
    first.is_some_and(|request| {
        object::text_at(request, "action") == "Stop" && object::text_at(request, "uid") == object::uid(vmi)
    })
}

/// An empty list is left out.
fn show_snapshots(status: &mut Value, list: Vec<Value>) {
    if list.is_empty() {
        flag(status, "volumeSnapshotStatuses", false);
    } else {
        status["volumeSnapshotStatuses"] = list.into();
    }
}

fn snapshots(vm: &Value, around: Around<'_>) -> Vec<Value> {
    let volumes = object::at(vm, "spec.template.spec.volumes").and_then(Value::as_array);
    let one = |volume: &Value| {
        let name = object::text_at(volume, "name");
        let on_claim = volume.get("persistentVolumeClaim").is_some() || volume.get("dataVolume").is_some();
        let reason = if !on_claim {
            format!("Snapshot is not supported for this volumeSource type [{name}]")
        } else if around.claims.iter().any(|known| known == name) {
            format!(
                "No VolumeSnapshotClass: Volume snapshots are not configured for this StorageClass [] [{name}]"
            )
        } else {
            "PVC not found".to_owned()
        };
        json!({"enabled": false, "name": name, "reason": reason})
    };
    volumes.into_iter().flatten().map(one).collect()
}
