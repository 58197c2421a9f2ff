//! The bus against a real nats-server.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod consume;
mod outage;
mod permissions;
mod questions;
mod timers;

use std::time::Duration;

use lab_bus::{Bus, Config, Envelope, Identity, Metrics, event, setup};
use lab_domain::{Environment, InstallationId, SessionId};
use lab_proto::{subjects::Subjects, v1};
use lab_testkit::Nats;
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const LIMIT: Duration = Duration::from_secs(30);

fn dev() -> Environment {
    Environment::new("dev").unwrap()
}

fn names() -> Subjects {
    Subjects::new(dev())
}

async fn connect(url: String, identity: Identity) -> Bus {
    let (nkey_file, environment, metrics) = (None, dev(), Metrics::default());
    Bus::connect(Config { url, nkey_file, environment, identity, metrics }).await.unwrap()
}

/// A broker without authorization, with its streams, and a bus on it.
async fn broker() -> (Nats, Bus) {
    let nats = Nats::start().await.unwrap();
    let bus = connect(nats.url(), Identity::Api).await;
    setup::streams(&bus, InstallationId(uuid::Uuid::from_u128(1)), 1).await.unwrap();
    (nats, bus)
}

/// A raw client that the bus knows nothing about.
async fn raw(nats: &Nats) -> (async_nats::Client, async_nats::jetstream::Context) {
    let client = async_nats::connect(nats.url()).await.unwrap();
    (client.clone(), async_nats::jetstream::new(client))
}

fn ready(session: SessionId) -> v1::Event {
    let kind = event::Kind::SessionReady(v1::SessionReady::default());
    event::new(&dev(), &Envelope::bare(session), kind, OffsetDateTime::UNIX_EPOCH)
}

/// A task root whose loops stop when the test drops or stops it.
#[derive(Default)]
struct Root {
    token: CancellationToken,
    tracker: TaskTracker,
}

impl Root {
    async fn stop(&self) {
        self.token.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

async fn next<T>(receiver: &mut mpsc::UnboundedReceiver<T>) -> T {
    tokio::time::timeout(LIMIT, receiver.recv()).await.expect("nothing came").expect("the loop ended")
}
