//! Whoever runs the place: looks into the cluster.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use kube::{
    Api, Client, Config,
    api::{DynamicObject, ListParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use lab_kubevirt::{kinds::Kind, labels};

/// Sees every object of the namespace.
#[derive(Clone)]
pub struct Operator {
    client: Client,
    namespace: String,
}

impl Operator {
    /// With the rights of a kubeconfig.
    ///
    /// # Errors
    /// If it cannot be used.
    pub async fn new(kubeconfig: &Path, namespace: &str) -> Result<Self> {
        // An error means that a provider is installed already.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let file = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Ok(Self { client: Client::try_from(config)?, namespace: namespace.to_owned() })
    }

    /// A client with these rights.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Kind and name of every object that carries our session label, or only those of one session.
    ///
    /// # Errors
    /// If a kind cannot be listed.
    pub async fn objects(&self, session: Option<&str>) -> Result<Vec<String>> {
        let selector = match session {
            Some(id) => format!("{}={id}", labels::SESSION),
            None => labels::SESSION.to_owned(),
        };
        let mut found = Vec::new();
        for kind in Kind::ALL {
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource());
            let list = api.list(&ListParams::default().labels(&selector)).await;
            let list = list.with_context(|| format!("cannot list {}", kind.as_str()))?;
            let names = list.items.into_iter().filter_map(|o| o.metadata.name);
            found.extend(names.map(|name| format!("{}/{name}", kind.as_str())));
        }
        Ok(found)
    }

    /// Waits until a session has left nothing.
    ///
    /// # Errors
    /// If something is left after `limit`; the text names it.
    pub async fn wait_clean(&self, session: Option<&str>, limit: Duration) -> Result<()> {
        let started = Instant::now();
        loop {
            let left = self.objects(session).await?;
            if left.is_empty() {
                return Ok(());
            }
            if started.elapsed() > limit {
                bail!("left in the cluster: {left:?}");
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}
