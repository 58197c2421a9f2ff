//! The admin listener: `/livez`, `/readyz`, `/metrics`. Never reachable from outside the host or the cluster.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::net::TcpListener;

use crate::Shutdown;

/// Named conditions that must all hold for the process to be ready. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Health {
    conditions: Arc<std::sync::Mutex<Vec<Condition>>>,
}

/// One condition; whoever watches it sets it.
#[derive(Debug, Clone)]
pub struct Condition {
    name: &'static str,
    holds: Arc<AtomicBool>,
}

impl Condition {
    /// Says whether it holds.
    pub fn set(&self, holds: bool) {
        if self.holds.swap(holds, Ordering::Relaxed) != holds {
            tracing::info!(condition = self.name, holds, "readiness changed");
        }
    }

    /// Whether it holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.holds.load(Ordering::Relaxed)
    }
}

impl Health {
    /// Adds a condition that does not hold yet.
    #[must_use]
    pub fn condition(&self, name: &'static str) -> Condition {
        let condition = Condition { name, holds: Arc::default() };
        self.lock().push(condition.clone());
        condition
    }

    /// Names of the conditions that do not hold.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        self.lock().iter().filter(|c| !c.holds()).map(|c| c.name).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Condition>> {
        self.conditions.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The listener could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct Error {
    address: SocketAddr,
    #[source]
    source: std::io::Error,
}

#[derive(Clone)]
struct App {
    health: Health,
    registry: Arc<Registry>,
    shutdown: Shutdown,
}

/// Opens a listener with an error that names the address.
///
/// # Errors
/// If the address is taken or not ours.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error { address, source })
}

/// Serves on the root's tracker until the process stops; returns the address.
///
/// # Errors
/// If the address cannot be listened on.
pub async fn serve(
    address: SocketAddr,
    health: Health,
    registry: Arc<Registry>,
    shutdown: &Shutdown,
) -> Result<SocketAddr, Error> {
    let listener = bind(address).await?;
    let local = listener.local_addr().map_err(|source| Error { address, source })?;
    let app = App { health, registry, shutdown: shutdown.clone() };
    let router = Router::new()
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(app);
    shutdown.spawn_last(|token| async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(token.cancelled_owned());
        if let Err(error) = served.await {
            tracing::error!(error = %error, "the admin listener ended");
        }
    });
    Ok(local)
}

async fn readyz(State(app): State<App>) -> impl IntoResponse {
    if app.shutdown.is_stopping() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
    }
    let missing = app.health.missing();
    if missing.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for: {}\n", missing.join(", ")))
    }
}

async fn metrics(State(app): State<App>) -> impl IntoResponse {
    let mut text = String::new();
    match encode(&mut text, &app.registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, [("content-type", kind)], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ready_means_that_every_condition_holds() {
        crate::install_tls();
        let shutdown = Shutdown::new();
        let health = Health::default();
        let (bus, gate) = (health.condition("bus"), health.condition("installation"));
        let address = ([127, 0, 0, 1], 0).into();
        let address = serve(address, health, Arc::new(Registry::default()), &shutdown).await.unwrap();
        let get = |path: &'static str| async move {
            let answer = reqwest::get(format!("http://{address}{path}")).await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        };
        assert_eq!(get("/livez").await.0, 200);
        bus.set(true);
        assert_eq!(get("/readyz").await, (503, "waiting for: installation\n".into()));
        gate.set(true);
        assert_eq!(get("/readyz").await.0, 200);
        assert!(get("/metrics").await.1.ends_with("# EOF\n"));
    }

    #[tokio::test]
    async fn a_process_that_stops_says_so_until_its_last_task_has_finished() {
        crate::install_tls();
        let shutdown = Shutdown::new();
        let release = Arc::new(tokio::sync::Notify::new());
        let held = Arc::clone(&release);
        shutdown.spawn(async move { held.notified().await });
        let address = ([127, 0, 0, 1], 0).into();
        let address = serve(address, Health::default(), Arc::default(), &shutdown).await.unwrap();
        shutdown.token.cancel();
        let asked = async {
            let answer = reqwest::get(format!("http://{address}/readyz")).await.unwrap();
            assert_eq!(
                (answer.status().as_u16(), answer.text().await.unwrap().as_str()),
                (503, "stopping\n")
            );
            release.notify_one();
        };
        let (finished, ()) = tokio::join!(shutdown.finish(std::time::Duration::from_secs(5)), asked);
        assert!(finished);
        assert!(reqwest::get(format!("http://{address}/readyz")).await.is_err());
    }
}
