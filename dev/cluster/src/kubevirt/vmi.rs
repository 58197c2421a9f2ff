//! The VirtualMachineInstance: its pod, its phases, its end. What virt-controller does; the node's part is [`super::node`].
//!
//! ```text
//! Pending ─▶ Scheduling ─▶ Scheduled ─▶ Running ─▶ Succeeded | Failed
//!    │ pod refused, claim      │ pod placed, image there,   (terminal: an ended instance
//!    │ missing: conditions     │ Secret there               never runs again)
//!    └─ deleted before it ran: Failed
//! ```

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::conditions::{self, Condition};
use super::names::{COMPONENT, CONTROLLER_FINALIZER, FOREGROUND_FINALIZER, LAUNCHER_IMAGE, OVERHEAD_KI};
use super::status::{is_final, phase};
use super::work::{Busy, World};
use super::{pod, vm};
use crate::api::DeleteOptions;
use crate::object;
use crate::resource::{PERSISTENT_VOLUME_CLAIMS, PODS};
use crate::status::Status;
use crate::store::{Key, ObjectRef};

/// Bindings that need no plugin.
const BINDINGS: [&str; 4] = ["masquerade", "bridge", "sriov", "passtBinding"];

/// Moves an instance to a phase and notes when.
pub(super) fn enter(vmi: &mut Value, phase: &str) {
    let now = object::now();
    vmi["status"]["phase"] = phase.into();
    let entry = json!({"phase": phase, "phaseTransitionTimestamp": now});
    match vmi["status"]["phaseTransitionTimestamps"].as_array_mut() {
        Some(list) => list.push(entry),
        None => vmi["status"]["phaseTransitionTimestamps"] = json!([entry]),
    }
}

impl World {
    /// One look at an instance.
    pub(super) fn vmi(self: &Arc<Self>, key: &Key) -> Result<(), Status> {
        let Some(vmi) = self.client.find(key) else { return Ok(()) };
        let pod = self.pod_of(&vmi.value);
        if object::deletion_timestamp(&vmi.value).is_some() {
            return self.end_instance(&vmi, pod.as_ref());
        }
        if is_final(&vmi.value) {
            return self.rest(&vmi, pod.as_ref());
        }
        if !object::finalizers(&vmi.value).contains(&CONTROLLER_FINALIZER) {
            self.client.update(key, |vmi| {
                object::add_finalizer(vmi, CONTROLLER_FINALIZER);
                Ok(())
            })?;
            return Ok(());
        }
        if vm::observe(self, key, &vmi.value)? {
            return Ok(());
        }
        let Some(pod) = pod else {
            return if phase(&vmi.value) == "Pending" {
                self.make_pod(&vmi)
            } else {
                self.lost(&vmi, "virt-launcher pod has not yet been scheduled", "PodNotExists")
            };
        };
        match phase(&vmi.value) {
            "Pending" => self.scheduling(&vmi, &pod),
            "Scheduling" => {
                if self.mirror_pod(&vmi, &pod)? {
                    return Ok(());
                }
                self.host(&vmi, &pod)
            }
            _ => self.host(&vmi, &pod),
        }
    }

    /// The launcher is gone without us: so is the guest.
    pub(super) fn lost(&self, vmi: &ObjectRef, message: &str, reason: &str) -> Result<(), Status> {
        self.client.update(&vmi.key, |vmi| {
            enter(vmi, "Failed");
            conditions::set(&mut vmi["status"], Condition::not_ready(reason, message));
            Ok(())
        })?;
        Ok(())
    }

    fn make_pod(self: &Arc<Self>, vmi: &ObjectRef) -> Result<(), Status> {
        if let Some((message, kind)) = self.missing_claim(vmi) {
            return self.refuse(vmi, "FailedPvcNotFound", &message, &message, kind);
        }
        if let Some(binding) = unknown_binding(&vmi.value) {
            let message = format!(
                "failed to render launch manifest: couldn't find configuration for network binding: {binding}"
            );
            return self.refuse(vmi, "FailedCreate", &message, &message, "Warning");
        }
        match self.client.create(&PODS, &vmi.key.namespace, pod::launcher(&vmi.value)) {
            Ok(pod) => {
                self.memory().refused.remove(vmi.uid());
                let message = format!("Created virtual machine pod {}", pod.key.name);
                self.client.event(&vmi.value, "Normal", "SuccessfulCreate", &message, COMPONENT);
                Ok(())
            }
            Err(refusal) => {
                let said = refusal.message();
                let (message, event) = if said.contains("violates PodSecurity") {
                    let (namespace, name) = (&vmi.key.namespace, &vmi.key.name);
                    let text = format!(
                        "failed to create pod for vmi {namespace}/{name}, it needs a privileged namespace to run: {said}"
                    );
                    let event = format!("failed to render launch manifest: {text}");
                    (text, event)
                } else {
                    let message = format!("failed to create virtual machine pod: {said}");
                    (message, format!("Error creating pod: {said}"))
                };
                let tries = {
                    let mut memory = self.memory();
                    let tries = memory.refused.entry(vmi.uid().to_owned()).or_insert(0);
                    *tries += 1;
                    *tries
                };
                self.again_in(&vmi.key, Duration::from_millis(100 << tries.min(6)));
                // Each try names another pod; a condition that changed each time would never let a watcher rest.
                let known = vmi.value.get("status").is_some_and(|status| {
                    conditions::is_false_because(status, "Synchronized", "FailedCreate")
                });
                if known {
                    return Ok(());
                }
                self.refuse(vmi, "FailedCreate", &message, &event, "Warning")
            }
        }
    }

    fn refuse(
        &self,
        vmi: &ObjectRef,
        reason: &str,
        message: &str,
        event: &str,
        kind: &str,
    ) -> Result<(), Status> {
        self.say(&vmi.value, kind, reason, event, COMPONENT);
        self.client.update(&vmi.key, |vmi| {
            let status = &mut vmi["status"];
            let text = "virt-launcher pod has not yet been scheduled";
            conditions::set(status, Condition::not_ready("PodNotExists", text));
            if reason == "FailedPvcNotFound" {
                // The second look moves it behind the other, as the real one does.
                conditions::remove(status, "PodScheduled");
                conditions::put(
                    status,
                    json!({
                        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                        "lastProbeTime": null, "lastTransitionTime": null,
                    }),
                );
            }
            conditions::set(status, Condition::failed("Synchronized", reason, message));
            Ok(())
        })?;
        Ok(())
    }

    fn missing_claim(&self, vmi: &ObjectRef) -> Option<(String, &'static str)> {
        let namespace = &vmi.key.namespace;
        for volume in volumes(&vmi.value) {
            let Some((claim, _)) = pod::claim_of(volume) else { continue };
            if self.client.find(&Key::new(&PERSISTENT_VOLUME_CLAIMS, namespace, claim)).is_some() {
                continue;
            }
            return Some(if volume.get("ephemeral").is_some() {
                (format!("failed to render launch manifest: didn't find PVC {claim}"), "Warning")
            } else {
                (format!("PVC {namespace}/{claim} does not exist, waiting for it to appear"), "Normal")
            });
        }
        None
    }

    fn scheduling(&self, vmi: &ObjectRef, pod: &ObjectRef) -> Result<(), Status> {
        self.client.update(&vmi.key, |vmi| {
            enter(vmi, "Scheduling");
            let status = &mut vmi["status"];
            status["activePods"] = json!({pod.uid(): ""});
            status["launcherContainerImageVersion"] = LAUNCHER_IMAGE.into();
            status["memory"]["memoryOverhead"] = format!("{OVERHEAD_KI}Ki").into();
            let text = "Guest VM is not reported as running";
            conditions::set(status, Condition::not_ready("GuestNotRunning", text));
            conditions::remove(status, "Synchronized");
            Ok(())
        })?;
        Ok(())
    }

    /// What the instance shows of its pod before the guest runs; whether anything was written.
    fn mirror_pod(&self, vmi: &ObjectRef, pod: &ObjectRef) -> Result<bool, Status> {
        if !has_unpaused(&pod.value) {
            self.client.update_status(&pod.key, |pod| {
                pod["status"]["qosClass"] = "Burstable".into();
                conditions::set(
                    &mut pod["status"],
                    Condition {
                        kind: "kubevirt.io/virtual-machine-unpaused",
                        status: true,
                        reason: "NotPaused",
                        message: "the virtual machine is not paused",
                        probed: true,
                    },
                );
                Ok(())
            })?;
            return Ok(true);
        }
        let after = self.client.update(&vmi.key, |vmi| {
            let status = &mut vmi["status"];
            let node = object::text_at(&pod.value, "spec.nodeName");
            if status.pointer(&format!("/activePods/{}", pod.uid())).and_then(Value::as_str) != Some(node) {
                status["activePods"] = json!({pod.uid(): node});
            }
            let placed = pod.value.get("status").and_then(|status| conditions::find(status, "PodScheduled"));
            match placed {
                Some(placed) if object::text_at(placed, "status") == "False" => {
                    let mut shown = placed.clone();
                    if let Some(map) = shown.as_object_mut() {
                        map.remove("observedGeneration");
                    }
                    // One that is there already stays as it is, even where it tells of an earlier trouble.
                    if conditions::find(status, "PodScheduled").is_none() {
                        conditions::put(status, shown);
                    }
                    status["qosClass"] = "Burstable".into();
                }
                Some(_) => {
                    conditions::remove(status, "PodScheduled");
                    status["qosClass"] = "Burstable".into();
                }
                None => {}
            }
            match waiting_for_image(&pod.value) {
                Some((reason, message)) => {
                    conditions::set(status, Condition::failed("Synchronized", reason, message));
                }
                None => conditions::remove(status, "Synchronized"),
            }
            Ok(())
        })?;
        Ok(after.version != vmi.version)
    }

    /// The end of an instance that was asked for.
    fn end_instance(self: &Arc<Self>, vmi: &ObjectRef, pod: Option<&ObjectRef>) -> Result<(), Status> {
        if let Some(pod) = pod
            && object::deletion_timestamp(&pod.value).is_none()
        {
            self.client.delete(&pod.key, &DeleteOptions::default())?;
            let message = format!("Deleted virtual machine pod {}", pod.key.name);
            self.client.event(&vmi.value, "Normal", "SuccessfulDelete", &message, COMPONENT);
            self.again(&vmi.key);
            return Ok(());
        }
        if phase(&vmi.value) == "Running" && pod.is_some() {
            let after = self.client.update(&vmi.key, |vmi| {
                let text = "virt-launcher pod is terminating";
                conditions::set(&mut vmi["status"], Condition::not_ready("PodTerminating", text));
                Ok(())
            })?;
            if after.version != vmi.version {
                return Ok(());
            }
        }
        if !self.stopped(vmi)? {
            return Ok(());
        }
        if let Some(pod) = pod {
            if is_final(&vmi.value) && object::finalizers(&vmi.value).contains(&CONTROLLER_FINALIZER) {
                return self.release(&vmi.key, CONTROLLER_FINALIZER);
            }
            // The kubelet's word: the containers are gone.
            self.client.delete(&pod.key, &DeleteOptions::now())?;
            return Ok(());
        }
        if !is_final(&vmi.value) {
            return self.lost(vmi, "virt-launcher pod has not yet been scheduled", "PodNotExists");
        }
        let finalizers = object::finalizers(&vmi.value);
        for finalizer in [FOREGROUND_FINALIZER, CONTROLLER_FINALIZER] {
            if finalizers.contains(&finalizer) {
                return self.release(&vmi.key, finalizer);
            }
        }
        Ok(())
    }

    fn release(&self, key: &Key, finalizer: &str) -> Result<(), Status> {
        self.client.update(key, |vmi| {
            object::remove_finalizer(vmi, finalizer);
            let gone = ["activePods", "launcherContainerImageVersion"];
            if finalizer == FOREGROUND_FINALIZER
                && let Some(status) = vmi.get_mut("status").and_then(Value::as_object_mut)
            {
                status.retain(|key, _| !gone.contains(&key.as_str()));
            }
            Ok(())
        })?;
        Ok(())
    }

    /// An ended instance that stays: its pod is over, its machine is not needed any more.
    fn rest(self: &Arc<Self>, vmi: &ObjectRef, pod: Option<&ObjectRef>) -> Result<(), Status> {
        let wanted = phase(&vmi.value).to_owned();
        if let Some(pod) = pod
            && object::text_at(&pod.value, "status.phase") != wanted
        {
            self.client.update_status(&pod.key, |pod| {
                pod["status"]["phase"] = wanted.as_str().into();
                for kind in ["ContainersReady", "Ready"] {
                    conditions::set(
                        &mut pod["status"],
                        Condition { kind, status: false, reason: "PodCompleted", message: "", probed: false },
                    );
                }
                Ok(())
            })?;
        }
        self.client.update(&vmi.key, |vmi| {
            for interface in vmi["status"]["interfaces"].as_array_mut().into_iter().flatten() {
                if let Some(map) = interface.as_object_mut() {
                    map.remove("ipAddress");
                    map.remove("ipAddresses");
                }
            }
            Ok(())
        })?;
        if self.driver.get(vmi.uid()).is_some() && self.memory().busy.get(vmi.uid()) != Some(&Busy::Removing)
        {
            super::node::remove(self, &vmi.key, vmi.uid());
        }
        Ok(())
    }
}

pub(super) fn volumes(vmi: &Value) -> impl Iterator<Item = &Value> {
    object::at(vmi, "spec.volumes").and_then(Value::as_array).into_iter().flatten()
}

fn unknown_binding(vmi: &Value) -> Option<&str> {
    let interfaces = object::at(vmi, "spec.domain.devices.interfaces")?.as_array()?;
    interfaces.iter().find_map(|interface| {
        let plain = BINDINGS.iter().any(|binding| interface.get(binding).is_some());
        interface.pointer("/binding/name").and_then(Value::as_str).filter(|_| !plain)
    })
}

fn has_unpaused(pod: &Value) -> bool {
    pod.get("status")
        .is_some_and(|status| conditions::is_true(status, "kubevirt.io/virtual-machine-unpaused"))
}

/// Why the containers of a pod wait, where it is for an image.
fn waiting_for_image(pod: &Value) -> Option<(&str, &str)> {
    let statuses = ["initContainerStatuses", "containerStatuses"];
    let all = statuses.into_iter().filter_map(|list| pod.get("status")?.get(list)?.as_array()).flatten();
    all.filter_map(|container| container.pointer("/state/waiting"))
        .map(|waiting| (object::text_at(waiting, "reason"), object::text_at(waiting, "message")))
        .find(|(reason, _)| matches!(*reason, "ErrImagePull" | "ImagePullBackOff"))
}
