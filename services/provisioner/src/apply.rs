//! Carries out decisions: asks, looks, creates, reports.
//!
//! Invariant (create and end may cross): a create is sent only with a permit, which is one answer of the api that says the
//! machine is wanted, used once, within 10 s of the moment when the question was *sent*. The reaper's last look comes 20 s
//! after the end, so nothing that was asked for before the end can appear after that look.

use std::{sync::Arc, time::Duration};

use lab_bus::event;
use lab_catalog::Lab;
use lab_domain::{DiskKind, EventId, MachineName, SessionId, id::object_name, token::TokenKey};
use lab_kubevirt::{Identity, Installation, labels, manifest};
use lab_proto::{convert, v1};
use tokio::time::Instant;

use crate::{
    decide::{self, Decision, Effect, Fact, Recipe, Then, World, decide},
    error::{Class, Error},
    known::Known,
    labs::Labs,
    material::Material,
    metrics::{Metrics, Outcome},
    outside::{Outside, Seen},
};

/// How old a permit may be when its create is sent.
pub(crate) const PERMIT: Duration = Duration::from_secs(10);
/// Looks in one run: two are usual, each crossing with another replica costs one more.
const ROUNDS: usize = 6;

/// What all runs share.
#[derive(Debug)]
pub(crate) struct Provisioner<O> {
    pub(crate) outside: O,
    pub(crate) labs: Arc<Labs>,
    pub(crate) key: TokenKey,
    pub(crate) resolvers: Vec<std::net::IpAddr>,
    pub(crate) metrics: Metrics,
}

/// Leave to send one create. Used up by it.
#[derive(Debug)]
struct Permit {
    sent: Instant,
}

impl Permit {
    fn is_fresh(&self) -> bool {
        self.sent.elapsed() <= PERMIT
    }
}

/// One machine's run.
struct Run<'a, O> {
    shared: &'a Provisioner<O>,
    installation: &'a Installation,
    lab: Option<Arc<Lab>>,
    known: Known,
    machine: MachineName,
    permit: Option<Permit>,
    is_announced: bool,
}

impl<O: Outside> Provisioner<O> {
    /// Brings every machine of a session as far as it can be brought now.
    pub(crate) async fn session(
        &self,
        installation: &Installation,
        session: SessionId,
        cause: Option<EventId>,
    ) -> Result<Then, Error> {
        let Some((mut known, permit)) = self.ask(session).await? else { return Ok(Then::Done) };
        known.envelope.causation = cause;
        let mut permit = Some(permit);
        let mut then = Then::Done;
        let open: Vec<MachineName> = known.open_machines().map(|m| m.name.clone()).collect();
        if open.is_empty() {
            return Ok(then);
        }
        let lab = self.labs.find(&known.lab_digest).await;
        for machine in open {
            let mut run = Run {
                shared: self,
                installation,
                lab: lab.clone(),
                known: known.clone(),
                machine,
                permit: permit.take(),
                is_announced: false,
            };
            then = later(then, run.finish().await?);
        }
        Ok(then)
    }

    async fn ask(&self, session: SessionId) -> Result<Option<(Known, Permit)>, Error> {
        let permit = Permit { sent: Instant::now() };
        let Some(answer) = self.outside.ask(session).await? else { return Ok(None) };
        let known = Known::read(&answer).map_err(|source| Error::Answer { session, source })?;
        Ok(Some((known, permit)))
    }
}

fn later(a: Then, b: Then) -> Then {
    match (a, b) {
        (Then::Wait(x), Then::Wait(y)) => Then::Wait(x.min(y)),
        (Then::Wait(x), Then::Done | Then::Look) | (Then::Done | Then::Look, Then::Wait(x)) => Then::Wait(x),
        (Then::Done | Then::Look, Then::Done | Then::Look) => Then::Done,
    }
}

impl<O: Outside> Run<'_, O> {
    async fn finish(&mut self) -> Result<Then, Error> {
        let started = Instant::now();
        for _ in 0..ROUNDS {
            let recipe = self.shared.labs.recipe(self.lab.as_deref(), &self.machine);
            let claim = match &recipe {
                Recipe::Ready { asked: DiskKind::Golden, image } => Some(image.golden_claim()),
                Recipe::Ready { .. } | Recipe::LabMissing | Recipe::Impossible { .. } => None,
            };
            let name = object_name(self.known.id, &self.machine);
            let seen = self.shared.outside.see(&name, claim.as_deref()).await?;
            let decision = decide(&self.world(recipe, &seen)?, self.shared.outside.now());
            match self.carry_out(decision).await? {
                Then::Look => {}
                then @ (Then::Done | Then::Wait(_)) => {
                    self.shared.metrics.took(started.elapsed());
                    return Ok(then);
                }
            }
        }
        Err(Error::Busy { session: self.known.id })
    }

    fn world(&self, recipe: Recipe, seen: &Seen) -> Result<World, Error> {
        let us = Identity { session: self.known.id, machine: Some(self.machine.clone()) };
        let is_ours = |meta: &_| self.installation.identity(meta).as_ref() == Some(&us);
        let uid = |operation, meta: &kube::core::ObjectMeta| {
            let name = meta.name.clone().unwrap_or_default();
            meta.uid.clone().ok_or(Error::Odd { operation, name, what: "a uid" })
        };
        let key = |meta: &_| labels::annotation(meta, labels::TOKEN_KEY).map(str::to_owned);
        let secret = seen.secret.as_ref().map(|secret| {
            let meta = &secret.metadata;
            let owner = meta.owner_references.iter().flatten().find(|o| o.kind == "VirtualMachine");
            Ok(decide::Secret {
                uid: uid("get Secret", meta)?,
                is_ours: is_ours(meta),
                is_terminating: meta.deletion_timestamp.is_some(),
                token_key: key(meta),
                owner: owner.map(|o| o.uid.clone()),
            })
        });
        let vm = seen.vm.as_ref().map(|vm| {
            Ok(decide::Vm {
                uid: uid("get VirtualMachine", &vm.metadata)?,
                is_ours: is_ours(&vm.metadata),
                is_terminating: vm.is_terminating(),
                token_key: key(&vm.metadata),
                disk: manifest::disk_of(vm),
            })
        });
        Ok(World {
            started_at: self.known.machine(&self.machine).and_then(|m| m.started_at),
            is_announced: self.is_announced,
            recipe,
            golden: seen.golden.clone(),
            secret: secret.transpose()?,
            vm: vm.transpose()?,
            token_key: self.shared.key.id(),
        })
    }

    async fn carry_out(&mut self, decision: Decision) -> Result<Then, Error> {
        for effect in decision.effects {
            match self.perform(effect).await {
                Ok(true) => {}
                // No longer wanted: whatever else was decided is void.
                Ok(false) => return Ok(Then::Done),
                Err(error) => match error.class() {
                    Class::Conflict => return Ok(Then::Look),
                    Class::Permanent { cause, message } => {
                        tracing::error!(
                            session.id = %self.known.id, cause,
                            error = %lab_kit::telemetry::chain(&error), "a machine cannot be made"
                        );
                        self.publish(Fact::Failed { cause, message }).await?;
                        return Ok(Then::Done);
                    }
                    Class::Retry => return Err(error),
                },
            }
        }
        Ok(decision.then)
    }

    /// False if the machine is no longer wanted.
    async fn perform(&mut self, effect: Effect) -> Result<bool, Error> {
        let outside = &self.shared.outside;
        match effect {
            Effect::Publish(fact) => self.publish(fact).await?,
            Effect::CreateSecret => {
                let secret = self.material()?.secret()?;
                if !self.may_create().await? {
                    return Ok(false);
                }
                outside.create_secret(&secret).await?;
            }
            Effect::CreateVm { disk, reason, image, token_key } => {
                let vm = self.material()?.virtual_machine(disk, reason, image, token_key)?;
                if !self.may_create().await? {
                    return Ok(false);
                }
                outside.create_vm(&vm).await?;
            }
            Effect::SetOwner { vm_uid, secret_uid } => {
                let name = object_name(self.known.id, &self.machine);
                outside.set_owner(&name, &vm_uid, &secret_uid).await?;
            }
        }
        Ok(true)
    }

    /// Creating is decided only where lab and machine are known.
    fn material(&self) -> Result<Material<'_>, Error> {
        let lab = self.lab.as_deref();
        let machine =
            lab.and_then(|lab| lab.machine(&self.machine)).ok_or(Error::Busy { session: self.known.id })?;
        Ok(Material {
            installation: self.installation,
            known: &self.known,
            machine,
            key: &self.shared.key,
            resolvers: &self.shared.resolvers,
        })
    }

    async fn publish(&mut self, fact: Fact) -> Result<(), Error> {
        let machine = self.machine.to_string();
        let (kind, outcome) = match fact {
            Fact::Started => (event::Kind::ProvisioningStarted(v1::ProvisioningStarted { machine }), None),
            Fact::Provisioned { disk } => {
                let report = v1::MachineProvisioned {
                    machine,
                    disk: disk.map_or(0, |d| convert::disk_kind_number(d.kind)),
                    disk_reason: disk.map_or("unknown", |d| d.reason.as_str()).to_owned(),
                };
                (event::Kind::MachineProvisioned(report), Some(Outcome::provisioned(disk)))
            }
            Fact::Failed { cause, message } => {
                let cause = cause.to_owned();
                let report = v1::ProvisionFailed { machine, cause, message };
                (event::Kind::ProvisionFailed(report), Some(Outcome::failed()))
            }
        };
        self.shared.outside.publish(&self.known.envelope, kind).await?;
        match outcome {
            None => self.is_announced = true,
            Some(outcome) => self.shared.metrics.reported(outcome),
        }
        Ok(())
    }

    /// Asks for a permit and uses it up. The create follows at once.
    async fn may_create(&mut self) -> Result<bool, Error> {
        loop {
            if let Some(permit) = self.permit.take()
                && permit.is_fresh()
            {
                return Ok(true);
            }
            let Some((known, permit)) = self.shared.ask(self.known.id).await? else { return Ok(false) };
            if !known.wants(&self.machine) {
                tracing::info!(session.id = %self.known.id, "no longer wanted: nothing more is created");
                return Ok(false);
            }
            let causation = self.known.envelope.causation;
            self.known = known;
            self.known.envelope.causation = causation;
            self.permit = Some(permit);
        }
    }
}
