//! The guard against two environments of one name.
//!
//! The database's first migration writes the installation id; set-up copies it into the stream's metadata and into
//! ConfigMap `ttlab-environment-<env>`. Until those agree a service stays not ready, creates nothing and deletes
//! nothing. They are looked at again for as long as the process lives: a restored backup may bring another id.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use lab_bus::Bus;
use lab_domain::{Environment, InstallationId};
use tokio::sync::watch;

use crate::{Shutdown, admin::Condition};

/// A look while nothing is known.
const SOON: Duration = Duration::from_secs(1);
/// A look while all agree.
const LATER: Duration = Duration::from_secs(30);
/// How long one look may take.
const LOOK: Duration = Duration::from_secs(5);
/// The key in the ConfigMap.
pub const CONFIG_MAP_KEY: &str = "installation";

/// Name of the environment's ConfigMap.
#[must_use]
pub fn config_map_name(environment: &Environment) -> String {
    format!("ttlab-environment-{environment}")
}

/// What one place says about the installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// This id.
    Id(InstallationId),
    /// It could be read and holds none, or a malformed one.
    Nothing,
    /// It could not be read.
    Unknown(String),
}

/// What to make of all places together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All say the same.
    Agreed(InstallationId),
    /// They contradict each other, or one holds no id: touch nothing.
    Differ,
    /// Not all could be read. Says nothing new: what was agreed stays agreed.
    Unknown,
}

/// Compares what the places say. Without any place nothing is agreed.
#[must_use]
pub fn compare(places: &[Said]) -> Verdict {
    let mut agreed = None;
    let mut is_unknown = false;
    for said in places {
        match said {
            Said::Id(id) if agreed.is_none_or(|a| a == *id) => agreed = Some(*id),
            Said::Id(_) | Said::Nothing => return Verdict::Differ,
            Said::Unknown(_) => is_unknown = true,
        }
    }
    match agreed {
        Some(id) if !is_unknown => Verdict::Agreed(id),
        Some(_) | None => Verdict::Unknown,
    }
}

/// Knows whether this process may create and delete. Clones share it.
#[derive(Debug, Clone)]
pub struct Gate {
    agreed: Arc<watch::Sender<Option<InstallationId>>>,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn closed() -> Self {
        Self { agreed: Arc::new(watch::Sender::new(None)) }
    }

    /// A gate that is open for `id`, for tests.
    #[must_use]
    pub fn open(id: InstallationId) -> Self {
        Self { agreed: Arc::new(watch::Sender::new(Some(id))) }
    }

    /// Whether creating and deleting is allowed now.
    #[must_use]
    pub fn allowed(&self) -> bool {
        self.agreed.borrow().is_some()
    }

    /// The installation, where it is allowed to act for it.
    #[must_use]
    pub fn installation(&self) -> Option<InstallationId> {
        *self.agreed.borrow()
    }

    /// Waits for the gate to open.
    pub async fn opened(&self) -> InstallationId {
        let mut changes = self.agreed.subscribe();
        loop {
            if let Some(id) = *changes.borrow_and_update() {
                return id;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Keeps looking at stream and ConfigMap, and at what `database` says (only the api has one), until the process
    /// stops.
    pub fn keep<F, Fut>(
        &self,
        bus: Bus,
        client: Client,
        namespace: &str,
        database: Option<F>,
        condition: Condition,
        shutdown: &Shutdown,
    ) where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Said> + Send,
    {
        let gate = self.clone();
        let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
        let token = shutdown.token.clone();
        shutdown.spawn(async move {
            let mut last = None;
            loop {
                let mut said = vec![stream(&bus).await, config_map(&maps, bus.environment()).await];
                if let Some(database) = &database {
                    said.push(within(database()).await);
                }
                let verdict = compare(&said);
                if last.as_ref() != Some(&verdict) {
                    match &verdict {
                        Verdict::Agreed(id) => tracing::info!(installation = %id, "installation agreed"),
                        Verdict::Differ => {
                            tracing::error!(?said, "another installation has this environment's name")
                        }
                        Verdict::Unknown => tracing::warn!(?said, "the installation cannot be compared yet"),
                    }
                }
                match verdict {
                    Verdict::Agreed(id) => _ = gate.agreed.send_replace(Some(id)),
                    Verdict::Differ => _ = gate.agreed.send_replace(None),
                    Verdict::Unknown => {}
                }
                condition.set(gate.allowed());
                last = Some(verdict);
                let pause = if gate.allowed() { LATER } else { SOON };
                if token.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                    return;
                }
            }
        });
    }
}

/// For [`Gate::keep`] of a service without a database.
pub const NO_DATABASE: Option<fn() -> std::future::Ready<Said>> = None;

async fn within<F: Future<Output = Said>>(look: F) -> Said {
    tokio::time::timeout(LOOK, look).await.unwrap_or_else(|_| Said::Unknown("it took too long".into()))
}

async fn stream(bus: &Bus) -> Said {
    within(async {
        match bus.installation().await {
            Ok(Some(id)) => Said::Id(id),
            Ok(None) => Said::Nothing,
            Err(error) => Said::Unknown(crate::telemetry::chain(&error)),
        }
    })
    .await
}

async fn config_map(maps: &Api<ConfigMap>, environment: &Environment) -> Said {
    within(async {
        match maps.get(&config_map_name(environment)).await {
            Ok(map) => {
                let text = map.data.as_ref().and_then(|data| data.get(CONFIG_MAP_KEY));
                text.and_then(|text| text.parse().ok()).map_or(Said::Nothing, Said::Id)
            }
            Err(error) => Said::Unknown(crate::telemetry::chain(&error)),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn nothing_is_allowed_unless_every_place_says_the_same() {
        let (a, b) = (InstallationId(Uuid::from_u128(1)), InstallationId(Uuid::from_u128(2)));
        let unread = || Said::Unknown("x".into());
        for (said, want) in [
            (vec![], Verdict::Unknown),
            (vec![Said::Id(a), Said::Id(a)], Verdict::Agreed(a)),
            (vec![Said::Id(a), Said::Id(a), Said::Id(a)], Verdict::Agreed(a)),
            (vec![Said::Id(a), Said::Id(b)], Verdict::Differ),
            (vec![Said::Id(a), Said::Nothing], Verdict::Differ),
            (vec![Said::Nothing, Said::Nothing], Verdict::Differ),
            (vec![Said::Id(a), unread()], Verdict::Unknown),
            (vec![unread(), Said::Id(a), Said::Id(b)], Verdict::Differ),
            (vec![unread(), unread()], Verdict::Unknown),
        ] {
            assert_eq!(compare(&said), want, "{said:?}");
        }
    }
}
