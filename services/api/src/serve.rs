//! `lab-api serve`: from arguments to a running replica, and back down.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use lab_bus::{Bus, Identity};
use lab_catalog::Catalog;
use lab_kit::{Shutdown, admin, clock, installation::Gate, ports};
use lab_kubevirt::Installation;
use prometheus_client::registry::Registry;
use secrecy::ExposeSecret as _;

use crate::{Deps, Metrics, Options, Store, View, config};

/// How often the conditions of readiness are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Serves until a signal; false if something had to be left behind.
///
/// # Errors
/// If the replica cannot start.
pub async fn run(args: config::Serve) -> anyhow::Result<bool> {
    let shutdown = Shutdown::new();
    shutdown.on_signals().context("cannot listen for signals")?;
    let mut registry = Registry::default();
    let (metrics, bus_metrics) = (Metrics::default(), lab_bus::Metrics::default());
    metrics.register(&mut registry);
    bus_metrics.register(&mut registry);

    let common = &args.common;
    let url = config::read_secret(&args.database_url_file)?;
    let store = Store::connect(url.expose_secret()).await?;
    let installation = store.installation(common.environment.as_str()).await?;
    let bus = Bus::connect(common.nats.config(&common.environment, Identity::Api, bus_metrics)).await?;
    let client = lab_kit::kube::client(&common.cluster).await?;
    let catalog = Catalog::load(&args.labs)?;

    let health = admin::Health::default();
    let (gate, view) = (Gate::closed(), View::default());
    let deps = Deps {
        store: store.clone(),
        bus: bus.clone(),
        clock: Arc::new(clock::System),
        catalog,
        cluster: view.clone(),
        gate,
        metrics,
    };
    let ours = Installation { environment: common.environment.clone(), id: installation };
    crate::keep(
        &deps,
        &client,
        &common.cluster.namespace,
        &ours,
        health.condition("installation"),
        &shutdown,
    );
    watch(&health, store.clone(), view, &shutdown);

    let options = Options {
        environment: common.environment.clone(),
        installation,
        listen: args.listen,
        public_url: args.origin(),
        private_key: config::read_secret(&args.jwt_private_key)?,
        dev_login: args.dev_login,
        web: args.web.clone(),
        vm_cap: args.vm_cap,
        time_factor: args.time_factor,
        oidc: args.oidc.oidc_issuer.is_some().then(|| args.oidc.clone()),
    };
    let http = crate::start(options, deps, &shutdown).await?;
    let admin = admin::serve(common.process.admin_listen, health, Arc::new(registry), &shutdown).await?;
    if let Some(path) = &common.process.ports_file {
        ports::write(path, &ports::Ports { http: Some(http), admin: Some(admin) })?;
    }
    tracing::info!(%http, %admin, environment = %common.environment, "serving");

    let is_clean = shutdown.finish(common.process.grace).await;
    if let Err(error) = bus.flush().await {
        tracing::warn!(error = %lab_kit::telemetry::chain(&error), "the bus was not flushed");
    }
    store.close().await;
    Ok(is_clean)
}

/// A broker or a cluster that is lost later makes no replica unready: the page and what is left of the API must stay
/// reachable, and say so in plain words.
fn watch(health: &admin::Health, store: Store, view: View, shutdown: &Shutdown) {
    let (database, cluster) = (health.condition("database"), health.condition("cluster"));
    shutdown.every(LOOK, Arc::default(), move || {
        let (store, view) = (store.clone(), view.clone());
        let (database, cluster) = (database.clone(), cluster.clone());
        async move {
            database.set(store.is_alive().await);
            cluster.set(cluster.holds() || view.places().is_ok());
        }
    });
}
