//! KubeVirt's part of the cluster: VM admission, the controllers VM -> VMI -> launcher pod, DataVolume import and the
//! subresources (`console`, `start`, `stop`, `restart`, ...).
//!
//! ```text
//!             admission.rs, validate.rs         what is refused, what is filled in
//!  work.rs ─▶ vm.rs ─▶ template.rs, status.rs   when a VM has an instance, what it shows
//!         ├─▶ vmi.rs ─▶ pod.rs                  the instance's pod and phases
//!         │      └───▶ node.rs, probe.rs        scheduler, kubelet, virt-handler: the machine itself,
//!         │             └───▶ guest.rs           and what it is made of
//!         └─▶ data_volume.rs ─▶ images.rs       disks
//!  subresources.rs ─▶ console.rs                what is asked of a VM from outside
//! ```
//!
//! It keeps the promises that were recorded from the real thing, text by text; what it does not have: live migration,
//! hotplug, snapshots, graphics, instance types, pools.

mod admission;
mod conditions;
mod console;
mod data_volume;
mod guest;
mod images;
mod names;
mod node;
mod pod;
mod probe;
mod status;
mod subresources;
mod template;
mod validate;
mod vm;
mod vmi;
mod work;

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use lab_machine::sim::{Sim, Times};
use lab_machine::{Driver, qemu::Qemu};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use self::images::Images;
use self::work::{Memory, World};
use crate::admission::Registry;
use crate::config::{self, DriverArgs};

/// Hangs KubeVirt into the cluster. Called once, before the cluster starts; `state_dir` is the cluster's own (machines
/// live in a directory below it).
pub(crate) fn register(args: &DriverArgs, state_dir: &Path, registry: &mut Registry) -> anyhow::Result<()> {
    if let Some(files) = lab_machine::raise_open_files() {
        tracing::debug!(files, "descriptors that this process may hold");
    }
    // Machines outlive the cluster's orderly end, so their tasks are not among those that it waits for.
    let machines = TaskTracker::new();
    let driver = match args.driver {
        config::Driver::Sim => {
            let times = Times { boot: args.sim_boot, agent: args.sim_agent, prepare: args.sim_prepare };
            let sim = Sim::new(&state_dir.join("sim"), times, machines)?;
            registry.operator(lab_machine::sim::router(sim.clone()));
            Driver::Sim(sim)
        }
        config::Driver::Qemu => Driver::Qemu(Qemu::new(&state_dir.join("qemu"), machines)?),
    };
    let store = match args.driver {
        config::Driver::Sim => None,
        config::Driver::Qemu => args.image_store.clone(),
    };
    let images = Images::new(store);
    let disks = state_dir.join("volumes");
    let world: Arc<OnceLock<Weak<World>>> = Arc::default();
    registry.admission(admission::Webhooks);
    registry.subresources(subresources::Handler { world: Arc::clone(&world) });
    registry.controller("kubevirt", move |context| async move {
        let (queue, asked) = mpsc::unbounded_channel();
        let made = Arc::new(World {
            client: context.cluster.client(names::CONTROLLER),
            driver,
            images,
            disks,
            tracker: context.tracker.clone(),
            shutdown: context.shutdown.clone(),
            queue,
            memory: Mutex::new(Memory::default()),
        });
        if world.set(Arc::downgrade(&made)).is_err() {
            tracing::error!("the machines were started twice");
            return;
        }
        work::run(made, asked, context).await;
    });
    Ok(())
}
