//! Readiness: follows machines from their first phase to the prepared guest, says early when a start cannot succeed,
//! notices a machine that goes, runs graders and tells terminals their size.
//!
//! It creates, changes and deletes nothing. It is the only one that dials the agents, and it has no right on Secrets: the
//! agents' tokens are computed. What it says are facts; what becomes of a session is the api's decision.

pub mod agent;
pub mod answers;
pub mod apply;
pub mod cluster;
pub mod config;
pub mod decide;
pub mod error;
pub mod events;
pub mod follow;
pub mod metrics;

use std::sync::Arc;

use anyhow::Context as _;
use lab_bus::{Bus, Delivery, Disposition, Durable, Identity, identity::durable};
use lab_domain::token::TokenKey;
use lab_kit::{
    Shutdown, admin,
    clock::System,
    installation::{Gate, NO_DATABASE},
    ports::{self, Ports},
};
use lab_kubevirt::Installation;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;

use crate::{apply::Deps, cluster::Cluster, config::Args, follow::Follow, metrics::Metrics};

/// Serves until `shutdown`.
///
/// # Errors
/// If something that the process cannot do without is not there at the start.
pub async fn run(args: Args, shutdown: Shutdown) -> anyhow::Result<()> {
    let common = &args.common;
    let key = tokio::fs::read(&args.token_key_file)
        .await
        .with_context(|| format!("cannot read the token key {}", args.token_key_file.display()))?;
    let key = TokenKey::new(key)
        .with_context(|| format!("cannot use the token key {}", args.token_key_file.display()))?;
    let mut registry = Registry::default();
    let (metrics, bus_metrics) = (Metrics::default(), lab_bus::Metrics::default());
    metrics.register(&mut registry);
    bus_metrics.register(&mut registry);
    let client = lab_kit::kube::client(&common.cluster).await?;
    let bus = Bus::connect(common.nats.config(&common.environment, Identity::Readiness, bus_metrics)).await?;

    let health = admin::Health::default();
    let (gate, namespace) = (Gate::closed(), common.cluster.namespace.clone());
    let agreed = health.condition("installation");
    let synced = health.condition("machines");
    gate.keep(bus.clone(), client.clone(), &namespace, NO_DATABASE, agreed, &shutdown);
    let admin = admin::serve(common.process.admin_listen, health, Arc::new(registry), &shutdown).await?;
    if let Some(path) = &common.process.ports_file {
        ports::write(path, &Ports { http: None, admin: Some(admin) })?;
    }

    // Which machines are ours is known once the installation is.
    if let Some(id) = shutdown.token.run_until_cancelled(gate.opened()).await {
        let installation = Installation { environment: common.environment.clone(), id };
        let (cluster, watch) = Cluster::new(client, namespace, installation);
        let deps = Arc::new(Deps::new(bus.clone(), cluster, key, Arc::new(System), metrics));
        let (changed, changes) = mpsc::unbounded_channel();
        shutdown.spawn(watch.run(changed, shutdown.token.clone()));
        let first_list = shutdown.token.run_until_cancelled(deps.cluster.synced()).await;
        if first_list.is_some() {
            synced.set(true);
            start(&deps, changes, &shutdown);
            tracing::info!(environment = %common.environment, "readiness watches machines");
        }
    }
    shutdown.token.cancelled().await;
    shutdown.finish(common.process.grace).await;
    bus.flush().await.context("the last facts may not have left")
}

/// Starts everything that needs the machines to be known.
fn start(deps: &Arc<Deps>, changes: mpsc::UnboundedReceiver<cluster::Changed>, shutdown: &Shutdown) {
    let follow = Follow::new(Arc::clone(deps), shutdown.clone());
    shutdown.spawn(follow.clone().hear(changes));
    shutdown.spawn(follow.clone().look());
    let filters = vec![deps.bus.subjects().every("machine-provisioned")];
    let provisioned = Durable::new(durable::READINESS_PROVISIONED, filters);
    // Noted and acked: the follower rereads the world, and the look makes good what a crash forgets.
    let note = move |delivery: Delivery| {
        follow.wake(delivery.session);
        std::future::ready(Disposition::Ack)
    };
    shutdown.spawn(deps.bus.consume(provisioned, note, shutdown.token.clone()));
    answers::spawn(deps, shutdown);
}
