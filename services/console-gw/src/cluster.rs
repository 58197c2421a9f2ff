//! Opening the console of exactly one VMI, and telling its guest the size of the terminal.
//!
//! The URL names a VMI, not a uid. So the VMI is read first, and again after the dial: a console that belongs to another
//! uid, or to a machine that is being stopped, is closed at once.

use std::time::Duration;

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::Api;
use lab_bus::Bus;
use lab_domain::{ObjectUid, id::object_name};
use lab_kit::Clock;
use lab_kubevirt::{Phase, VirtualMachineInstance, console};
use lab_proto::{convert, subjects, v1};
use tokio::time::timeout;
use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::WebSocketConfig};

use crate::{
    console::Size,
    hub::{Key, Machines},
};

/// One request to the API server.
const REQUEST: Duration = Duration::from_secs(5);
/// The whole handshake.
const DIAL: Duration = Duration::from_secs(10);
/// Telling the guest its size; a later size comes anyway.
const RESIZE: Duration = Duration::from_secs(5);
/// Bytes read at once; KubeVirt sends a few at a time.
const READ_BUFFER: usize = 16 * 1024;
/// KubeVirt's own buffers are 10 KiB; nothing honest is larger than this.
const MAX_MESSAGE: usize = 1024 * 1024;

/// Why a machine's console cannot be opened now.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The VMI could not be read.
    #[error("cannot read VMI {vmi}")]
    Read {
        /// Its name.
        vmi: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("no answer about VMI {vmi} within {REQUEST:?}")]
    TimedOut {
        /// Its name.
        vmi: String,
    },
    /// It is not the machine of this session any more, or it is being stopped.
    #[error("VMI {vmi} is {what}")]
    NotThisMachine {
        /// Its name.
        vmi: String,
        /// What was found.
        what: &'static str,
    },
    /// The console did not open.
    #[error("cannot open the console of VMI {vmi}")]
    Dial {
        /// Its name.
        vmi: String,
        /// Why.
        #[source]
        source: Box<console::Error>,
    },
}

/// KubeVirt through the API server, and readiness through the bus.
pub struct Cluster<C> {
    client: kube::Client,
    namespace: String,
    bus: Bus,
    clock: C,
}

impl<C: Clock> Cluster<C> {
    /// Of one namespace.
    pub fn new(client: kube::Client, namespace: String, bus: Bus, clock: C) -> Self {
        Self { client, namespace, bus, clock }
    }

    async fn check(&self, vmi: &str, pinned: &ObjectUid) -> Result<(), Error> {
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = match timeout(REQUEST, api.get_opt(vmi)).await {
            Ok(Ok(found)) => found,
            Ok(Err(source)) => return Err(Error::Read { vmi: vmi.to_owned(), source: Box::new(source) }),
            Err(_) => return Err(Error::TimedOut { vmi: vmi.to_owned() }),
        };
        match verdict(found.as_ref(), pinned) {
            Ok(()) => Ok(()),
            Err(what) => Err(Error::NotThisMachine { vmi: vmi.to_owned(), what }),
        }
    }
}

fn verdict(found: Option<&VirtualMachineInstance>, pinned: &ObjectUid) -> Result<(), &'static str> {
    let Some(vmi) = found else { return Err("gone") };
    if vmi.metadata.uid.as_deref() != Some(pinned.as_str()) {
        return Err("another machine of the same name");
    }
    // A machine that is being stopped stays Running, and its console still opens.
    if vmi.is_terminating() {
        return Err("being stopped");
    }
    if vmi.phase() == Phase::Running { Ok(()) } else { Err("not running") }
}

impl<C: Clock> Machines for Cluster<C> {
    type Io = TokioIo<Upgraded>;
    type Error = Error;

    async fn dial(&self, key: &Key, pinned: &ObjectUid) -> Result<WebSocketStream<Self::Io>, Error> {
        let vmi = object_name(key.session, &key.machine);
        self.check(&vmi, pinned).await?;
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let upstream = console::dial(&self.client, &self.namespace, &vmi, Some(config), DIAL)
            .await
            .map_err(|source| Error::Dial { vmi: vmi.clone(), source: Box::new(source) })?;
        self.check(&vmi, pinned).await?;
        Ok(upstream)
    }

    async fn resize(&self, key: &Key, size: Size) {
        let request = v1::ResizeRequest {
            session_id: key.session.to_string(),
            machine: key.machine.to_string(),
            rows: u32::from(size.rows),
            cols: u32::from(size.cols),
            deadline: Some(convert::timestamp(self.clock.now() + RESIZE)),
        };
        let asked = self.bus.ask::<_, v1::ResizeResponse>(subjects::RESIZE, &request, RESIZE).await;
        match asked {
            Ok(answer) if answer.applied => {}
            Ok(answer) => {
                tracing::info!(session.id = %key.session, machine = %key.machine, cause = answer.cause, "the guest did not take its terminal's size");
            }
            Err(error) => {
                tracing::warn!(session.id = %key.session, machine = %key.machine, error = lab_kit::telemetry::chain(&error), "nobody told the guest its terminal's size");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmi(uid: &str, phase: &str, deleted: bool) -> VirtualMachineInstance {
        let deletion = deleted.then_some("2026-12-01T00:00:00Z");
        serde_json::from_value(serde_json::json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "x", "uid": uid, "deletionTimestamp": deletion},
            "spec": {"domain": {"devices": {}}},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn only_the_pinned_running_machine_is_dialled() {
        let pinned = ObjectUid::new("u1").unwrap();
        assert_eq!(verdict(Some(&vmi("u1", "Running", false)), &pinned), Ok(()));
        assert!(verdict(None, &pinned).is_err());
        assert!(verdict(Some(&vmi("u2", "Running", false)), &pinned).is_err());
        assert!(verdict(Some(&vmi("u1", "Running", true)), &pinned).is_err());
        for phase in ["", "Pending", "Scheduling", "Scheduled", "Succeeded", "Failed", "Unknown"] {
            assert!(verdict(Some(&vmi("u1", phase, false)), &pinned).is_err(), "{phase}");
        }
    }
}
