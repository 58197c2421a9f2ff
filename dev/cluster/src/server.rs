//! Starting and stopping the cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::{ControllerContext, Registry};
use crate::api::{Cluster, Pace};
use crate::auth::Tokens;
use crate::config::Args;
use crate::store::Store;
use crate::{controllers, deploy, http, kubeconfig, kubevirt};

/// A running cluster.
#[derive(Debug)]
pub struct Running {
    /// Where the API listens.
    pub address: SocketAddr,
    /// The cluster itself.
    pub cluster: Cluster,
    /// Where the kubeconfigs lie.
    pub kubeconfig_dir: PathBuf,
    tracker: TaskTracker,
    shutdown: CancellationToken,
    grace: Duration,
}

/// Starts the cluster; it runs until `shutdown` (or [`Running::stop`]).
pub async fn start(args: Args, shutdown: CancellationToken) -> anyhow::Result<Running> {
    start_with(args, Pace::default(), shutdown).await
}

/// The same at another pace: tests do not wait 5 s for a namespace.
pub async fn start_with(args: Args, pace: Pace, shutdown: CancellationToken) -> anyhow::Result<Running> {
    anyhow::ensure!(args.listen.ip().is_loopback(), "--listen must be a loopback address");
    std::fs::create_dir_all(&args.state_dir)
        .with_context(|| format!("cannot make {}", args.state_dir.display()))?;
    let store = Store::open(&args.state_dir.join("store"), args.watch_window)?;
    let tokens = Tokens::open(&args.state_dir)?;
    let mut registry = Registry::default();
    kubevirt::register(&args.driver, &args.state_dir, &mut registry)?;
    let cluster = Cluster::new(store, tokens, pace, &registry);
    deploy::bootstrap(&cluster, &args.namespace)?;
    if let Some(dir) = &args.deploy {
        deploy::load(&cluster, dir)?;
    }

    let tracker = TaskTracker::new();
    let context =
        ControllerContext { cluster: cluster.clone(), tracker: tracker.clone(), shutdown: shutdown.clone() };
    controllers::start(&context);
    for (name, controller) in registry.controllers {
        tracing::debug!(controller = name, "a controller starts");
        tracker.spawn(controller(context.clone()));
    }

    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("cannot bind {}", args.listen))?;
    let address = listener.local_addr()?;
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
    });
    let app = http::app(cluster.clone(), shutdown.clone());
    let ended = shutdown.clone().cancelled_owned();
    tracker.spawn(async move {
        if let Err(error) = axum::serve(listener, app).with_graceful_shutdown(ended).await {
            tracing::error!(%error, "the API server ended");
        }
    });
    let kubeconfig_dir = args.kubeconfig_dir.clone().unwrap_or_else(|| args.state_dir.join("kubeconfig"));
    kubeconfig::write_all(&cluster, address, &args.namespace, &kubeconfig_dir)?;
    if let Some(file) = &args.ports_file {
        write_atomically(file, &serde_json::json!({"http": address.to_string()}).to_string())?;
    }
    tracing::info!(%address, "the cluster is up");
    Ok(Running { address, cluster, kubeconfig_dir, tracker, shutdown, grace: args.grace })
}

impl Running {
    /// Ends the cluster in order: watches, controllers, the log on disk.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.shutdown.cancel();
        self.tracker.close();
        if tokio::time::timeout(self.grace, self.tracker.wait()).await.is_err() {
            tracing::warn!("not everything ended within the grace period");
        }
        self.cluster.store().sync().context("the log could not be synced")
    }
}

fn write_atomically(path: &std::path::Path, text: &str) -> anyhow::Result<()> {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text).with_context(|| format!("cannot write {}", fresh.display()))?;
    std::fs::rename(&fresh, path).with_context(|| format!("cannot replace {}", path.display()))
}
