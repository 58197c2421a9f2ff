//! Command line of `lab-cluster`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, ValueEnum};

/// The one-machine cluster.
#[derive(Debug, Clone, Parser)]
#[command(name = "lab-cluster", version)]
pub struct Args {
    /// Directory of everything that outlives the process: objects, tokens, machines.
    #[arg(long, env = "LAB_STATE_DIR")]
    pub state_dir: PathBuf,
    /// Address of the API; loopback only.
    #[arg(long, env = "LAB_LISTEN", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Written once the API answers: `{"http":"127.0.0.1:1234"}`.
    #[arg(long, env = "LAB_PORTS_FILE")]
    pub ports_file: Option<PathBuf>,
    /// Directory of manifests that are loaded at the start.
    #[arg(long, env = "LAB_DEPLOY")]
    pub deploy: Option<PathBuf>,
    /// The namespace of the services; made where the manifests do not.
    #[arg(long, env = "LAB_NAMESPACE", default_value = "ttlab")]
    pub namespace: String,
    /// Where `admin.kubeconfig` and one kubeconfig per ServiceAccount are written (default: in the state directory).
    #[arg(long, env = "LAB_KUBECONFIG_DIR")]
    pub kubeconfig_dir: Option<PathBuf>,
    /// Changes kept per resource for watches that lag or come back.
    #[arg(long, env = "LAB_WATCH_WINDOW", default_value_t = 8192)]
    pub watch_window: usize,
    /// How long an orderly end may take.
    #[arg(long, env = "LAB_GRACE", default_value = "10s", value_parser = humantime::parse_duration)]
    pub grace: Duration,
    /// Log filter, e.g. `info` or `lab_cluster=debug`.
    #[arg(long, env = "LAB_LOG", default_value = "info")]
    pub log: String,
    /// The machines.
    #[command(flatten)]
    pub driver: DriverArgs,
}

/// What runs the machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Driver {
    /// Real guests.
    Qemu,
    /// No guest, a scripted agent and console.
    Sim,
}

/// The machines' part of the command line.
#[derive(Debug, Clone, ClapArgs)]
pub struct DriverArgs {
    /// Real guests, or simulated ones.
    #[arg(long, env = "LAB_DRIVER", value_enum, default_value_t = Driver::Sim)]
    pub driver: Driver,
    /// Images by the hash of their content (qemu).
    #[arg(long, env = "LAB_IMAGE_STORE")]
    pub image_store: Option<PathBuf>,
    /// Simulated time from start to Running.
    #[arg(long, env = "LAB_SIM_BOOT", default_value = "300ms", value_parser = humantime::parse_duration)]
    pub sim_boot: Duration,
    /// Simulated time from Running to the agent's first answer.
    #[arg(long, env = "LAB_SIM_AGENT", default_value = "100ms", value_parser = humantime::parse_duration)]
    pub sim_agent: Duration,
    /// Simulated time of the prepare script.
    #[arg(long, env = "LAB_SIM_PREPARE", default_value = "300ms", value_parser = humantime::parse_duration)]
    pub sim_prepare: Duration,
}

impl Default for DriverArgs {
    fn default() -> Self {
        Self {
            driver: Driver::Sim,
            image_store: None,
            sim_boot: Duration::from_millis(300),
            sim_agent: Duration::from_millis(100),
            sim_prepare: Duration::from_millis(300),
        }
    }
}
