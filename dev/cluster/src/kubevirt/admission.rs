//! KubeVirt's webhooks for VM and VMI, with the texts of the real ones.
//!
//! Pod security is here too, as far as launchers meet it. The mutator fills in what virt-api fills in and refuses what its schema refuses; the validator is
//! [`super::validate`]. A status of an instance that anybody but KubeVirt itself writes is dropped without a word, as
//! seen on the real thing.

use serde_json::{Value, json};
use uuid::Uuid;

use super::names::{FOREGROUND_FINALIZER, TOPOLOGY};
use super::{template, validate};
use crate::admission::{Admission, AdmissionRequest, Operation};
use crate::object;
use crate::resource::{NAMESPACES, PODS, Resource, VIRTUAL_MACHINE_INSTANCES, VIRTUAL_MACHINES};
use crate::status::{Cause, Status};
use crate::store::Key;

const VM_MUTATOR: &str = "virtualmachines-mutator.kubevirt.io";
const VM_VALIDATOR: &str = "virtualmachine-validator.kubevirt.io";
const VMI_MUTATOR: &str = "virtualmachineinstances-mutator.kubevirt.io";
const VMI_CREATE_VALIDATOR: &str = "virtualmachineinstances-create-validator.kubevirt.io";
const VMI_UPDATE_VALIDATOR: &str = "virtualmachineinstances-update-validator.kubevirt.io";

/// The hook.
#[derive(Debug)]
pub(super) struct Webhooks;

impl Admission for Webhooks {
    fn wants(&self, resource: &'static Resource, subresource: &str) -> bool {
        let ours = [&VIRTUAL_MACHINES, &VIRTUAL_MACHINE_INSTANCES, &PODS];
        subresource.is_empty() && ours.contains(&resource)
    }

    fn mutate(&self, request: &AdmissionRequest<'_>, object: &mut Value) -> Result<(), Status> {
        if *request.resource == PODS {
            Ok(())
        } else if *request.resource == VIRTUAL_MACHINES {
            mutate_vm(request, object)
        } else {
            mutate_vmi(request, object)
        }
    }

    fn validate(&self, request: &AdmissionRequest<'_>, object: &Value) -> Result<Vec<String>, Status> {
        if *request.resource == PODS {
            return pod_security(request, object).map(|()| Vec::new());
        }
        if *request.resource == VIRTUAL_MACHINES {
            if object::deletion_timestamp(object).is_some() {
                return Ok(Vec::new());
            }
            return deny(VM_VALIDATOR, validate::vm(object)).map(|()| validate::vm_warnings(object));
        }
        match request.operation {
            Operation::Create => deny(VMI_CREATE_VALIDATOR, validate::instance(object.get("spec"), "spec")),
            Operation::Update => update_vmi(request, object),
        }
        .map(|()| Vec::new())
    }
}

fn deny(webhook: &str, causes: Vec<Cause>) -> Result<(), Status> {
    match causes.first() {
        None => Ok(()),
        Some(first) => Err(Status::denied_by_webhook(webhook, &first.message.clone(), causes)),
    }
}

/// What the schema refuses, in the words of the mutating webhook: without reason and field.
fn deny_schema(webhook: &str, faults: Vec<String>) -> Result<(), Status> {
    if faults.is_empty() {
        return Ok(());
    }
    let text = faults.join(", ");
    let causes = faults.into_iter().map(|fault| Cause::new("", fault, "")).collect();
    Err(Status::denied_by_webhook(webhook, &text, causes))
}

fn mutate_vm(request: &AdmissionRequest<'_>, vm: &mut Value) -> Result<(), Status> {
    deny_schema(VM_MUTATOR, validate::vm_schema(vm))?;
    if request.operation == Operation::Update || vm.pointer("/spec/template").is_none() {
        return Ok(());
    }
    drop_empty(vm, &["/spec/dataVolumeTemplates", "/spec/template/metadata/labels"]);
    let template = &mut vm["spec"]["template"];
    drop_empty_of_instance(&mut template["spec"]);
    let annotations = object::meta_mut(template).entry("annotations").or_insert_with(|| json!({}));
    annotations[TOPOLOGY] = "v3".into();
    object::meta_mut(template).remove("creationTimestamp");
    let spec = object::child_mut(template, "spec");
    spec.entry("architecture").or_insert_with(|| json!("amd64"));
    let domain = spec.entry("domain").or_insert_with(|| json!({}));
    let machine = object::child_mut(domain, "machine");
    machine.entry("type").or_insert_with(|| json!("q35"));
    let firmware = object::child_mut(domain, "firmware");
    firmware.entry("uuid").or_insert_with(|| Uuid::new_v4().to_string().into());
    firmware.entry("serial").or_insert_with(|| Uuid::new_v4().to_string().into());
    Ok(())
}

fn mutate_vmi(request: &AdmissionRequest<'_>, vmi: &mut Value) -> Result<(), Status> {
    if request.operation == Operation::Update {
        if !is_own(request)
            && let Some(old) = request.old
        {
            match old.get("status") {
                Some(status) => vmi["status"] = status.clone(),
                None => {
                    if let Some(map) = vmi.as_object_mut() {
                        map.remove("status");
                    }
                }
            }
        }
        return Ok(());
    }
    deny_schema(VMI_MUTATOR, validate::instance_schema(vmi.get("spec"), "spec"))?;
    object::add_finalizer(vmi, FOREGROUND_FINALIZER);
    let annotations = object::meta_mut(vmi).entry("annotations").or_insert_with(|| json!({}));
    if annotations.get(TOPOLOGY).is_none() {
        annotations[TOPOLOGY] = "v3".into();
    }
    drop_empty_of_instance(&mut vmi["spec"]);
    template::default_spec(&mut vmi["spec"]);
    let firmware = object::child_mut(object_child(vmi), "firmware");
    firmware.entry("uuid").or_insert_with(|| Uuid::new_v4().to_string().into());
    let known = vmi.get("status").cloned().unwrap_or_default();
    vmi["status"] = template::first_status(&vmi["spec"], &known);
    Ok(())
}

/// What passes through KubeVirt's own types loses lists and maps that are empty.
fn drop_empty(value: &mut Value, pointers: &[&str]) {
    for pointer in pointers {
        let Some((parent, key)) = pointer.rsplit_once('/') else { continue };
        let Some(map) = value.pointer_mut(parent).and_then(Value::as_object_mut) else { continue };
        let is_empty = map.get(key).is_some_and(|found| {
            found.as_array().is_some_and(Vec::is_empty)
                || found.as_object().is_some_and(serde_json::Map::is_empty)
        });
        if is_empty {
            map.remove(key);
        }
    }
}

fn drop_empty_of_instance(spec: &mut Value) {
    let lists = ["/volumes", "/networks", "/domain/devices/disks", "/domain/devices/interfaces"];
    drop_empty(spec, &lists);
}

fn object_child(vmi: &mut Value) -> &mut Value {
    let _made = object::child_mut(&mut vmi["spec"], "domain");
    &mut vmi["spec"]["domain"]
}

fn is_own(request: &AdmissionRequest<'_>) -> bool {
    request.user.name.starts_with("system:serviceaccount:kubevirt:")
}

fn update_vmi(request: &AdmissionRequest<'_>, vmi: &Value) -> Result<(), Status> {
    let before = request.old.and_then(|old| old.get("spec"));
    if is_own(request) || before == vmi.get("spec") {
        return Ok(());
    }
    let text = "update of VMI object is restricted";
    let cause = Cause::new("FieldValueNotSupported", text, "");
    Err(Status::denied_by_webhook(VMI_UPDATE_VALIDATOR, text, vec![cause]))
}

/// The one rule of pod security level `restricted` that a launcher breaks (it fits `baseline`).
fn pod_security(request: &AdmissionRequest<'_>, pod: &Value) -> Result<(), Status> {
    if request.operation == Operation::Update {
        return Ok(());
    }
    let namespace = request.store.get(&Key::new(&NAMESPACES, "", request.namespace));
    let level =
        namespace.as_ref().and_then(|ns| object::label(&ns.value, "pod-security.kubernetes.io/enforce"));
    let has_profile = |at: &Value| at.pointer("/securityContext/seccompProfile/type").is_some();
    if level != Some("restricted") || pod.get("spec").is_some_and(has_profile) {
        return Ok(());
    }
    let lists =
        ["initContainers", "containers"].into_iter().filter_map(|key| pod.get("spec")?.get(key)?.as_array());
    let bare: Vec<String> = lists
        .flatten()
        .filter(|container| !has_profile(container))
        .map(|container| format!("\"{}\"", object::text_at(container, "name")))
        .collect();
    if bare.is_empty() {
        return Ok(());
    }
    let text = format!(
        "violates PodSecurity \"restricted:latest\": seccompProfile (pod or containers {} must set \
         securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        bare.join(", ")
    );
    Err(Status::forbidden(&PODS, object::name(pod), &text))
}
