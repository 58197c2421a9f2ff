//! How a process shows that it is healthy.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use http::Method;

use crate::cluster::Access;
use crate::http::Http;
use crate::postgres::Postgres;

const LIMIT: Duration = Duration::from_secs(3);

/// One way to ask.
#[derive(Clone)]
pub(crate) enum Probe {
    Postgres(Box<Postgres>),
    /// A 2xx from a fixed address.
    Http(String),
    /// The cluster is ready, says its API to the administrator (it answers strangers 401).
    Kubernetes {
        ports: PathBuf,
        kubeconfig: PathBuf,
    },
    /// A 2xx from an address that the process writes to its ports file once it listens.
    PortsFile {
        file: PathBuf,
        key: &'static str,
        path: &'static str,
    },
}

impl Probe {
    /// Ok, or why not, in words that can be shown.
    pub(crate) async fn ask(&self, http: &Http) -> Result<(), String> {
        match self {
            Self::Postgres(server) => {
                let server = server.clone();
                let accepts = tokio::task::spawn_blocking(move || server.accepts()).await.unwrap_or(false);
                if accepts { Ok(()) } else { Err("it accepts no connections yet".to_owned()) }
            }
            Self::Http(url) => get(http, url).await,
            Self::Kubernetes { ports, kubeconfig } => {
                if !ports.exists() {
                    return Err("it does not listen yet".to_owned());
                }
                let access = Access::read(kubeconfig).map_err(|error| format!("{error:#}"))?;
                match access.call(Method::GET, "/readyz", None).await {
                    Ok(answer) if answer.status.is_success() => Ok(()),
                    Ok(answer) => Err(format!("{} {}", answer.status.as_u16(), answer.text())),
                    Err(error) => Err(format!("{error:#}")),
                }
            }
            Self::PortsFile { file, key, path } => {
                let ports = fs::read(file).map_err(|_| "it does not listen yet".to_owned())?;
                let ports: serde_json::Value =
                    serde_json::from_slice(&ports).map_err(|_| format!("{} is not JSON", file.display()))?;
                match ports.get(*key).and_then(|address| address.as_str()) {
                    Some(address) => get(http, &format!("http://{address}{path}")).await,
                    None => Err(format!("{} names no {key} address", file.display())),
                }
            }
        }
    }

    /// Removes what an earlier process wrote, so that its address is not taken for the new one's.
    pub(crate) fn forget(&self) {
        if let Self::PortsFile { file, .. } | Self::Kubernetes { ports: file, .. } = self {
            let _ = fs::remove_file(file);
        }
    }
}

async fn get(http: &Http, url: &str) -> Result<(), String> {
    match http.get(url, LIMIT).await {
        Ok(answer) if answer.status.is_success() => Ok(()),
        Ok(answer) => Err(format!("{} {}", answer.status.as_u16(), answer.text().replace('\n', " ").trim())),
        Err(error) => Err(format!("{error:#}")),
    }
}
