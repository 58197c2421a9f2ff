//! The loop of KubeVirt's controllers: every change of the store becomes a key, every key is looked at anew.
//!
//! One task, one queue without doubles, and functions that do the first thing that is missing and return: the change
//! that they make brings the key back. So each intermediate state is written and can be watched, as on the real thing,
//! and nothing is remembered that a restart would lose.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lab_machine::{Driver, Machine};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::images::Images;
use super::names::CREATED_BY;
use crate::admission::ControllerContext;
use crate::api::Client;
use crate::object;
use crate::resource::{
    DATA_VOLUMES, PERSISTENT_VOLUME_CLAIMS, PODS, Resource, SECRETS, VIRTUAL_MACHINE_INSTANCES,
    VIRTUAL_MACHINES,
};
use crate::store::{Change, Key, ObjectRef};

/// Keys handled before the runtime gets a turn.
const BATCH: usize = 32;

/// Everything that the controllers share.
pub(super) struct World {
    pub(super) client: Client,
    pub(super) driver: Driver,
    pub(super) images: Images,
    pub(super) disks: PathBuf,
    pub(super) tracker: TaskTracker,
    pub(super) shutdown: tokio_util::sync::CancellationToken,
    pub(super) queue: mpsc::UnboundedSender<Key>,
    pub(super) memory: Mutex<Memory>,
}

/// What is known only to this process, by uid of the instance. All of it can be lost.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// What is being done for it right now.
    pub(super) busy: HashMap<String, Busy>,
    /// Its machine's life is being followed.
    pub(super) followed: HashSet<String>,
    /// It is being probed.
    pub(super) probed: HashSet<String>,
    /// What the rules of the driver say about it.
    pub(super) plans: HashMap<String, lab_machine::sim::Plan>,
    /// It will be tried again with a new plan.
    pub(super) retried: HashSet<String>,
    /// Its pull is over.
    pub(super) pulled: HashSet<String>,
    /// Its power button was pressed.
    pub(super) pressed: HashSet<String>,
    /// How often the creation of its pod was refused.
    pub(super) refused: HashMap<String, u32>,
    /// A VM that is about to be let go.
    pub(super) ending: HashSet<String>,
    /// What was said about it last, so that an event is not repeated by every look.
    pub(super) said: HashMap<String, String>,
    /// Claims that are being filled.
    pub(super) importing: HashSet<String>,
}

/// Something that takes its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Busy {
    Pulling,
    Starting,
    Removing,
}

impl World {
    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a key looked at again.
    pub(super) fn again(&self, key: &Key) {
        // The receiver is gone only when the cluster ends.
        let _ended = self.queue.send(key.clone()).is_err();
    }

    /// Has a key looked at again later.
    pub(super) fn again_in(self: &Arc<Self>, key: &Key, delay: Duration) {
        let (world, key) = (Arc::clone(self), key.clone());
        self.tracker.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(delay) => world.again(&key),
                () = world.shutdown.cancelled() => {}
            }
        });
    }

    /// The launcher pod of an instance.
    pub(super) fn pod_of(&self, vmi: &Value) -> Option<ObjectRef> {
        let dependents = self.client.cluster().store().dependents(object::uid(vmi));
        dependents.into_iter().find(|object| *object.key.resource == PODS)
    }

    /// The instance of a VM, where the one of that name is its own.
    pub(super) fn instance_of(&self, vm: &ObjectRef) -> Option<ObjectRef> {
        let key = Key::new(&VIRTUAL_MACHINE_INSTANCES, &vm.key.namespace, &vm.key.name);
        let found = self.client.find(&key)?;
        object::owner_references(&found.value).iter().any(|owner| owner.uid == vm.uid()).then_some(found)
    }

    /// Says something about an object once, not at every look.
    pub(super) fn say(&self, about: &Value, kind: &str, reason: &str, message: &str, component: &str) {
        let said = format!("{reason}: {message}");
        let before = self.memory().said.insert(object::uid(about).to_owned(), said.clone());
        if before.as_ref() != Some(&said) {
            self.client.event(about, kind, reason, message, component);
        }
    }

    /// Forgets everything about an instance that is gone.
    pub(super) fn forget(&self, uid: &str) {
        let mut memory = self.memory();
        memory.busy.remove(uid);
        memory.followed.remove(uid);
        memory.probed.remove(uid);
        memory.plans.remove(uid);
        memory.pulled.remove(uid);
        memory.retried.remove(uid);
        memory.ending.remove(uid);
        memory.pressed.remove(uid);
        memory.refused.remove(uid);
        memory.said.remove(uid);
    }

    /// Follows the life of a machine: each change has its instance looked at.
    pub(super) fn follow(self: &Arc<Self>, key: &Key, machine: &Machine) {
        if !self.memory().followed.insert(machine.uid().to_owned()) {
            return;
        }
        let (world, key, mut status) = (Arc::clone(self), key.clone(), machine.watch());
        self.tracker.spawn(async move {
            loop {
                tokio::select! {
                    changed = status.changed() => {
                        world.again(&key);
                        if changed.is_err() || matches!(status.borrow().run, lab_machine::Run::Ended(_)) {
                            return;
                        }
                    }
                    () = world.shutdown.cancelled() => return,
                }
            }
        });
    }
}

/// Runs until the shutdown.
pub(super) async fn run(
    world: Arc<World>,
    mut asked: mpsc::UnboundedReceiver<Key>,
    context: ControllerContext,
) {
    let mut feed = context.cluster.store().feed();
    let mut queue = Queue::default();
    for resource in [&VIRTUAL_MACHINES, &VIRTUAL_MACHINE_INSTANCES, &DATA_VOLUMES] {
        for object in world.client.list(resource, None).items {
            queue.push(object.key.clone());
        }
    }
    super::node::adopt(&world).await;
    loop {
        for _ in 0..BATCH {
            while let Ok(change) = feed.try_recv() {
                world.keys_of(&change, &mut queue);
            }
            while let Ok(key) = asked.try_recv() {
                queue.push(key);
            }
            let Some(key) = queue.pop() else { break };
            world.look(&key);
        }
        if queue.is_empty() {
            tokio::select! {
                change = feed.recv() => match change {
                    Some(change) => world.keys_of(&change, &mut queue),
                    None => return,
                },
                key = asked.recv() => match key {
                    Some(key) => queue.push(key),
                    None => return,
                },
                () = context.shutdown.cancelled() => return,
            }
        } else if context.shutdown.is_cancelled() {
            return;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

/// Keys in order, each at most once.
#[derive(Debug, Default)]
pub(super) struct Queue {
    order: VecDeque<Key>,
    waiting: HashSet<Key>,
}

impl Queue {
    fn push(&mut self, key: Key) {
        if self.waiting.insert(key.clone()) {
            self.order.push_back(key);
        }
    }
    fn pop(&mut self) -> Option<Key> {
        let key = self.order.pop_front()?;
        self.waiting.remove(&key);
        Some(key)
    }
    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

impl World {
    /// Which keys a change concerns.
    fn keys_of(self: &Arc<Self>, change: &Change, queue: &mut Queue) {
        let key = change.key();
        if change.is_removal() {
            self.memory().said.remove(change.object().uid());
        }
        let here = |resource: &'static Resource, name: &str| Key::new(resource, &key.namespace, name);
        if *key.resource == VIRTUAL_MACHINES || *key.resource == DATA_VOLUMES {
            queue.push(key.clone());
        } else if *key.resource == VIRTUAL_MACHINE_INSTANCES {
            if change.is_removal() {
                self.instance_is_gone(change.object());
            }
            // The VM first: it shows each state of its instance before that goes on to the next.
            queue.push(here(&VIRTUAL_MACHINES, &key.name));
            queue.push(key.clone());
        } else if *key.resource == PODS {
            let pod = &change.object().value;
            if object::label(pod, CREATED_BY).is_some() {
                queue.push(here(
                    &VIRTUAL_MACHINE_INSTANCES,
                    object::annotation(pod, "kubevirt.io/domain").unwrap_or_default(),
                ));
            }
        } else if *key.resource == SECRETS && change.before.is_none() {
            self.waiting_in(&key.namespace, "Scheduling", queue);
        } else if *key.resource == PERSISTENT_VOLUME_CLAIMS {
            self.claim_changed(change, queue);
        }
        if (*key.resource == DATA_VOLUMES || *key.resource == PERSISTENT_VOLUME_CLAIMS)
            && let Some(owner) = object::owner_references(&change.object().value).first()
        {
            if owner.kind == "VirtualMachine" {
                queue.push(here(&VIRTUAL_MACHINES, &owner.name));
            } else if owner.kind == "DataVolume" {
                queue.push(here(&DATA_VOLUMES, &owner.name));
            }
        }
    }

    fn waiting_in(&self, namespace: &str, phase: &str, queue: &mut Queue) {
        for vmi in self.client.list(&VIRTUAL_MACHINE_INSTANCES, Some(namespace)).items {
            if super::status::phase(&vmi.value) == phase {
                queue.push(vmi.key.clone());
            }
        }
    }

    /// Instances that wait for a claim look again; those over an `ephemeral` volume do not (virt-controller's index of
    /// claims does not know them: they never recover by themselves).
    fn claim_changed(self: &Arc<Self>, change: &Change, queue: &mut Queue) {
        let key = change.key();
        if change.is_removal() {
            super::data_volume::claim_is_gone(self, key);
        }
        for vmi in self.client.list(&VIRTUAL_MACHINE_INSTANCES, Some(&key.namespace)).items {
            let waits = matches!(super::status::phase(&vmi.value), "Pending" | "Scheduling");
            let volumes = object::at(&vmi.value, "spec.volumes").and_then(Value::as_array);
            let uses = volumes.into_iter().flatten().any(|volume| {
                let direct = volume.pointer("/persistentVolumeClaim/claimName").and_then(Value::as_str);
                let filled = volume.pointer("/dataVolume/name").and_then(Value::as_str);
                direct.or(filled) == Some(&*key.name)
            });
            if waits && uses {
                queue.push(vmi.key.clone());
            }
        }
    }

    /// One look at one key.
    fn look(self: &Arc<Self>, key: &Key) {
        let result = if *key.resource == VIRTUAL_MACHINES {
            self.vm(key)
        } else if *key.resource == VIRTUAL_MACHINE_INSTANCES {
            self.vmi(key)
        } else {
            self.data_volume(key)
        };
        match result {
            Ok(()) => {}
            // Gone while we looked: its removal brought the key back already.
            Err(status) if status.is_not_found() => {}
            Err(status) => {
                tracing::debug!(key = %key, error = %status, "a look at an object failed");
                self.again_in(key, Duration::from_millis(200));
            }
        }
    }

    fn instance_is_gone(self: &Arc<Self>, vmi: &ObjectRef) {
        let uid = vmi.uid().to_owned();
        self.forget(&uid);
        if self.driver.get(&uid).is_some() {
            super::node::remove(self, &vmi.key, &uid);
        }
    }
}
