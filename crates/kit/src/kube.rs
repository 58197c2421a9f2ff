//! The Kubernetes client.

use std::{path::PathBuf, time::Duration};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::args;

/// No request waits longer for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig cannot be read or does not make sense.
    #[error("cannot use the kubeconfig {path}", path = path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// No kubeconfig was given, and this is no pod.
    #[error("no --kubeconfig was given, and the configuration of a pod cannot be read")]
    InCluster(#[source] kube::config::InClusterError),
    /// The configuration makes no client.
    #[error("cannot make a client for the cluster")]
    Client(#[source] kube::Error),
}

/// A client for the account that the arguments name.
///
/// It repeats nothing by itself: the library's default would send a create that met a 503 up to fifteen times, over
/// many minutes (measured). Callers bound each request and leave repeating to the bus and to their looks.
///
/// # Errors
/// If the configuration cannot be read.
pub async fn client(args: &args::Cluster) -> Result<Client, Error> {
    crate::install_tls();
    let mut config = match &args.kubeconfig {
        Some(path) => {
            let bad = |source| Error::Kubeconfig { path: path.clone(), source };
            let file = Kubeconfig::read_from(path).map_err(bad)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(bad)?
        }
        None => Config::incluster().map_err(Error::InCluster)?,
    };
    config.default_namespace.clone_from(&args.namespace);
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    // No read time-out: a student's console may be silent for as long as it likes on such a connection, and a watch
    // ends a silent one by itself.
    Client::try_from(config).map_err(Error::Client)
}
