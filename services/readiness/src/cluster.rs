//! Machines as the cluster shows them: a watch for what changes, fresh looks for what must be certain.

use std::{net::IpAddr, pin::pin, time::Duration};

use backon::ExponentialBuilder;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::ListParams,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, ObjectRef, Store},
        utils::ResetTimerBackoff,
        watcher::{self, ExponentialBackoff, watcher},
    },
};
use lab_domain::{MachineName, ObjectUid, SessionId, id::object_name};
use lab_kubevirt::{Installation, Phase, VirtualMachine, VirtualMachineInstance, labels, status::time_of};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{decide::Seen, error::Error};

/// One request.
const REQUEST: Duration = Duration::from_secs(5);
/// A watch that was cut is begun anew after this, doubled up to the next.
const RETRY: Duration = Duration::from_millis(200);
const MAX_RETRY: Duration = Duration::from_secs(5);

/// The machines of one installation.
pub struct Cluster {
    client: Client,
    namespace: String,
    installation: Installation,
    store: Store<VirtualMachineInstance>,
}

/// What the watch tells: the session whose machine changed, or `None` after a new list, when anything may have.
pub type Changed = Option<SessionId>;

/// The watch's other half, to be driven by a task of the service.
pub struct Watch {
    writer: reflector::store::Writer<VirtualMachineInstance>,
    api: Api<VirtualMachineInstance>,
    installation: Installation,
}

impl Cluster {
    /// The machines of `installation` in `namespace`.
    #[must_use]
    pub fn new(client: Client, namespace: String, installation: Installation) -> (Self, Watch) {
        let (store, writer) = reflector::store();
        let api = Api::namespaced(client.clone(), &namespace);
        let watch = Watch { writer, api, installation: installation.clone() };
        (Self { client, namespace, installation, store }, watch)
    }

    /// Waits for the first list; before it an absent machine means nothing.
    pub async fn synced(&self) {
        // An error means that the watch ended, which it does only at shutdown.
        let _ = self.store.wait_until_ready().await;
    }

    /// The machine's VMI as the watch shows it.
    #[must_use]
    pub fn watched(&self, session: SessionId, machine: &MachineName) -> Option<Seen> {
        let key = ObjectRef::new(&object_name(session, machine)).within(&self.namespace);
        self.read(session, machine, self.store.get(&key)?.as_ref())
    }

    /// The machine's VMI as it is now, and whether its VM is there.
    ///
    /// # Errors
    /// If the cluster does not answer. That says nothing about the machine.
    pub async fn look(
        &self,
        session: SessionId,
        machine: &MachineName,
    ) -> Result<(Option<Seen>, bool), Error> {
        let name = object_name(session, machine);
        let vmis: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &self.namespace);
        let vmi = within("get VMI", &name, vmis.get_opt(&name)).await?;
        if let Some(seen) = vmi.and_then(|vmi| self.read(session, machine, &vmi)) {
            return Ok((Some(seen), true));
        }
        let vms: Api<VirtualMachine> = Api::namespaced(self.client.clone(), &self.namespace);
        let vm = within("get VM", &name, vms.get_opt(&name)).await?;
        Ok((None, vm.is_some_and(|vm| self.installation.owns(&vm.metadata) && !vm.is_terminating())))
    }

    /// The address of the launcher pod of a VMI: Running, not being deleted, ours, and the only such one.
    ///
    /// Never the address that the VMI reports, which may be what the guest claims.
    ///
    /// # Errors
    /// If the cluster does not answer.
    pub async fn launcher(&self, uid: &ObjectUid) -> Result<Option<IpAddr>, Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let selector = format!("{},{}={uid}", self.installation.selector(), labels::CREATED_BY);
        let params = ListParams::default().labels(&selector);
        let found = within("list launcher pods of", uid.as_str(), pods.list(&params)).await?;
        let mut addresses = found.items.iter().filter_map(dialable);
        let first = addresses.next();
        // Two at once is a migration: neither is certain to be the machine.
        Ok(if addresses.next().is_some() { None } else { first })
    }

    /// Whether the VMI is the one of this uid, runs and stays, with its launcher pod at `address`.
    ///
    /// # Errors
    /// If the cluster does not answer.
    pub async fn is_still(
        &self,
        session: SessionId,
        machine: &MachineName,
        uid: &ObjectUid,
        address: IpAddr,
    ) -> Result<bool, Error> {
        let (look, launcher) = tokio::join!(self.look(session, machine), self.launcher(uid));
        let runs = look?.0.is_some_and(|s| s.uid == *uid && s.phase == Phase::Running && !s.is_terminating);
        Ok(runs && launcher? == Some(address))
    }

    fn read(&self, session: SessionId, machine: &MachineName, vmi: &VirtualMachineInstance) -> Option<Seen> {
        let identity = self.installation.identity(&vmi.metadata)?;
        if identity.session != session || identity.machine.as_ref() != Some(machine) {
            return None;
        }
        Some(Seen {
            uid: ObjectUid::new(vmi.uid()?).ok()?,
            phase: vmi.phase(),
            is_terminating: vmi.is_terminating(),
            created_at: vmi.metadata.creation_timestamp.as_ref().and_then(time_of),
            scheduled_at: vmi.phase_at(Phase::Scheduled),
            running_at: vmi.phase_at(Phase::Running),
            conditions: vmi.status.as_ref().map(|s| s.conditions.clone()).unwrap_or_default(),
        })
    }
}

fn dialable(pod: &Pod) -> Option<IpAddr> {
    let status = pod.status.as_ref()?;
    if pod.metadata.deletion_timestamp.is_some() || status.phase.as_deref() != Some("Running") {
        return None;
    }
    status.pod_ip.as_ref()?.parse().ok()
}

async fn within<T>(
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

impl Watch {
    /// Watches until `token`, and tells every change.
    pub async fn run(self, changed: mpsc::UnboundedSender<Changed>, token: CancellationToken) {
        let config = watcher::Config::default().labels(&self.installation.selector());
        // Without a backoff an error loop is hot. The usual one grows to half a minute, in which students would wait for
        // a machine that runs.
        let backoff = ExponentialBuilder::default()
            .with_min_delay(RETRY)
            .with_max_delay(MAX_RETRY)
            .with_jitter()
            .without_max_times();
        let backoff = ExponentialBackoff::from(backoff);
        let events = watcher(self.api, config).backoff(ResetTimerBackoff::new(backoff, MAX_RETRY * 6));
        let events =
            reflector::reflector(self.writer, events.modify(|vmi| vmi.metadata.managed_fields = None));
        let mut events = pin!(events);
        loop {
            let Some(event) = token.run_until_cancelled(events.try_next()).await else { return };
            let told = match event {
                Ok(Some(watcher::Event::Apply(vmi) | watcher::Event::Delete(vmi))) => {
                    match self.installation.identity(&vmi.metadata) {
                        Some(identity) => Some(identity.session),
                        None => continue,
                    }
                }
                // A machine that vanished while the watch was cut is missing in the new list: no event tells.
                Ok(Some(watcher::Event::InitDone)) => None,
                Ok(Some(watcher::Event::Init | watcher::Event::InitApply(_))) => continue,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(error = %error, "the watch of machines was cut; it begins anew");
                    continue;
                }
            };
            if changed.send(told).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(phase: &str, deleted: bool, ip: Option<&str>) -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"deletionTimestamp": deleted.then_some("2026-12-01T00:00:00Z")},
            "status": {"phase": phase, "podIP": ip},
        }))
        .unwrap()
    }

    #[test]
    fn only_a_running_pod_that_stays_is_dialled() {
        assert!(dialable(&pod("Running", false, Some("10.0.0.7"))).is_some());
        for (phase, deleted, ip) in [
            ("Pending", false, Some("10.0.0.7")),
            ("Succeeded", false, Some("10.0.0.7")),
            ("Running", true, Some("10.0.0.7")),
            ("Running", false, None),
            ("Running", false, Some("evil.example")),
        ] {
            assert_eq!(dialable(&pod(phase, deleted, ip)), None, "{phase} {deleted} {ip:?}");
        }
    }
}
