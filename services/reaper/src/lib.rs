//! The reaper: deletes, and nothing else does.
//!
//! - A timer fires: it asks the api, and reports DeadlineReached if the deadline is really due ([`timeouts`]).
//! - A session ends: it deletes everything of it, looks until a look shows it gone, and reports SessionReaped ([`endings`]).
//! - Every minute, and on SIGUSR1, it looks for objects that no session owns ([`sweep`]).
//!
//! It touches only objects that carry its environment *and* its installation, deletes each by uid, and does nothing at all while
//! the api does not answer or the installation is not agreed. What it keeps in memory can be lost at any time.

pub mod config;
mod decide;
mod endings;
mod error;
mod known;
mod metrics;
mod outside;
mod sweep;
mod timeouts;

#[cfg(test)]
mod crash_tests;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use lab_bus::{Bus, Durable, Envelope, Identity, event, identity::durable};
use lab_domain::{Environment, SessionId};
use lab_kit::{
    Shutdown, admin,
    clock::System,
    installation::{Gate, NO_DATABASE},
    ports::{self, Ports},
};
use lab_kubevirt::Installation;
use prometheus_client::registry::Registry;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
};

use crate::{decide::ghosts::Suspects, endings::Noted, error::Error, metrics::Metrics, outside::Real};

/// What all work shares.
#[derive(Debug)]
struct Reaper<O> {
    outside: O,
    environment: Environment,
    gate: Gate,
    ghost_grace: Duration,
    metrics: Metrics,
    endings: Mutex<HashMap<SessionId, Noted>>,
    /// Wakes the looks at ending sessions.
    wake: Notify,
    suspects: Mutex<Suspects>,
    unreported: Mutex<Vec<(Envelope, event::Kind)>>,
}

impl<O> Reaper<O> {
    fn new(
        outside: O,
        environment: Environment,
        gate: Gate,
        ghost_grace: Duration,
        metrics: Metrics,
    ) -> Self {
        Self {
            outside,
            environment,
            gate,
            ghost_grace,
            metrics,
            endings: Mutex::default(),
            wake: Notify::new(),
            suspects: Mutex::default(),
            unreported: Mutex::default(),
        }
    }

    /// Whose objects may be deleted.
    fn installation(&self) -> Result<Installation, Error> {
        let id = self.gate.installation().ok_or(Error::Closed)?;
        Ok(Installation { environment: self.environment.clone(), id })
    }
}

/// Runs until `shutdown`.
///
/// # Errors
/// If broker or cluster cannot be used at the start.
pub async fn run(args: config::Args, shutdown: Shutdown) -> anyhow::Result<()> {
    let common = &args.common;
    let mut registry = Registry::default();
    let (metrics, bus_metrics) = (Metrics::default(), lab_bus::Metrics::default());
    metrics.register(&mut registry);
    bus_metrics.register(&mut registry);
    let bus = Bus::connect(common.nats.config(&common.environment, Identity::Reaper, bus_metrics)).await?;
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
    tracing::info!(admin = %admin, "the reaper listens");

    let outside = Real::new(bus.clone(), client, namespace, System);
    let environment = common.environment.clone();
    let reaper = Arc::new(Reaper::new(outside, environment, gate.clone(), args.ghost_grace, metrics));
    let (grace, sweep_now) = (common.process.grace, Arc::new(Notify::new()));
    on_user_signal(Arc::clone(&sweep_now), &shutdown)?;
    let root = shutdown.clone();
    shutdown.spawn(async move {
        if root.token.run_until_cancelled(gate.opened()).await.is_some() {
            start(&reaper, &bus, &args, sweep_now, &root);
        }
    });
    shutdown.finish(grace).await;
    Ok(())
}

fn start(
    reaper: &Arc<Reaper<Real<System>>>,
    bus: &Bus,
    args: &config::Args,
    sweep_now: Arc<Notify>,
    shutdown: &Shutdown,
) {
    let r = Arc::clone(reaper);
    shutdown.spawn(r.keep_looking(shutdown.clone()));
    let r = Arc::clone(reaper);
    shutdown.every(args.look_interval, Arc::new(Notify::new()), move || {
        let reaper = Arc::clone(&r);
        async move { reaper.list_endings().await }
    });
    let r = Arc::clone(reaper);
    shutdown.every(args.ghost_interval, sweep_now, move || {
        let reaper = Arc::clone(&r);
        async move { reaper.sweep().await }
    });
    let endings = Durable::new(durable::REAPER_ENDINGS, vec![bus.subjects().every("session-ending")]);
    let r = Arc::clone(reaper);
    let handler = move |delivery| Arc::clone(&r).on_ending(delivery);
    shutdown.spawn(bus.consume(endings, handler, shutdown.token.clone()));
    let timeouts = Durable::new(durable::REAPER_TIMEOUTS, vec![]);
    let r = Arc::clone(reaper);
    let handler = move |fired| Arc::clone(&r).on_timeout(fired);
    shutdown.spawn(bus.consume_timeouts(timeouts, handler, shutdown.token.clone()));
}

/// SIGUSR1 sweeps at once.
fn on_user_signal(sweep_now: Arc<Notify>, shutdown: &Shutdown) -> std::io::Result<()> {
    let mut user = signal(SignalKind::user_defined1())?;
    let token = shutdown.token.clone();
    shutdown.spawn(async move {
        while let Some(Some(())) = token.run_until_cancelled(user.recv()).await {
            tracing::info!("SIGUSR1: looking for ghosts now");
            sweep_now.notify_one();
        }
    });
    Ok(())
}
