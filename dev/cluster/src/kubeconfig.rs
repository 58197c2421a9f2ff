//! Kubeconfigs: `admin.kubeconfig`, and one per ServiceAccount of the services' namespace.

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context as _;
use serde_json::json;

use crate::api::Cluster;
use crate::resource::SERVICE_ACCOUNTS;

/// Writes all kubeconfigs into `dir`.
pub(crate) fn write_all(
    cluster: &Cluster,
    address: SocketAddr,
    namespace: &str,
    dir: &Path,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    write(&dir.join("admin.kubeconfig"), address, namespace, "admin", &cluster.tokens().admin())?;
    for account in cluster.store().list(&SERVICE_ACCOUNTS, Some(namespace)).items {
        let name = &account.key.name;
        if &**name == "default" {
            continue;
        }
        let token = cluster.tokens().of_account(namespace, name)?;
        write(&dir.join(format!("{name}.kubeconfig")), address, namespace, name, &token)?;
    }
    Ok(())
}

/// JSON is YAML: the file is written without a YAML writer.
fn write(path: &Path, address: SocketAddr, namespace: &str, user: &str, token: &str) -> anyhow::Result<()> {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user, "namespace": namespace}}],
    });
    let fresh = path.with_extension("new");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .with_context(|| format!("cannot make {}", fresh.display()))?;
    file.write_all(format!("{config:#}\n").as_bytes())
        .with_context(|| format!("cannot write {}", fresh.display()))?;
    std::fs::rename(&fresh, path).with_context(|| format!("cannot replace {}", path.display()))
}
