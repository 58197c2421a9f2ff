//! lab-api: the one writer of every session's state.
//!
//! ```text
//!  browsers ──HTTP──▶ http ──▶ domain decides ──▶ store: session + outbox, one transaction ──NOTIFY─▶ live ─▶ SSE
//!                                   ▲                                │
//!  facts (bus) ──▶ facts ───────────┤                                └─▶ relay ──▶ bus: decisions, timers
//!  deadlines (10 s) ──▶ scan ───────┤
//!  leftovers (each list) ─▶ ghosts ─┘         answers ◀── questions of the other services
//!  cluster (watch + list) ──▶ cluster ──▶ admission, ghosts
//! ```
//!
//! Every change goes the same way: load the session locked, let `lab-domain` decide, write session and outbox rows in
//! one transaction, commit. Nothing is published that is not committed, and everything that is committed is published,
//! at least once. Any number of replicas may run beside each other; they share the database and nothing else.
//!
//! It does not create, delete or dial machines.

mod admit;
mod answers;
mod app;
mod cluster;
pub mod config;
mod effects;
mod error;
mod facts;
mod ghosts;
mod http;
pub mod keys;
mod live;
mod metrics;
mod oidc;
mod relay;
mod scan;
pub mod serve;
pub mod setup;
mod store;
mod wire;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use axum::serve::ListenerExt as _;
use kube::Client;
use lab_bus::Bus;
use lab_catalog::Catalog;
use lab_domain::{Environment, InstallationId};
use lab_kit::{
    Clock, Shutdown,
    admin::Condition,
    auth::{self, Signer, Verifier},
    installation::{Gate, Said},
};
use lab_kubevirt::Installation;

pub use self::{
    cluster::View,
    error::{Code, Problem},
    http::openapi,
    metrics::Metrics,
    store::{Error as StoreError, Store},
};
use crate::{
    app::{Access, App, Settings},
    effects::Publisher,
    live::Live,
    relay::Relay,
};

/// What a replica works with, connected already.
#[derive(Debug)]
pub struct Deps {
    /// The database.
    pub store: Store,
    /// The bus, as the api.
    pub bus: Bus,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// The labs.
    pub catalog: Catalog,
    /// The view of the cluster; whoever makes it keeps it.
    pub cluster: View,
    /// Whether database, streams and cluster are one installation's.
    pub gate: Gate,
    /// Counters.
    pub metrics: Metrics,
}

/// How a replica is to behave.
#[derive(Debug, Clone)]
pub struct Options {
    /// The environment.
    pub environment: Environment,
    /// The database's installation.
    pub installation: InstallationId,
    /// Address for browsers.
    pub listen: SocketAddr,
    /// Own origin.
    pub public_url: String,
    /// Ed25519 private key, PKCS#8 PEM.
    pub private_key: secrecy::SecretString,
    /// Signing in by name.
    pub dev_login: bool,
    /// Static files of the page.
    pub web: Option<PathBuf>,
    /// Machines that there may be.
    pub vm_cap: usize,
    /// Stretches start limits.
    pub time_factor: f64,
    /// The identity provider.
    pub oidc: Option<config::OidcArgs>,
}

/// Why a replica does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The signing key.
    #[error("cannot use the signing key")]
    Key(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The identity provider.
    #[error("cannot use the identity provider's settings")]
    Oidc(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The public address.
    #[error("cannot serve browsers")]
    Listen(#[source] lab_kit::admin::Error),
}

/// Starts a replica on the process's tracker; returns the address for browsers.
///
/// # Errors
/// If the key is unusable or the address is taken.
pub async fn start(options: Options, deps: Deps, shutdown: &Shutdown) -> Result<SocketAddr, Error> {
    let listen = options.listen;
    let web = options.web.clone();
    let app = Arc::new(app(options, deps, shutdown)?);
    let listener = lab_kit::admin::bind(listen).await.map_err(Error::Listen)?;
    let address = listener.local_addr().unwrap_or(listen);

    shutdown.spawn(app.live.clone().run(app.store.clone(), shutdown.token.clone()));
    answers::spawn(&app, shutdown);
    let (work, token) = (Arc::clone(&app), shutdown.token.clone());
    let tracker = shutdown.clone();
    shutdown.spawn(async move {
        // Until the installation is agreed on, the bus may be another's: take nothing in, send nothing out.
        if token.run_until_cancelled(work.gate.opened()).await.is_none() {
            return;
        }
        let relay = Relay::new(work.store.clone(), work.bus.clone(), work.gate.clone(), work.metrics.clone());
        tracker.spawn(relay.run(work.live.clone(), token.clone()));
        tracker.spawn(facts::run(Arc::clone(&work), token.clone()));
        tracker.spawn(scan::run(Arc::clone(&work), token.clone()));
        tracker.spawn(ghosts::run(work, token));
    });

    let router = http::router(app, web).into_make_service_with_connect_info::<SocketAddr>();
    // Small answers and events must not wait for an acknowledgement: measured 33 ms of each start.
    let listener = listener.tap_io(|stream| {
        // It fails only for a peer that is gone, which the next read tells.
        let _set = stream.set_nodelay(true);
    });
    let token = shutdown.token.clone();
    shutdown.spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(token.cancelled_owned());
        if let Err(error) = served.await {
            tracing::error!(error = %error, "the public listener ended");
        }
    });
    Ok(address)
}

fn app(options: Options, deps: Deps, shutdown: &Shutdown) -> Result<App, Error> {
    use secrecy::ExposeSecret as _;
    let Options { environment, installation, private_key, .. } = &options;
    let pem = private_key.expose_secret().as_bytes();
    let bad = |e: auth::BadKey| Error::Key(e.into());
    let public = keys::public_pem(pem).map_err(|e| Error::Key(e.into()))?;
    let access = Access {
        signer: Signer::new(pem, auth::issuer(environment, *installation)).map_err(bad)?,
        verifier: Verifier::new(public.as_bytes(), environment, *installation).map_err(bad)?,
        cookie: auth::cookie_name(environment, *installation),
        dev_login: options.dev_login && options.listen.ip().is_loopback(),
        oidc: options.oidc.as_ref().map(|args| provider(args, &options.public_url)).transpose()?.flatten(),
        public_url: options.public_url,
    };
    let subjects = lab_proto::subjects::Subjects::new(options.environment);
    for problem in &deps.catalog.problems {
        tracing::error!(problem = %problem, "a lab is left out");
    }
    Ok(App {
        publisher: Publisher { subjects, installation: options.installation },
        store: deps.store,
        bus: deps.bus,
        clock: deps.clock,
        catalog: deps.catalog,
        cluster: deps.cluster,
        live: Live::new(),
        gate: deps.gate,
        metrics: deps.metrics,
        access,
        admissions: tokio::sync::Semaphore::new(app::ADMISSIONS),
        settings: Settings { vm_cap: options.vm_cap, time_factor: options.time_factor },
        shutdown: shutdown.token.clone(),
    })
}

fn provider(args: &config::OidcArgs, public_url: &str) -> Result<Option<oidc::Oidc>, Error> {
    let (Some(issuer), Some(client_id)) = (&args.oidc_issuer, &args.oidc_client_id) else { return Ok(None) };
    let secret = args.oidc_client_secret_file.as_ref().map(config::read_secret).transpose();
    let settings = oidc::Settings {
        issuer: issuer.clone(),
        client_id: client_id.clone(),
        client_secret: secret.map_err(|e| Error::Oidc(e.into()))?,
        redirect: format!("{public_url}/api/auth/callback"),
        roles_claim: args.oidc_roles_claim.clone(),
    };
    oidc::Oidc::new(settings).map(Some).map_err(|e| Error::Oidc(e.into()))
}

/// Keeps gate and view true by a real cluster.
pub fn keep(
    deps: &Deps,
    client: &Client,
    namespace: &str,
    ours: &Installation,
    condition: Condition,
    shutdown: &Shutdown,
) {
    let (store, environment) = (deps.store.clone(), ours.environment.clone());
    let database = move || {
        let (store, environment) = (store.clone(), environment.clone());
        async move {
            match store.installation(environment.as_str()).await {
                Ok(id) => Said::Id(id),
                Err(StoreError::OtherEnvironment { .. }) => Said::Nothing,
                Err(error) => Said::Unknown(lab_kit::telemetry::chain(&error)),
            }
        }
    };
    deps.gate.keep(deps.bus.clone(), client.clone(), namespace, Some(database), condition, shutdown);
    deps.cluster.keep(client, namespace, ours, Arc::clone(&deps.clock), shutdown);
}
