//! The one-machine cluster as the runner sees it: its identities' kubeconfigs, and the golden disk.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;

use crate::http::{Answer, Http, request};
use crate::images::Image;

const CALL: Duration = Duration::from_secs(10);

/// Server and token of one identity.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    server: String,
    token: String,
    http: Http,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Http")
    }
}

#[derive(Deserialize)]
struct Kubeconfig {
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: ClusterEntry,
}

#[derive(Deserialize)]
struct ClusterEntry {
    server: String,
}

#[derive(Deserialize)]
struct NamedUser {
    user: UserEntry,
}

#[derive(Deserialize)]
struct UserEntry {
    token: String,
}

impl Access {
    /// From a kubeconfig file of the cluster's own making.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let config: Kubeconfig =
            serde_saphyr::from_str(&text).with_context(|| format!("{} is no kubeconfig", file.display()))?;
        match (config.clusters.into_iter().next(), config.users.into_iter().next()) {
            (Some(cluster), Some(user)) => {
                let server = cluster.cluster.server.trim_end_matches('/').to_owned();
                Ok(Self { server, token: user.user.token, http: Http::new() })
            }
            _ => bail!("{} names no cluster or no user", file.display()),
        }
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// One call.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<Answer> {
        self.http
            .send(request(method, &format!("{}{path}", self.server), Some(&self.token), body)?, CALL)
            .await
    }
}

/// Makes the golden disk the real way, a DataVolume that the cluster imports, and waits until it can be used.
pub(crate) async fn ensure_golden(
    access: &Access,
    namespace: &str,
    image: &Image,
    mib: u64,
    within: Duration,
) -> Result<()> {
    let name = image.golden_name();
    let volume = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"ttlab.io/image-digest": image.digest, "cdi.kubevirt.io/storage.bind.immediate.requested": "true"},
        },
        "spec": {
            "source": {"registry": {"url": format!("docker://{}", image.reference)}},
            "storage": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": format!("{mib}Mi")}}},
        },
    });
    let list = format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/{namespace}/datavolumes");
    let made = access.call(Method::POST, &list, Some(&volume)).await?;
    if !made.status.is_success() && made.status != StatusCode::CONFLICT {
        bail!("the cluster refused the golden disk {name}: {} {}", made.status, made.text());
    }
    let deadline = Instant::now() + within;
    let mut look = tokio::time::interval(Duration::from_millis(150));
    loop {
        look.tick().await;
        let seen = access.call(Method::GET, &format!("{list}/{name}"), None).await?.json()?;
        let phase =
            seen.pointer("/status/phase").and_then(|phase| phase.as_str()).unwrap_or("unknown").to_owned();
        match phase.as_str() {
            "Succeeded" => return Ok(()),
            "Failed" => bail!("the import of the golden disk {name} failed: {}", seen["status"]),
            _ if Instant::now() > deadline => {
                bail!("the golden disk {name} is still {phase} after {within:?}")
            }
            _ => {}
        }
    }
}
