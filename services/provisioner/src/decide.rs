//! What to do next for one machine, given everything that was seen. Pure.
//!
//! ```text
//!  look ─▶ decide ─▶ create Secret, create VM ─▶ look again ─▶ own the Secret, report ─▶ done
//!            │ another's object, lab or image unusable          │ golden disk vanished
//!            └────────────▶ report the failure ◀────────────────┘
//! ```
//!
//! MachineProvisioned is reported only after a look that shows VM and Secret, never from what a create answered: so a crash
//! after any effect, a second replica and a repeated message all take the same path.

use std::time::Duration;

use lab_catalog::Image;
use lab_domain::{
    Digest, DiskKind,
    disk::{self, Choice, DiskReason, Golden},
};
use lab_kubevirt::manifest::RootDisk;
use time::OffsetDateTime;

/// How long another replica may know a lab that we do not have.
pub(crate) const LAB_GRACE: Duration = Duration::from_secs(60);
/// Until the lab is looked for again.
const LAB_PAUSE: Duration = Duration::from_secs(5);
/// Until something that is on its way out is looked at again.
const LEAVING_PAUSE: Duration = Duration::from_secs(2);

/// Everything that was seen of one machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct World {
    /// When work on it began, as the api knows it.
    pub(crate) started_at: Option<OffsetDateTime>,
    /// ProvisioningStarted was published in this run.
    pub(crate) is_announced: bool,
    /// What it is to be made of.
    pub(crate) recipe: Recipe,
    /// The golden PVC; `None` where it was not looked at.
    pub(crate) golden: Option<Golden>,
    /// Object of the Secret's name.
    pub(crate) secret: Option<Secret>,
    /// Object of the VM's name.
    pub(crate) vm: Option<Vm>,
    /// Id of the key that we make tokens with.
    pub(crate) token_key: String,
}

/// What a machine is to be made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Recipe {
    /// Lab and image are here.
    Ready {
        /// The disk that the lab asks for.
        asked: DiskKind,
        /// The image's forms in this cluster.
        image: Image,
    },
    /// We do not have this content of the lab.
    LabMissing,
    /// It can never be made here.
    Impossible {
        /// One word.
        cause: &'static str,
        /// Plain words.
        message: String,
    },
}

/// A Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Secret {
    pub(crate) uid: String,
    pub(crate) is_ours: bool,
    pub(crate) is_terminating: bool,
    pub(crate) token_key: Option<String>,
    /// uid of the VM that owns it.
    pub(crate) owner: Option<String>,
}

/// A VirtualMachine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vm {
    pub(crate) uid: String,
    pub(crate) is_ours: bool,
    pub(crate) is_terminating: bool,
    pub(crate) token_key: Option<String>,
    /// As its annotations tell; `None` if somebody took them off.
    pub(crate) disk: Option<Choice>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Report.
    Publish(Fact),
    /// Create the cloud-init Secret.
    CreateSecret,
    /// Create the VM.
    CreateVm { disk: RootDisk, reason: DiskReason, image: Digest, token_key: String },
    /// Make the VM the Secret's owner.
    SetOwner { vm_uid: String, secret_uid: String },
}

/// What is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fact {
    Started,
    Provisioned { disk: Option<Choice> },
    Failed { cause: &'static str, message: String },
}

/// Effects in order, and what follows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) effects: Vec<Effect>,
    pub(crate) then: Then,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Everything was said.
    Done,
    /// Look again at once.
    Look,
    /// Come back after this time.
    Wait(Duration),
}

/// Decides.
pub(crate) fn decide(world: &World, now: OffsetDateTime) -> Decision {
    let mut decision = match &world.vm {
        Some(vm) => with_vm(world, vm, now),
        None => without_vm(world, now),
    };
    if world.started_at.is_none() && !world.is_announced {
        decision.effects.insert(0, Effect::Publish(Fact::Started));
    }
    decision
}

/// The report of a machine that cannot be made.
pub(crate) fn failed(cause: &'static str, message: impl Into<String>) -> Decision {
    let fact = Fact::Failed { cause, message: message.into() };
    Decision { effects: vec![Effect::Publish(fact)], then: Then::Done }
}

fn act(effects: Vec<Effect>, then: Then) -> Decision {
    Decision { effects, then }
}

fn wait(pause: Duration) -> Decision {
    act(vec![], Then::Wait(pause))
}

fn name_taken(kind: &str) -> Decision {
    failed("name_taken", format!("a {kind} of this name exists and carries other labels"))
}

fn with_vm(world: &World, vm: &Vm, now: OffsetDateTime) -> Decision {
    if !vm.is_ours {
        return name_taken("VirtualMachine");
    }
    if vm.is_terminating {
        return wait(LEAVING_PAUSE);
    }
    let Some(secret) = &world.secret else {
        // Somebody deleted it. The token must be the one that readiness reckons by the VM's annotation.
        return match recipe(world, now) {
            Err(other) => other,
            Ok(_) if vm.token_key.as_ref() == Some(&world.token_key) => {
                act(vec![Effect::CreateSecret], Then::Look)
            }
            Ok(_) => {
                failed("token_key_changed", "the machine's Secret is gone and its key is no longer ours")
            }
        };
    };
    if !secret.is_ours {
        return name_taken("Secret");
    }
    if secret.is_terminating {
        return wait(LEAVING_PAUSE);
    }
    if vm.disk.is_some_and(|d| d.kind == DiskKind::Golden) && has_vanished(world.golden.as_ref()) {
        return failed("golden_vanished", "the golden disk was deleted while the machine was being created");
    }
    let mut effects = Vec::new();
    match &secret.owner {
        Some(owner) if *owner == vm.uid => {}
        // Left over from a VM of this name that is gone: it will be collected.
        Some(_) => return wait(LEAVING_PAUSE),
        None => effects.push(Effect::SetOwner { vm_uid: vm.uid.clone(), secret_uid: secret.uid.clone() }),
    }
    effects.push(Effect::Publish(Fact::Provisioned { disk: vm.disk }));
    act(effects, Then::Done)
}

fn without_vm(world: &World, now: OffsetDateTime) -> Decision {
    match &world.secret {
        Some(secret) if !secret.is_ours => return name_taken("Secret"),
        // An owned Secret without its VM is on its way out: it would be collected from under the new machine.
        Some(secret) if secret.is_terminating || secret.owner.is_some() => return wait(LEAVING_PAUSE),
        Some(_) | None => {}
    }
    let (asked, image) = match recipe(world, now) {
        Ok(ready) => ready,
        Err(other) => return other,
    };
    let golden = world.golden.as_ref().unwrap_or(&Golden::Missing);
    let choice = disk::choose(asked, &image.digest, golden);
    let disk = match (choice.kind, &image.data_volume) {
        (DiskKind::Golden, _) => RootDisk::Golden { claim: image.golden_claim() },
        (DiskKind::Container, _) => RootDisk::Container { image: image.container_disk.clone() },
        (DiskKind::DataVolume, Some(source)) => {
            RootDisk::DataVolume { url: source.url.clone(), size: source.size.clone() }
        }
        (DiskKind::DataVolume, None) => {
            return failed(
                "image_has_no_data_volume",
                "the image table has no data volume for this lab's image",
            );
        }
    };
    let (mut effects, mut token_key) = (Vec::new(), world.token_key.clone());
    match &world.secret {
        None => effects.push(Effect::CreateSecret),
        // The token is in the Secret: the VM says which key made it.
        Some(secret) => token_key = secret.token_key.clone().unwrap_or(token_key),
    }
    let image = image.digest.clone();
    effects.push(Effect::CreateVm { disk, reason: choice.reason, image, token_key });
    act(effects, Then::Look)
}

/// The recipe, or what to do without one.
fn recipe(world: &World, now: OffsetDateTime) -> Result<(DiskKind, &Image), Decision> {
    match &world.recipe {
        Recipe::Ready { asked, image } => Ok((*asked, image)),
        Recipe::Impossible { cause, message } => Err(failed(cause, message.as_str())),
        Recipe::LabMissing => match world.started_at {
            Some(at) if now - at >= LAB_GRACE => {
                Err(failed("lab_changed", "the lab was changed after this session was requested"))
            }
            Some(_) | None => Err(wait(LAB_PAUSE)),
        },
    }
}

fn has_vanished(golden: Option<&Golden>) -> bool {
    match golden {
        Some(Golden::Missing) => true,
        Some(Golden::Found(claim)) => claim.being_deleted,
        Some(Golden::Forbidden) | None => false,
    }
}

#[cfg(test)]
mod tests;
