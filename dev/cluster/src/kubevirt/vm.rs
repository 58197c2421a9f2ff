//! The VirtualMachine: when it has an instance, and what its status says.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::names::{COMPONENT, CONTROLLER_FINALIZER, GENERATION, OBSERVED};
use super::status::{self, Around};
use super::template;
use super::work::World;
use crate::api::DeleteOptions;
use crate::object;
use crate::resource::{DATA_VOLUMES, PERSISTENT_VOLUME_CLAIMS, VIRTUAL_MACHINE_INSTANCES};
use crate::status::Status;
use crate::store::{Key, ObjectRef};

/// From the end of everything that a VM has to its own.
const LET_GO: Duration = Duration::from_millis(25);

/// What a run strategy asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Nothing,
    Start,
    Stop,
    /// Stop, and note that a start is to follow.
    StopToStart,
}

/// What of the disks a VM's status needs to know.
#[derive(Debug, Default)]
struct Disks {
    importing: bool,
    import_failed: bool,
    claims: Vec<String>,
}

impl Disks {
    fn around<'a>(&'a self, vmi: Option<&'a ObjectRef>) -> Around<'a> {
        Around {
            vmi: vmi.map(|vmi| &vmi.value),
            importing: self.importing,
            import_failed: self.import_failed,
            claims: &self.claims,
        }
    }
}

impl World {
    /// One look at a VM.
    pub(super) fn vm(self: &Arc<Self>, key: &Key) -> Result<(), Status> {
        let Some(vm) = self.client.find(key) else { return Ok(()) };
        let vmi = self.instance_of(&vm);
        let disks = self.disks_of(&vm);
        if object::deletion_timestamp(&vm.value).is_some() {
            return self.end_vm(&vm, vmi.as_ref(), &disks);
        }
        if object::text_at(&vm.value, "status.printableStatus").is_empty() {
            let first = status::first(&vm.value, disks.around(None));
            self.client.update_status(key, |vm| {
                vm["status"] = first.clone();
                Ok(())
            })?;
            return Ok(());
        }
        if observe(self, key, &vm.value)? {
            return Ok(());
        }
        if !object::finalizers(&vm.value).contains(&CONTROLLER_FINALIZER) {
            self.client.update(key, |vm| {
                object::add_finalizer(vm, CONTROLLER_FINALIZER);
                Ok(())
            })?;
            return Ok(());
        }
        if self.make_data_volumes(&vm)? {
            return Ok(());
        }
        if self.served_request(&vm, vmi.as_ref())? {
            return Ok(());
        }
        if let Some(vmi) = &vmi
            && self.unchanged_generation(&vm, vmi)?
        {
            return Ok(());
        }
        match want(&vm.value, vmi.as_ref().map(|vmi| &vmi.value)) {
            Want::Nothing => {}
            Want::Start => {
                if !disks.importing && !disks.import_failed && !self.waits_for_backoff(&vm) {
                    return self.start(&vm, &disks);
                }
            }
            Want::Stop | Want::StopToStart if vmi.is_none() => {}
            wish @ (Want::Stop | Want::StopToStart) => {
                let vmi = vmi.as_ref().expect("it was just seen to be there");
                if wish == Want::StopToStart {
                    self.request(key, vec![json!({"action": "Start"})])?;
                }
                if object::deletion_timestamp(&vmi.value).is_none() {
                    // What failed is counted before its instance goes.
                    self.show(&vm, Some(vmi), &disks)?;
                    return self.stop(&vm, vmi);
                }
            }
        }
        self.show(&vm, vmi.as_ref(), &disks)
    }

    fn show(&self, vm: &ObjectRef, vmi: Option<&ObjectRef>, disks: &Disks) -> Result<(), Status> {
        let now = crate::clock::now();
        let next = status::next(&vm.value, disks.around(vmi), now);
        self.client.update_status(&vm.key, |vm| {
            vm["status"] = next.clone();
            Ok(())
        })?;
        Ok(())
    }

    fn end_vm(
        self: &Arc<Self>,
        vm: &ObjectRef,
        vmi: Option<&ObjectRef>,
        disks: &Disks,
    ) -> Result<(), Status> {
        if let Some(vmi) = vmi {
            if object::deletion_timestamp(&vmi.value).is_none() {
                return self.stop(vm, vmi);
            }
            return self.show(vm, Some(vmi), disks);
        }
        // The real controller takes its time, and a client that reads right after its delete still finds the VM.
        if self.memory().ending.insert(vm.uid().to_owned()) {
            self.again_in(&vm.key, LET_GO);
            return Ok(());
        }
        self.client.update(&vm.key, |vm| {
            object::remove_finalizer(vm, CONTROLLER_FINALIZER);
            Ok(())
        })?;
        self.forget(vm.uid());
        Ok(())
    }

    fn start(&self, vm: &ObjectRef, disks: &Disks) -> Result<(), Status> {
        let key = Key::new(&VIRTUAL_MACHINE_INSTANCES, &vm.key.namespace, &vm.key.name);
        if self.client.find(&key).is_some() {
            // An instance of that name which is not this VM's: an earlier VM's, on its way out, or somebody's own.
            return self.show(vm, None, disks);
        }
        self.client.create(&VIRTUAL_MACHINE_INSTANCES, &vm.key.namespace, template::instance(&vm.value))?;
        let name = &vm.key.name;
        let message =
            format!("Started the virtual machine by creating the new virtual machine instance {name}");
        self.client.event(&vm.value, "Normal", "SuccessfulCreate", &message, COMPONENT);
        // Seen on the real thing: the status of this very look does not know the new instance yet.
        self.show(vm, None, disks)
    }

    fn stop(&self, vm: &ObjectRef, vmi: &ObjectRef) -> Result<(), Status> {
        let options = DeleteOptions { uid: Some(vmi.uid().to_owned()), ..DeleteOptions::default() };
        self.client.delete(&vmi.key, &options)?;
        let uid = vmi.uid();
        let message = format!("Stopped the virtual machine by deleting the virtual machine instance {uid}");
        self.client.event(&vm.value, "Normal", "SuccessfulDelete", &message, COMPONENT);
        Ok(())
    }

    /// Replaces the requests of `start`, `stop` and `restart`.
    pub(super) fn request(&self, key: &Key, requests: Vec<Value>) -> Result<(), Status> {
        self.client.update_status(key, |vm| {
            let status = object::child_mut(vm, "status");
            if requests.is_empty() {
                status.remove("stateChangeRequests");
            } else {
                status.insert("stateChangeRequests".into(), Value::Array(requests.clone()));
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Takes a request out of the line that has come true.
    fn served_request(&self, vm: &ObjectRef, vmi: Option<&ObjectRef>) -> Result<bool, Status> {
        let Some(list) = object::at(&vm.value, "status.stateChangeRequests").and_then(Value::as_array) else {
            return Ok(false);
        };
        let Some(first) = list.first() else { return Ok(false) };
        let served = match object::text_at(first, "action") {
            "Stop" => vmi.is_none_or(|vmi| vmi.uid() != object::text_at(first, "uid")),
            _ => vmi.is_some_and(|vmi| {
                object::deletion_timestamp(&vmi.value).is_none() && !status::is_final(&vmi.value)
            }),
        };
        if served {
            self.request(&vm.key, list[1..].to_vec())?;
        }
        Ok(served)
    }

    /// Waits out the time after a failed start; whether it has to.
    fn waits_for_backoff(self: &Arc<Self>, vm: &ObjectRef) -> bool {
        let at = object::text_at(&vm.value, "status.startFailure.retryAfterTimestamp");
        let format = &time::format_description::well_known::Rfc3339;
        let Ok(at) = time::OffsetDateTime::parse(at, format) else { return false };
        let left = at - crate::clock::now();
        if !left.is_positive() {
            return false;
        }
        self.again_in(&vm.key, left.unsigned_abs());
        true
    }

    /// The instance learns a new generation of the VM that changes nothing in its template.
    fn unchanged_generation(&self, vm: &ObjectRef, vmi: &ObjectRef) -> Result<bool, Status> {
        let generation = object::at(&vm.value, "metadata.generation").and_then(Value::as_i64).unwrap_or(1);
        let known = object::annotation(&vmi.value, GENERATION) == Some(generation.to_string().as_str());
        let ending = object::deletion_timestamp(&vmi.value).is_some() || status::is_final(&vmi.value);
        if known || ending || status::restart_required(&vm.value, &vmi.value) {
            return Ok(false);
        }
        self.client.update(&vmi.key, |vmi| {
            object::meta_mut(vmi).entry("annotations").or_insert_with(|| json!({}))[GENERATION] =
                generation.to_string().into();
            Ok(())
        })?;
        Ok(true)
    }

    fn make_data_volumes(&self, vm: &ObjectRef) -> Result<bool, Status> {
        let mut made = false;
        for template in templates(&vm.value) {
            let name = object::name(template);
            if self.client.find(&Key::new(&DATA_VOLUMES, &vm.key.namespace, name)).is_some() {
                continue;
            }
            let mut volume = template.clone();
            let meta = object::meta_mut(&mut volume);
            meta.entry("labels").or_insert_with(|| json!({}))["kubevirt.io/created-by"] = vm.uid().into();
            meta.entry("annotations").or_insert_with(|| json!({}))["cdi.kubevirt.io/allowClaimAdoption"] =
                "true".into();
            meta.insert("ownerReferences".into(), json!([object::controller_reference(&vm.value)]));
            self.client.create(&DATA_VOLUMES, &vm.key.namespace, volume)?;
            let message = format!("Created DataVolume {name}");
            self.client.event(&vm.value, "Normal", "SuccessfulDataVolumeCreate", &message, COMPONENT);
            made = true;
        }
        if made {
            self.again(&vm.key);
            let disks = Disks::default();
            self.show(vm, None, &disks)?;
        }
        Ok(made)
    }

    fn disks_of(&self, vm: &ObjectRef) -> Disks {
        let mut disks = Disks::default();
        let volumes = object::at(&vm.value, "spec.template.spec.volumes").and_then(Value::as_array);
        for volume in volumes.into_iter().flatten() {
            let filled = volume.pointer("/dataVolume/name").and_then(Value::as_str);
            let direct = volume.pointer("/persistentVolumeClaim/claimName").and_then(Value::as_str);
            let Some(claim) = filled.or(direct) else { continue };
            if self.client.find(&Key::new(&PERSISTENT_VOLUME_CLAIMS, &vm.key.namespace, claim)).is_some() {
                disks.claims.push(object::text_at(volume, "name").to_owned());
            }
            let Some(name) = filled else { continue };
            let data_volume = self.client.find(&Key::new(&DATA_VOLUMES, &vm.key.namespace, name));
            let is_template = templates(&vm.value).any(|template| object::name(template) == name);
            match data_volume.as_ref().map(|dv| object::text_at(&dv.value, "status.phase")) {
                Some("Succeeded") => {}
                Some("Failed") => disks.import_failed = true,
                Some(_) => disks.importing = true,
                None => disks.importing |= is_template,
            }
        }
        disks
    }
}

fn templates(vm: &Value) -> impl Iterator<Item = &Value> {
    object::at(vm, "spec.dataVolumeTemplates").and_then(Value::as_array).into_iter().flatten()
}

/// Leaves virt-controller's marks; whether they were missing.
pub(super) fn observe(world: &World, key: &Key, value: &Value) -> Result<bool, Status> {
    if OBSERVED.iter().all(|mark| object::annotation(value, mark).is_some()) {
        return Ok(false);
    }
    world.client.update(key, |object| {
        let annotations = object::meta_mut(object).entry("annotations").or_insert_with(|| json!({}));
        for mark in OBSERVED {
            annotations[mark] = "v1".into();
        }
        Ok(())
    })?;
    Ok(true)
}

fn want(vm: &Value, vmi: Option<&Value>) -> Want {
    let first = object::at(vm, "status.stateChangeRequests").and_then(|list| list.get(0));
    let asked = first.map(|request| object::text_at(request, "action")).unwrap_or_default();
    if asked == "Stop" {
        return Want::Stop;
    }
    let strategy = status::strategy(vm);
    let Some(vmi) = vmi else {
        let known = object::text_at(vm, "status.runStrategy");
        return match strategy {
            "Always" | "Once" => Want::Start,
            // Come from another strategy it starts; once here, only when something asks for it.
            "RerunOnFailure" if known != strategy || asked == "Start" => Want::Start,
            "Manual" if asked == "Start" => Want::Start,
            _ => Want::Nothing,
        };
    };
    match (strategy, status::phase(vmi)) {
        ("Always", "Succeeded" | "Failed") | ("RerunOnFailure", "Succeeded") | ("Halted", _) => Want::Stop,
        ("RerunOnFailure", "Failed") => Want::StopToStart,
        _ if asked == "Start" && status::is_final(vmi) => Want::Stop,
        _ => Want::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(strategy: &str, known: &str) -> Value {
        json!({"spec": {"runStrategy": strategy}, "status": {"runStrategy": known}})
    }

    #[test]
    fn run_strategy_decides_as_the_real_controller_did() {
        let ended = |phase: &str| json!({"status": {"phase": phase}});
        let table = [
            // strategy, VMI deleted, guest powered off, guest failed
            ("Once", Want::Start, Want::Nothing, Want::Nothing),
            ("RerunOnFailure", Want::Nothing, Want::Stop, Want::StopToStart),
            ("Manual", Want::Nothing, Want::Nothing, Want::Nothing),
            ("Always", Want::Start, Want::Stop, Want::Stop),
            ("Halted", Want::Nothing, Want::Stop, Want::Stop),
        ];
        for (strategy, deleted, off, failed) in table {
            let vm = vm(strategy, strategy);
            assert_eq!(want(&vm, None), deleted, "{strategy}: deleted");
            assert_eq!(want(&vm, Some(&ended("Succeeded"))), off, "{strategy}: powered off");
            assert_eq!(want(&vm, Some(&ended("Failed"))), failed, "{strategy}: failed");
        }
    }

    #[test]
    fn rerun_on_failure_starts_when_it_comes_from_another_strategy() {
        assert_eq!(want(&vm("RerunOnFailure", ""), None), Want::Start);
    }
}
