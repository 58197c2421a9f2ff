//! Real objects, as a real cluster served them.

use lab_kubevirt::{DataVolume, Phase, VirtualMachine, VirtualMachineInstance, status::time_of};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{conformance, read};

fn object<T: DeserializeOwned>(file: &str) -> Option<T> {
    Some(serde_json::from_value(read(file)?["response"]["body"].clone()).unwrap())
}

#[test]
fn a_running_vmi_tells_its_phase_times_and_address() {
    let Some(vmi) = object::<VirtualMachineInstance>("1308-vmi-ephemeral-running.json") else { return };
    assert_eq!(vmi.phase(), Phase::Running);
    assert!(vmi.is_ready() && !vmi.is_terminating());
    let status = vmi.status.clone().unwrap();
    assert_eq!(status.interfaces[0].ip_address.as_deref(), Some("10.244.0.7"));
    assert_eq!(status.interfaces[0].info_source.as_deref(), Some("domain"));
    let scheduled = vmi.phase_at(Phase::Scheduled).unwrap();
    assert_eq!(scheduled.to_string(), "2026-12-01 13:07:13.0 +00:00:00");
    assert_eq!(vmi.phase_at(Phase::Running), None, "this recording has no such time");
    let volume = &vmi.spec.volumes[0];
    assert_eq!(volume.ephemeral.as_ref().unwrap().persistent_volume_claim.claim_name, "golden");
    assert!(vmi.condition("Ready").unwrap().last_transition_time.as_ref().and_then(time_of).is_some());
}

#[test]
fn a_running_vmi_that_is_being_stopped_is_terminating() {
    let Some(vmi) = object::<VirtualMachineInstance>("1080-vmi-terminating.json") else { return };
    assert!(vmi.is_terminating());
    let Some(vm) = object::<VirtualMachine>("1079-vm-terminating.json") else { return };
    assert!(vm.is_terminating());
    assert_eq!(vm.printable_status(), Some("Terminating"));
}

#[test]
fn a_refused_launcher_pod_shows_only_in_a_condition() {
    let Some(vmi) = object::<VirtualMachineInstance>("1315-vmi-pods-quota.json") else { return };
    let synchronized = vmi.condition("Synchronized").unwrap();
    assert!(synchronized.is_false());
    assert_eq!(synchronized.reason.as_deref(), Some("FailedCreate"));
    assert!(synchronized.message.as_deref().unwrap().contains("exceeded quota"));
    let Some(vm) = object::<VirtualMachine>("1314-vm-pods-quota.json") else { return };
    assert_eq!(vm.printable_status(), Some("Starting"));
}

#[test]
fn a_fresh_vm_has_no_status() {
    let Some(vm) = object::<VirtualMachine>("1063-create-vm.json") else { return };
    assert_eq!(vm.status, None);
    assert_eq!(vm.printable_status(), None);
    assert_eq!(vm.spec.run_strategy.as_deref(), Some("Always"));
}

#[test]
fn a_data_volume_is_read() {
    let Some(disk) = object::<DataVolume>("1024-get-dv.json") else { return };
    assert!(!disk.is_filled());
    assert!(disk.spec.storage.is_some() || disk.spec.source.is_some());
}

/// Nothing that a real cluster serves under our types may fail to parse: one odd object would blind a whole list.
#[test]
fn every_recorded_machine_parses() {
    let Some(folder) = conformance("") else { return };
    let (mut vms, mut vmis) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let file: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        visit(&file["response"], &mut |object| match object["kind"].as_str() {
            Some("VirtualMachine") if object["spec"].is_object() => {
                vms += 1;
                serde_json::from_value::<VirtualMachine>(object.clone()).unwrap();
            }
            Some("VirtualMachineInstance") if object["spec"].is_object() => {
                vmis += 1;
                serde_json::from_value::<VirtualMachineInstance>(object.clone()).unwrap();
            }
            _ => (),
        });
    }
    assert!(vms > 40 && vmis > 8, "{vms} VMs, {vmis} VMIs");
}

fn visit(value: &Value, found: &mut impl FnMut(&Value)) {
    match value {
        Value::Object(fields) => {
            found(value);
            fields.values().for_each(|v| visit(v, found));
        }
        Value::Array(items) => items.iter().for_each(|v| visit(v, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
    }
}
