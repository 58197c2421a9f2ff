//! Arguments that every service takes, as groups to flatten into a service's own. Each is also `LAB_<NAME>`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;
use lab_bus::{Identity, Metrics};
use lab_domain::Environment;

/// The arguments of every service.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// The environment: several may share one namespace and never touch each other.
    #[arg(long, env = "LAB_ENVIRONMENT", default_value = "dev")]
    pub environment: Environment,
    /// The broker.
    #[command(flatten)]
    pub nats: Nats,
    /// The cluster.
    #[command(flatten)]
    pub cluster: Cluster,
    /// Health and metrics.
    #[command(flatten)]
    pub process: Process,
}

/// How to reach the broker.
#[derive(Debug, Clone, Args)]
pub struct Nats {
    /// Address of the broker; several separated by commas.
    #[arg(long, env = "LAB_NATS_URL", default_value = "nats://127.0.0.1:4222")]
    pub nats_url: String,
    /// File with the seed of this service's nkey.
    #[arg(long, env = "LAB_NATS_NKEY_FILE", value_name = "FILE")]
    pub nats_nkey_file: Option<PathBuf>,
}

/// How to reach the cluster.
#[derive(Debug, Clone, Args)]
pub struct Cluster {
    /// Kubeconfig of this service's account; without it, the one inside a pod.
    #[arg(long, env = "LAB_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the machines.
    #[arg(long, env = "LAB_NAMESPACE", default_value = "ttlab")]
    pub namespace: String,
}

/// How the process shows itself and stops.
#[derive(Debug, Clone, Args)]
pub struct Process {
    /// Address of `/livez`, `/readyz` and `/metrics`.
    #[arg(long, env = "LAB_ADMIN_LISTEN", default_value = "127.0.0.1:0")]
    pub admin_listen: SocketAddr,
    /// File that gets the addresses once the process listens.
    #[arg(long, env = "LAB_PORTS_FILE", value_name = "FILE")]
    pub ports_file: Option<PathBuf>,
    /// How long a shutdown may take.
    #[arg(long, env = "LAB_GRACE", default_value = "10s", value_parser = humantime::parse_duration)]
    pub grace: Duration,
    /// What is logged, for example `info` or `lab_api=debug,info`.
    #[arg(long, env = "LAB_LOG", default_value = "info")]
    pub log: String,
}

impl Nats {
    /// The configuration of a connection.
    #[must_use]
    pub fn config(&self, environment: &Environment, identity: Identity, metrics: Metrics) -> lab_bus::Config {
        lab_bus::Config {
            url: self.nats_url.clone(),
            nkey_file: self.nats_nkey_file.clone(),
            environment: environment.clone(),
            identity,
            metrics,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        common: Common,
    }

    #[test]
    fn defaults_listen_on_loopback_only() {
        let cli = Cli::try_parse_from(["lab-x"]).unwrap();
        assert!(cli.common.process.admin_listen.ip().is_loopback());
        assert_eq!(cli.common.process.grace, Duration::from_secs(10));
    }

    #[test]
    fn a_malformed_environment_is_refused() {
        assert!(Cli::try_parse_from(["lab-x", "--environment", "Dev-1"]).is_err());
        assert!(Cli::try_parse_from(["lab-x", "--grace", "soon"]).is_err());
    }
}
