//! The provisioner: creates the machines of sessions, and nothing else does.
//!
//! ```text
//!  session-requested ─┐                        ┌─▶ ProvisioningStarted
//!                     ├─▶ ask ─▶ look ─▶ decide ├─▶ Secret, VirtualMachine, owner (each create asked for before)
//!  every 15 s: list ──┘     ▲              │   └─▶ MachineProvisioned | ProvisionFailed
//!                           └── look again ┘
//! ```
//!
//! It deletes nothing, keeps no state, and knows sessions only by asking. A run that is dropped at any point, repeated, or
//! done by two replicas at once ends in the same objects and the same facts.

mod apply;
pub mod config;
mod decide;
mod error;
mod known;
mod labs;
mod material;
mod metrics;
mod outside;
mod work;

#[cfg(test)]
mod crash_tests;

use std::sync::Arc;

use anyhow::Context as _;
use lab_bus::{Bus, Durable, Identity, identity::durable};
use lab_catalog::Images;
use lab_domain::token::TokenKey;
use lab_kit::{
    Shutdown, admin,
    clock::System,
    installation::{Gate, NO_DATABASE},
    ports::{self, Ports},
};
use prometheus_client::registry::Registry;
use tokio::sync::Notify;

use crate::{apply::Provisioner, labs::Labs, metrics::Metrics, outside::Real, work::Work};

/// What the arguments name, read and checked.
#[derive(Debug)]
pub struct Setup {
    args: config::Args,
    labs: Arc<Labs>,
    key: TokenKey,
}

impl Setup {
    /// Reads labs, image table and key.
    ///
    /// # Errors
    /// If one of them cannot be used.
    pub fn load(args: config::Args) -> anyhow::Result<Self> {
        let images = Images::load(&args.images)?;
        let labs = Arc::new(Labs::load(&args.labs, images)?);
        let key = std::fs::read(&args.token_key_file)
            .with_context(|| format!("read the token key {}", args.token_key_file.display()))?;
        let key = TokenKey::new(key)?;
        Ok(Self { args, labs, key })
    }
}

/// Runs until `shutdown`.
///
/// # Errors
/// If broker or cluster cannot be used at the start.
pub async fn run(setup: Setup, shutdown: Shutdown) -> anyhow::Result<()> {
    let Setup { args, labs, key } = setup;
    let common = &args.common;
    let mut registry = Registry::default();
    let (metrics, bus_metrics) = (Metrics::default(), lab_bus::Metrics::default());
    metrics.register(&mut registry);
    bus_metrics.register(&mut registry);
    let bus =
        Bus::connect(common.nats.config(&common.environment, Identity::Provisioner, bus_metrics)).await?;
    let client = lab_kit::kube::client(&common.cluster).await?;

    let health = admin::Health::default();
    let gate = Gate::closed();
    let agreed = health.condition("installation");
    let namespace = &common.cluster.namespace;
    gate.keep(bus.clone(), client.clone(), namespace, NO_DATABASE, agreed, &shutdown);
    let admin = admin::serve(common.process.admin_listen, health, Arc::new(registry), &shutdown).await?;
    if let Some(file) = &common.process.ports_file {
        ports::write(file, &Ports { http: None, admin: Some(admin) })?;
    }
    tracing::info!(admin = %admin, "the provisioner listens");

    let provisioner = Provisioner {
        outside: Real::new(bus.clone(), &client, namespace, System),
        labs,
        key,
        resolvers: args.resolvers.clone(),
        metrics,
    };
    let work = Arc::new(Work::new(provisioner, common.environment.clone(), gate.clone()));
    let (task, token) = (Arc::clone(&work), shutdown.clone());
    let interval = args.look_interval;
    shutdown.spawn(async move {
        if token.token.run_until_cancelled(gate.opened()).await.is_none() {
            return;
        }
        let looking = Arc::clone(&task);
        token.every(interval, Arc::new(Notify::new()), move || {
            let work = Arc::clone(&looking);
            async move { work.look().await }
        });
        let filters = vec![bus.subjects().every("session-requested")];
        let requests = Durable::new(durable::PROVISIONER_REQUESTS, filters);
        let handler = move |delivery| Arc::clone(&task).handle(delivery);
        bus.consume(requests, handler, token.token.clone()).await;
    });
    shutdown.finish(common.process.grace).await;
    Ok(())
}
