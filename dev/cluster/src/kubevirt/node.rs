//! The node: scheduler, kubelet and virt-handler in one. It places pods, waits for Secrets and images, starts machines
//! by the driver, and tells instance and pod what became of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lab_machine::{End, Machine, Run};
use serde_json::{Value, json};

use super::conditions::{self, Condition};
use super::guest::labels;
use super::names::{HANDLER, LAUNCHER_IMAGE, NODE, NODE_LABEL};
use super::status::{is_final, phase};
use super::template::bytes;
use super::vmi::{enter, volumes};
use super::work::{Busy, World};
use super::{pod, probe};
use crate::object;
use crate::resource::{NODES, PERSISTENT_VOLUME_CLAIMS, SECRETS, VIRTUAL_MACHINE_INSTANCES};
use crate::status::Status;
use crate::store::{Key, ObjectRef};

/// How often a pull is said to be tried again: the texts alternate as the kubelet's do.
const BACK_OFF: Duration = Duration::from_millis(1500);
/// How soon a pod that could not be placed, or an image that could not be pulled, is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// A guest that names no grace.
const DEFAULT_GRACE: i64 = 30;

/// Makes the node, and takes up the machines that an earlier process left.
pub(super) async fn adopt(world: &Arc<World>) {
    make_node(world);
    let found = match world.driver.reattach().await {
        Ok(found) => found,
        Err(error) => {
            tracing::error!(%error, "the machines of an earlier run cannot be taken up");
            return;
        }
    };
    let instances = world.client.list(&VIRTUAL_MACHINE_INSTANCES, None).items;
    let keys: BTreeMap<&str, &Key> = instances.iter().map(|vmi| (vmi.uid(), &vmi.key)).collect();
    let mut orphans = 0_usize;
    for machine in &found {
        if let Some(key) = keys.get(machine.uid()) {
            world.follow(key, machine);
        } else {
            orphans += 1;
            let key = Key::new(&VIRTUAL_MACHINE_INSTANCES, "", "");
            remove(world, &key, machine.uid());
        }
    }
    if !found.is_empty() {
        tracing::info!(machines = found.len(), orphans, "machines of an earlier run were taken up");
    }
}

fn make_node(world: &World) {
    let key = Key::new(&NODES, "", NODE);
    if world.client.find(&key).is_some() {
        return;
    }
    let node = json!({
        "metadata": {"name": NODE, "labels": {
            "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": NODE,
            "kubevirt.io/schedulable": "true", "machine-type.node.kubevirt.io/q35": "true",
        }},
        "spec": {"taints": []},
    });
    let ready = json!({
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
            "lastHeartbeatTime": object::now(), "lastTransitionTime": object::now(),
        }],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": NODE}],
    });
    let made = world.client.create(&NODES, "", node).and_then(|_| {
        world.client.update_status(&key, |node| {
            for (name, value) in ready.as_object().into_iter().flatten() {
                node["status"][name] = value.clone();
            }
            Ok(())
        })
    });
    if let Err(error) = made {
        tracing::warn!(%error, "the node could not be shown");
    }
}

/// Ends a machine for good and looks at its instance again when nothing of it is left.
pub(super) fn remove(world: &Arc<World>, key: &Key, uid: &str) {
    if world.memory().busy.insert(uid.to_owned(), Busy::Removing) == Some(Busy::Removing) {
        return;
    }
    let (world, key, uid) = (Arc::clone(world), key.clone(), uid.to_owned());
    world.tracker.clone().spawn(async move {
        if let Err(error) = world.driver.remove(&uid).await {
            tracing::warn!(vmi.uid = uid, %error, "a machine could not be removed whole");
        }
        world.memory().busy.remove(&uid);
        if !key.name.is_empty() {
            world.again(&key);
        }
    });
}

impl World {
    /// One look at an instance that has a pod: as far as the node is concerned.
    pub(super) fn host(self: &Arc<Self>, vmi: &ObjectRef, pod: &ObjectRef) -> Result<(), Status> {
        if object::text_at(&pod.value, "status.phase") == "Failed" {
            return self.lost(vmi, "virt-launcher pod is terminating", "PodTerminating");
        }
        if object::text_at(&pod.value, "spec.nodeName").is_empty() {
            return self.place(vmi, pod);
        }
        let machine = self.driver.get(vmi.uid());
        if object::text_at(&pod.value, "status.phase") == "Pending" {
            return match machine {
                Some(machine) => self.containers_run(pod, &machine),
                None => self.start_machine(vmi, pod),
            };
        }
        let Some(machine) = machine else {
            // The pod says Running and there is no machine: it did not outlive an earlier process.
            return self.ended(vmi, End::Crashed);
        };
        self.follow(&vmi.key, &machine);
        if phase(&vmi.value) == "Scheduled" && object::label(&pod.value, NODE_LABEL).is_none() {
            self.client.update(&pod.key, |pod| {
                object::meta_mut(pod).entry("labels").or_insert_with(|| json!({}))[NODE_LABEL] = NODE.into();
                Ok(())
            })?;
        }
        match (phase(&vmi.value), machine.status().run) {
            ("Scheduling", _) => self.scheduled(vmi),
            (_, Run::Ended(end)) => self.ended(vmi, end),
            ("Scheduled", Run::Running) => self.running(vmi, &machine),
            ("Running", Run::Running) => self.ready(vmi, pod, &machine),
            (_, Run::Starting | Run::Running) => Ok(()),
        }
    }

    fn place(self: &Arc<Self>, vmi: &ObjectRef, pod: &ObjectRef) -> Result<(), Status> {
        if let Some(why) = self.unschedulable(vmi) {
            self.say(&pod.value, "Warning", "FailedScheduling", &why, "default-scheduler");
            self.client.update_status(&pod.key, |pod| {
                let mut refused = Condition::failed("PodScheduled", "Unschedulable", &why).to_value();
                refused["observedGeneration"] = 1.into();
                conditions::put_first(&mut pod["status"], refused);
                Ok(())
            })?;
            self.again_with_new_plan(vmi);
            return Ok(());
        }
        self.client.update(&pod.key, |pod| {
            pod["spec"]["nodeName"] = NODE.into();
            Ok(())
        })?;
        self.client.update_status(&pod.key, |pod| {
            let placed =
                Condition { kind: "PodScheduled", status: true, reason: "", message: "", probed: false };
            conditions::set(&mut pod["status"], placed);
            Ok(())
        })?;
        let message = format!("Successfully assigned {}/{} to {NODE}", pod.key.namespace, pod.key.name);
        self.client.event(&pod.value, "Normal", "Scheduled", &message, "default-scheduler");
        Ok(())
    }

    fn unschedulable(&self, vmi: &ObjectRef) -> Option<String> {
        if let Some(why) = self.plan(vmi).unschedulable {
            return Some(why);
        }
        let unbound = volumes(&vmi.value).filter_map(pod::claim_of).any(|(claim, _)| {
            let claim = self.client.find(&Key::new(&PERSISTENT_VOLUME_CLAIMS, &vmi.key.namespace, claim));
            claim.is_some_and(|claim| object::text_at(&claim.value, "status.phase") != "Bound")
        });
        if unbound {
            return Some(
                "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found. \
                 preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
                    .to_owned(),
            );
        }
        let guest = object::at(&vmi.value, "spec.domain.memory.guest").and_then(bytes).unwrap_or_default();
        (guest > host_memory()).then(|| {
            "0/1 nodes are available: 1 Insufficient memory. preemption: 0/1 nodes are available: \
             1 No preemption victims found for incoming pod."
                .to_owned()
        })
    }

    /// The scheduler and the kubelet try again: rules may have changed, claims and memory too.
    fn again_with_new_plan(self: &Arc<Self>, vmi: &ObjectRef) {
        if !self.memory().retried.insert(vmi.uid().to_owned()) {
            return;
        }
        let (world, key, uid) = (Arc::clone(self), vmi.key.clone(), vmi.uid().to_owned());
        self.tracker.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(TRY_AGAIN) => {}
                () = world.shutdown.cancelled() => return,
            }
            {
                let mut memory = world.memory();
                memory.retried.remove(&uid);
                memory.plans.remove(&uid);
            }
            world.again(&key);
        });
    }

    fn plan(&self, vmi: &ObjectRef) -> lab_machine::sim::Plan {
        if let Some(plan) = self.memory().plans.get(vmi.uid()) {
            return plan.clone();
        }
        let plan = self.driver.plan(vmi.uid(), &labels(&vmi.value));
        self.memory().plans.insert(vmi.uid().to_owned(), plan.clone());
        plan
    }

    /// Everything between "the pod is placed" and "the machine is being made".
    fn start_machine(self: &Arc<Self>, vmi: &ObjectRef, pod: &ObjectRef) -> Result<(), Status> {
        if self.memory().busy.contains_key(vmi.uid()) {
            return Ok(());
        }
        if let Some((volume, secret)) = self.missing_secret(vmi) {
            let message =
                format!("MountVolume.SetUp failed for volume \"{volume}\" : secret \"{secret}\" not found");
            self.say(&pod.value, "Warning", "FailedMount", &message, "kubelet");
            return self.containers_wait(pod, "ContainerCreating", "");
        }
        let plan = self.plan(vmi);
        let unknown = || {
            self.unknown_image(vmi)
                .map(|image| format!("failed to pull and unpack image \"{image}\": not found"))
        };
        if let Some(why) = plan.image_pull_error.or_else(unknown) {
            return self.pull_fails(vmi, pod, &why);
        }
        if !plan.pull.is_zero() && !self.memory().pulled.contains(vmi.uid()) {
            self.containers_wait(pod, "ContainerCreating", "")?;
            self.pull(vmi, plan.pull);
            return Ok(());
        }
        let spec = match self.spec(vmi) {
            Ok(spec) => spec,
            Err(why) => {
                self.say(&pod.value, "Warning", "FailedMount", &why, "kubelet");
                return self.containers_wait(pod, "ContainerCreating", "");
            }
        };
        self.memory().busy.insert(vmi.uid().to_owned(), Busy::Starting);
        let (world, key, uid) = (Arc::clone(self), vmi.key.clone(), vmi.uid().to_owned());
        self.tracker.spawn(async move {
            let started = world.driver.start(spec).await;
            world.memory().busy.remove(&uid);
            match started {
                Ok(machine) => world.follow(&key, &machine),
                Err(error) => {
                    tracing::error!(vm.name = &*key.name, error = %chain(&error), "a machine could not be started");
                    world.launcher_failed(&key, &uid);
                }
            }
            world.again(&key);
        });
        Ok(())
    }

    /// The launcher ended before the guest ran: the pod is Failed.
    fn launcher_failed(&self, key: &Key, uid: &str) {
        let Some(vmi) = self.client.find(key).filter(|vmi| vmi.uid() == uid) else { return };
        let Some(pod) = self.pod_of(&vmi.value) else { return };
        let written = self.client.update_status(&pod.key, |pod| {
            pod["status"]["phase"] = "Failed".into();
            Ok(())
        });
        if let Err(error) = written {
            tracing::debug!(%error, "a pod could not be marked as failed");
        }
    }

    fn pull(self: &Arc<Self>, vmi: &ObjectRef, takes: Duration) {
        self.memory().busy.insert(vmi.uid().to_owned(), Busy::Pulling);
        let (world, key, uid) = (Arc::clone(self), vmi.key.clone(), vmi.uid().to_owned());
        self.tracker.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(takes) => {}
                () = world.shutdown.cancelled() => return,
            }
            {
                let mut memory = world.memory();
                memory.busy.remove(&uid);
                memory.pulled.insert(uid);
            }
            world.again(&key);
        });
    }

    fn pull_fails(self: &Arc<Self>, vmi: &ObjectRef, pod: &ObjectRef, why: &str) -> Result<(), Status> {
        let waits = waiting(&pod.value).unwrap_or_default();
        if waits == "ErrImagePull" {
            self.memory().busy.insert(vmi.uid().to_owned(), Busy::Pulling);
            let (world, key, uid, pod) =
                (Arc::clone(self), vmi.key.clone(), vmi.uid().to_owned(), pod.clone());
            let why = format!("Back-off pulling image: {why}");
            self.tracker.spawn(async move {
                tokio::select! {
                    () = tokio::time::sleep(BACK_OFF) => {}
                    () = world.shutdown.cancelled() => return,
                }
                world.memory().busy.remove(&uid);
                if let Err(error) = world.containers_wait(&pod, "ImagePullBackOff", &why) {
                    tracing::debug!(%error, "a pod is gone while its image was not pulled");
                }
                world.again(&key);
            });
            return Ok(());
        }
        if waits == "ImagePullBackOff" {
            self.again_with_new_plan(vmi);
            return Ok(());
        }
        self.say(&pod.value, "Warning", "Failed", &format!("Failed to pull image: {why}"), "kubelet");
        self.containers_wait(pod, "ErrImagePull", why)
    }

    fn unknown_image(&self, vmi: &ObjectRef) -> Option<String> {
        if !self.images.is_real() {
            return None;
        }
        let named = volumes(&vmi.value).filter_map(|volume| volume.pointer("/containerDisk/image")?.as_str());
        named.filter(|image| self.images.find(image).is_none()).map(str::to_owned).next()
    }

    fn missing_secret(&self, vmi: &ObjectRef) -> Option<(String, String)> {
        volumes(&vmi.value).find_map(|volume| {
            let refs = [("secretRef", "udata"), ("networkDataSecretRef", "ndata")];
            refs.into_iter().find_map(|(reference, suffix)| {
                let name = volume.get("cloudInitNoCloud")?.get(reference)?.get("name")?.as_str()?;
                let there = self.client.find(&Key::new(&SECRETS, &vmi.key.namespace, name)).is_some();
                (!there).then(|| (format!("{}-{suffix}", object::text_at(volume, "name")), name.to_owned()))
            })
        })
    }

    /// The kubelet is at work on the pod.
    fn containers_wait(&self, pod: &ObjectRef, reason: &str, message: &str) -> Result<(), Status> {
        self.client.update_status(&pod.key, |pod| {
            let mut waiting = json!({"reason": reason});
            if !message.is_empty() {
                waiting["message"] = message.into();
            }
            pod["status"]["containerStatuses"] = json!([{
                "name": "compute", "ready": false, "started": false, "restartCount": 0, "image": "", "imageID": "",
                "state": {"waiting": waiting},
            }]);
            for (kind, status) in [("Initialized", true), ("ContainersReady", false), ("Ready", false)] {
                let plain = Condition { kind, status, reason: "", message: "", probed: false };
                conditions::set(&mut pod["status"], plain);
            }
            Ok(())
        })?;
        Ok(())
    }

    /// The machine has an address: the pod runs.
    fn containers_run(&self, pod: &ObjectRef, machine: &Machine) -> Result<(), Status> {
        let address = machine.address().to_string();
        let probed = pod.value.pointer("/spec/containers/0/readinessProbe").is_some();
        let now = object::now();
        self.client.update_status(&pod.key, |pod| {
            let status = &mut pod["status"];
            status["phase"] = "Running".into();
            status["hostIP"] = "127.0.0.1".into();
            status["podIP"] = address.as_str().into();
            status["podIPs"] = json!([{"ip": address}]);
            status["startTime"] = now.as_str().into();
            status["qosClass"] = "Burstable".into();
            status["containerStatuses"] = json!([{
                "name": "compute", "ready": !probed, "started": true, "restartCount": 0, "image": LAUNCHER_IMAGE, "imageID": "", "lastState": {},
                "state": {"running": {"startedAt": now}},
            }]);
            let initialized = Condition { kind: "Initialized", status: true, reason: "", message: "", probed: false };
            conditions::set(status, initialized);
            set_ready(status, !probed);
            Ok(())
        })?;
        Ok(())
    }

    fn scheduled(&self, vmi: &ObjectRef) -> Result<(), Status> {
        self.client.update(&vmi.key, |vmi| {
            enter(vmi, "Scheduled");
            object::meta_mut(vmi).entry("labels").or_insert_with(|| json!({}))[NODE_LABEL] = NODE.into();
            let interfaces: Vec<Value> = interface_names(vmi)
                .into_iter()
                .map(|(name, device)| json!({"name": name, "podInterfaceName": device}))
                .collect();
            let mut targets: Vec<Value> =
                volumes(vmi).map(|volume| json!({"name": volume["name"], "target": ""})).collect();
            targets.sort_by(|a, b| object::text_at(a, "name").cmp(object::text_at(b, "name")));
            let status = &mut vmi["status"];
            status["nodeName"] = NODE.into();
            status["migrationTransport"] = "Unix".into();
            status["interfaces"] = interfaces.into();
            status["volumeStatus"] = targets.into();
            Ok(())
        })?;
        Ok(())
    }

    fn running(&self, vmi: &ObjectRef, machine: &Machine) -> Result<(), Status> {
        let address = machine.address().to_string();
        self.client.update(&vmi.key, |vmi| {
            enter(vmi, "Running");
            let mut interfaces = Vec::new();
            for (index, (name, device)) in interface_names(vmi).into_iter().enumerate() {
                let mut shown = json!({
                    "name": name, "podInterfaceName": device, "infoSource": "domain", "linkState": "up", "queueCount": 1,
                });
                if index == 0 {
                    shown["mac"] = machine.mac().into();
                    shown["ipAddress"] = address.as_str().into();
                    shown["ipAddresses"] = json!([address]);
                }
                interfaces.push(shown);
            }
            vmi["status"]["interfaces"] = interfaces.into();
            Ok(())
        })?;
        self.client.event(&vmi.value, "Normal", "Created", "VirtualMachineInstance defined.", HANDLER);
        self.client.event(&vmi.value, "Normal", "Started", "VirtualMachineInstance started.", HANDLER);
        Ok(())
    }

    /// Ready is what the pod says; the pod says what the probe found.
    fn ready(self: &Arc<Self>, vmi: &ObjectRef, pod: &ObjectRef, machine: &Machine) -> Result<(), Status> {
        if pod.value.pointer("/spec/containers/0/readinessProbe").is_some() {
            probe::begin(self, vmi, pod, machine.address());
        }
        let shown = pod.value.get("status").and_then(|status| conditions::find(status, "Ready")).cloned();
        let Some(shown) = shown else { return Ok(()) };
        self.client.update(&vmi.key, |vmi| {
            conditions::put(&mut vmi["status"], shown.clone());
            Ok(())
        })?;
        Ok(())
    }

    /// The machine is over.
    fn ended(&self, vmi: &ObjectRef, end: End) -> Result<(), Status> {
        if is_final(&vmi.value) {
            return Ok(());
        }
        let (phase, kind, message) = match end {
            End::Shutdown => ("Succeeded", "Normal", "The VirtualMachineInstance was shut down."),
            End::Crashed | End::Panicked | End::Killed => {
                ("Failed", "Warning", "The VirtualMachineInstance crashed.")
            }
        };
        self.client.update(&vmi.key, |vmi| {
            enter(vmi, phase);
            Ok(())
        })?;
        self.client.event(&vmi.value, kind, "Stopped", message, HANDLER);
        Ok(())
    }

    /// Whether nothing of the machine of a terminating instance is left; else does what brings that about.
    pub(super) fn stopped(self: &Arc<Self>, vmi: &ObjectRef) -> Result<bool, Status> {
        let uid = vmi.uid();
        if self.memory().busy.contains_key(uid) {
            // It is being started or removed: its end brings the key back. A pull in vain must not hold a deletion.
            return Ok(self.memory().busy.get(uid) == Some(&Busy::Pulling));
        }
        let Some(machine) = self.driver.get(uid) else {
            if matches!(phase(&vmi.value), "Running" | "Scheduled") {
                self.ended(vmi, End::Crashed)?;
                return Ok(false);
            }
            return Ok(true);
        };
        self.follow(&vmi.key, &machine);
        if let Run::Ended(end) = machine.status().run {
            if matches!(phase(&vmi.value), "Running" | "Scheduled") {
                self.ended(vmi, end)?;
                return Ok(false);
            }
            remove(self, &vmi.key, uid);
            return Ok(false);
        }
        if self.memory().pressed.insert(uid.to_owned()) {
            self.client.event(&vmi.value, "Normal", "ShuttingDown", "Signaled Graceful Shutdown", HANDLER);
            let seconds = pod::grace_seconds(&vmi.value).unwrap_or(DEFAULT_GRACE).max(0);
            let grace = Duration::from_secs(seconds.unsigned_abs());
            self.tracker.spawn(async move { machine.power_down(grace).await });
        }
        Ok(false)
    }
}

/// The pod's readiness, as the kubelet writes it.
pub(super) fn set_ready(status: &mut Value, is_ready: bool) {
    let (reason, message) =
        if is_ready { ("", "") } else { ("ContainersNotReady", "containers with unready status: [compute]") };
    for kind in ["ContainersReady", "Ready"] {
        conditions::set(status, Condition { kind, status: is_ready, reason, message, probed: false });
    }
    if let Some(compute) = status.pointer_mut("/containerStatuses/0") {
        compute["ready"] = is_ready.into();
    }
}

fn waiting(pod: &Value) -> Option<&str> {
    pod.pointer("/status/containerStatuses/0/state/waiting/reason")?.as_str()
}

/// Network name and device in the pod of each interface, in their order.
fn interface_names(vmi: &Value) -> Vec<(String, String)> {
    let list = object::at(vmi, "spec.domain.devices.interfaces").and_then(Value::as_array);
    let name = |interface: &Value| object::text_at(interface, "name").to_owned();
    list.into_iter().flatten().enumerate().map(|(at, i)| (name(i), format!("eth{at}"))).collect()
}

/// Memory of this host; a guest that wants more can never be placed.
fn host_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kilobytes.map_or(u64::MAX, |kb| kb * 1024)
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        text.push_str(": ");
        text.push_str(&next.to_string());
        source = next.source();
    }
    text
}
