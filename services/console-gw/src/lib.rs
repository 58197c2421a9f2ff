//! The console gateway: a browser's WebSocket to the serial console of a student's machine.
//!
//! It opens consoles and does nothing else: it creates, changes and deletes nothing. Who may open which console is
//! decided by [`decide`] from what the api answers, before the upgrade; the bytes are piped by [`console`] and
//! [`viewer`].
//!
//! One replica holds a machine's console. With several replicas the second would throw the first out: run one.

pub mod buffer;
pub mod cluster;
pub mod config;
pub mod console;
pub mod decide;
pub mod endings;
pub mod error;
pub mod events;
pub mod http;
pub mod hub;
pub mod metrics;
pub mod protocol;
pub mod sessions;
pub mod viewer;

use std::sync::Arc;

use anyhow::Context as _;
use axum::serve::ListenerExt as _;
use lab_bus::{Bus, Identity};
use lab_kit::{
    Shutdown, admin,
    auth::Verifier,
    clock::System,
    installation::{Gate, NO_DATABASE},
    ports::{self, Ports},
};
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::{cluster::Cluster, config::Args, events::Facts, hub::Hub, metrics::Metrics};

/// Serves until `shutdown`.
///
/// # Errors
/// If something that the process cannot do without is not there at the start.
pub async fn run(args: Args, shutdown: Shutdown) -> anyhow::Result<()> {
    let pem = tokio::fs::read(&args.jwt_public_key)
        .await
        .with_context(|| format!("cannot read the public key {}", args.jwt_public_key.display()))?;
    let common = &args.common;
    let mut registry = Registry::default();
    let (metrics, bus_metrics) = (Metrics::default(), lab_bus::Metrics::default());
    metrics.register(&mut registry);
    bus_metrics.register(&mut registry);

    let client = lab_kit::kube::client(&common.cluster).await?;
    let config = common.nats.config(&common.environment, Identity::ConsoleGw, bus_metrics);
    let bus = Bus::connect(config).await?;

    let health = admin::Health::default();
    let gate = Gate::closed();
    let condition = health.condition("installation");
    let namespace = &common.cluster.namespace;
    gate.keep(bus.clone(), client.clone(), namespace, NO_DATABASE, condition, &shutdown);
    let (known, verifier) = watch::channel(None);
    // A key that is none is found now, not at the first student.
    Verifier::new(&pem, &common.environment, lab_domain::InstallationId(uuid::Uuid::nil()))
        .with_context(|| format!("cannot use the public key {}", args.jwt_public_key.display()))?;
    shutdown.spawn(know_installation(pem, args.clone(), gate, known, shutdown.clone()));

    let machines = Cluster::new(client, namespace.clone(), bus.clone(), System);
    let hub = Hub::new(machines, shutdown.tracker.clone(), shutdown.token.clone());
    endings::watch(&bus, &hub, &shutdown);
    let (facts, served) = Facts::new(bus.clone(), System, metrics.clone(), shutdown.token.clone());
    shutdown.spawn(served);

    let app = http::App {
        verifier,
        public_url: args.public_url.to_string(),
        bus: bus.clone(),
        hub,
        facts,
        clock: System,
        metrics,
        shutdown: shutdown.clone(),
    };
    let listener = admin::bind(args.listen).await?;
    let address = listener.local_addr().context("the listener has no address")?;
    let admin = admin::serve(common.process.admin_listen, health, Arc::new(registry), &shutdown).await?;
    if let Some(path) = &common.process.ports_file {
        ports::write(path, &Ports { http: Some(address), admin: Some(admin) })?;
    }
    tracing::info!(%address, "console gateway listens");
    // On the tracker, so that the grace bounds it: a peer that never ends its request would hold it for ever.
    let root = shutdown.clone();
    let listener = listener.tap_io(|stream| {
        // An echo is a few bytes. It fails only for a peer that is gone, which the next read tells.
        let _set = stream.set_nodelay(true);
    });
    shutdown.spawn(async move {
        let token = root.token.clone();
        let served = axum::serve(listener, http::router(Arc::new(app)));
        if let Err(error) = served.with_graceful_shutdown(token.cancelled_owned()).await {
            tracing::error!(%error, "the WebSocket listener failed");
        }
        root.token.cancel();
    });
    shutdown.finish(common.process.grace).await;
    bus.flush().await.context("the last facts may not have left")
}

/// Tokens name the installation, which is known once stream and ConfigMap agree.
async fn know_installation(
    pem: Vec<u8>,
    args: Args,
    gate: Gate,
    known: watch::Sender<Option<Verifier>>,
    shutdown: Shutdown,
) {
    let Some(id) = shutdown.token.run_until_cancelled(gate.opened()).await else { return };
    match Verifier::new(&pem, &args.common.environment, id) {
        Ok(verifier) => drop(known.send_replace(Some(verifier))),
        // Checked at the start.
        Err(error) => {
            tracing::error!(error = lab_kit::telemetry::chain(&error), "the public key cannot be used")
        }
    }
}
