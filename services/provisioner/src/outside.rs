//! Everything outside this process that one run touches, behind one trait: the real thing, and a stand-in that crashes on
//! demand in the tests.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use lab_bus::{Bus, Envelope, event};
use lab_domain::{Environment, SessionId, disk::Golden};
use lab_kit::Clock;
use lab_kubevirt::{DataVolume, VirtualMachine, golden, labels, manifest};
use lab_proto::{
    subjects::{GET_SESSION, LIST_SESSIONS},
    v1,
};
use time::OffsetDateTime;

use crate::error::Error;

/// No request to the cluster takes longer. With the 10 s of [`crate::apply::PERMIT`] it stays below the 20 s after which the
/// reaper takes its last look.
const REQUEST: Duration = Duration::from_secs(5);
/// No question takes longer.
const ASK: Duration = Duration::from_secs(3);

/// The objects of a machine's name, as they are now.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) secret: Option<Secret>,
    pub(crate) vm: Option<VirtualMachine>,
    /// Only where a claim was asked for.
    pub(crate) golden: Option<Golden>,
}

/// The outside.
pub(crate) trait Outside: Send + Sync + 'static {
    /// A session as the api knows it.
    fn ask(&self, session: SessionId) -> impl Future<Output = Result<Option<v1::Session>, Error>> + Send;
    /// One page of live and ending sessions.
    fn list(&self, after: &str) -> impl Future<Output = Result<v1::ListSessionsResponse, Error>> + Send;
    /// The objects of this name, and the golden claim of that name.
    fn see(&self, name: &str, claim: Option<&str>) -> impl Future<Output = Result<Seen, Error>> + Send;
    /// Creates.
    fn create_secret(&self, secret: &Secret) -> impl Future<Output = Result<(), Error>> + Send;
    /// Creates.
    fn create_vm(&self, vm: &VirtualMachine) -> impl Future<Output = Result<(), Error>> + Send;
    /// Makes the VM the owner of the Secret of the same name.
    fn set_owner(
        &self,
        name: &str,
        vm_uid: &str,
        secret_uid: &str,
    ) -> impl Future<Output = Result<(), Error>> + Send;
    /// Publishes a fact.
    fn publish(
        &self,
        envelope: &Envelope,
        kind: event::Kind,
    ) -> impl Future<Output = Result<(), Error>> + Send;
    /// Wall time.
    fn now(&self) -> OffsetDateTime;
}

/// The real thing.
#[derive(Debug, Clone)]
pub(crate) struct Real<C> {
    bus: Bus,
    clock: C,
    secrets: Api<Secret>,
    vms: Api<VirtualMachine>,
    claims: Api<PersistentVolumeClaim>,
    volumes: Api<DataVolume>,
    manager: String,
}

impl<C: Clock> Real<C> {
    pub(crate) fn new(bus: Bus, client: &Client, namespace: &str, clock: C) -> Self {
        Self {
            bus,
            clock,
            secrets: Api::namespaced(client.clone(), namespace),
            vms: Api::namespaced(client.clone(), namespace),
            claims: Api::namespaced(client.clone(), namespace),
            volumes: Api::namespaced(client.clone(), namespace),
            manager: labels::field_manager("provisioner"),
        }
    }

    fn environment(&self) -> &Environment {
        self.bus.environment()
    }

    /// A flawed golden disk is never an error; a cluster that does not answer is one, and passes.
    async fn golden(&self, name: &str) -> Result<Golden, Error> {
        let claim = bounded("get PersistentVolumeClaim", name, self.claims.get_opt(name));
        // The import may be seen only on the DataVolume. It may be gone, not served or not ours to read: then the PVC decides.
        let filler = bounded("get DataVolume", name, self.volumes.get_opt(name));
        let (claim, filler) = tokio::join!(claim, filler);
        match claim {
            Ok(Some(claim)) => Ok(Golden::Found(golden::observe(&claim, filler.ok().flatten().as_ref()))),
            Ok(None) => Ok(Golden::Missing),
            Err(Error::Cluster { source, .. }) if is_forbidden(&source) => Ok(Golden::Forbidden),
            Err(error) => Err(error),
        }
    }
}

impl<C: Clock> Outside for Real<C> {
    async fn ask(&self, session: SessionId) -> Result<Option<v1::Session>, Error> {
        let request = v1::GetSessionRequest { session_id: session.to_string() };
        let answer: v1::GetSessionResponse = self
            .bus
            .ask(GET_SESSION, &request, ASK)
            .await
            .map_err(|source| Error::Ask { session, source })?;
        Ok(answer.session)
    }

    async fn list(&self, after: &str) -> Result<v1::ListSessionsResponse, Error> {
        let request = v1::ListSessionsRequest { after: after.to_owned(), limit: 0 };
        self.bus.ask(LIST_SESSIONS, &request, ASK).await.map_err(Error::List)
    }

    async fn see(&self, name: &str, claim: Option<&str>) -> Result<Seen, Error> {
        let secret = bounded("get Secret", name, self.secrets.get_opt(name));
        let vm = bounded("get VirtualMachine", name, self.vms.get_opt(name));
        let golden = async {
            match claim {
                Some(claim) => self.golden(claim).await.map(Some),
                None => Ok(None),
            }
        };
        let (secret, vm, golden) = tokio::join!(secret, vm, golden);
        Ok(Seen { secret: secret?, vm: vm?, golden: golden? })
    }

    async fn create_secret(&self, secret: &Secret) -> Result<(), Error> {
        let params = self.post();
        let create = self.secrets.create(&params, secret);
        bounded("create Secret", name_of(&secret.metadata), create).await.map(drop)
    }

    async fn create_vm(&self, vm: &VirtualMachine) -> Result<(), Error> {
        let params = self.post();
        let create = self.vms.create(&params, vm);
        bounded("create VirtualMachine", name_of(&vm.metadata), create).await.map(drop)
    }

    async fn set_owner(&self, name: &str, vm_uid: &str, secret_uid: &str) -> Result<(), Error> {
        let params = PatchParams { field_manager: Some(self.manager.clone()), ..PatchParams::default() };
        let patch = Patch::Merge(manifest::owner_patch(name, vm_uid, secret_uid));
        bounded("own Secret", name, self.secrets.patch(name, &params, &patch)).await.map(drop)
    }

    async fn publish(&self, envelope: &Envelope, kind: event::Kind) -> Result<(), Error> {
        let event = event::new(self.environment(), envelope, kind, self.clock.now());
        let session = envelope.session;
        self.bus.publish(&event).await.map(drop).map_err(|source| Error::Publish { session, source })
    }

    fn now(&self) -> OffsetDateTime {
        self.clock.now()
    }
}

impl<C> Real<C> {
    fn post(&self) -> PostParams {
        PostParams { field_manager: Some(self.manager.clone()), ..PostParams::default() }
    }
}

fn name_of(meta: &kube::core::ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

async fn bounded<T>(
    operation: &'static str,
    name: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    match tokio::time::timeout(REQUEST, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(Error::Cluster { operation, name: name.to_owned(), source: Box::new(source) }),
        Err(_) => Err(Error::TimedOut { operation, name: name.to_owned() }),
    }
}
