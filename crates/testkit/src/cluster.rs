//! The one-machine cluster on its `sim` driver, as a child process.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use tempfile::TempDir;

use crate::child::{self, Process};

/// How the simulated guests behave.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Start to Running.
    pub boot: Duration,
    /// Running to the agent's first answer.
    pub agent: Duration,
    /// The agent's first answer to ready.
    pub prepare: Duration,
    /// More arguments for the cluster.
    pub extra: Vec<String>,
    /// Rules of the simulation: which machine behaves how.
    pub rules: Option<serde_json::Value>,
}

impl Default for SimOptions {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self { boot: ms(300), agent: ms(100), prepare: ms(300), extra: Vec::new(), rules: None }
    }
}

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    // Before the folder: fields are dropped in order, and a running cluster would write into it again.
    process: Option<Process>,
    dir: TempDir,
    options: SimOptions,
    address: SocketAddr,
}

#[derive(Deserialize)]
struct Ports {
    http: SocketAddr,
}

/// Namespace of the machines.
pub const NAMESPACE: &str = "ttlab";

impl Cluster {
    /// Starts a cluster with the manifests of `deploy/`.
    ///
    /// # Errors
    /// If the binary is not built, or does not start.
    pub async fn start(options: SimOptions) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("lab-cluster-").tempdir()?;
        std::fs::create_dir_all(dir.path().join("images"))?;
        if let Some(rules) = &options.rules {
            let sim = dir.path().join("state/sim");
            std::fs::create_dir_all(&sim)?;
            std::fs::write(sim.join("sim-rules.json"), rules.to_string())?;
        }
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut cluster = Self { dir, options, address, process: None };
        cluster.restart().await?;
        Ok(cluster)
    }

    /// The folder with one kubeconfig per service account.
    #[must_use]
    pub fn kubeconfig_dir(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// The kubeconfig of an account, for example `ttlab-readiness`, or `admin`.
    #[must_use]
    pub fn kubeconfig(&self, account: &str) -> PathBuf {
        self.kubeconfig_dir().join(format!("{account}.kubeconfig"))
    }

    /// Where the images of machines lie.
    #[must_use]
    pub fn image_store(&self) -> PathBuf {
        self.dir.path().join("images")
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it printed.
    #[must_use]
    pub fn output(&self) -> String {
        self.process.as_ref().map(Process::output).unwrap_or_default()
    }

    /// A client with the rights of an account.
    ///
    /// # Errors
    /// If there is no such account.
    pub async fn client(&self, account: &str) -> Result<kube::Client> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let file = kube::config::Kubeconfig::read_from(self.kubeconfig(account))?;
        let mut config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await?;
        config.default_retry = false;
        Ok(kube::Client::try_from(config)?)
    }

    /// Kills it without warning.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Kills it if it runs, and starts it again on the same port with what lies on its disk.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill();
        let root = self.dir.path();
        let ports = root.join("ports.json");
        if ports.exists() {
            std::fs::remove_file(&ports)?;
        }
        let deploy = workspace().join("deploy");
        let ms = |d: Duration| format!("{}ms", d.as_millis());
        let mut command = child::command(&binary("lab-cluster")?);
        command.arg("--state-dir").arg(root.join("state")).arg("--listen").arg(self.address.to_string());
        command.arg("--ports-file").arg(&ports).arg("--deploy").arg(deploy);
        command.args(["--namespace", NAMESPACE, "--driver", "sim"]);
        command
            .arg("--image-store")
            .arg(self.image_store())
            .arg("--kubeconfig-dir")
            .arg(self.kubeconfig_dir());
        command.args(["--sim-boot", &ms(self.options.boot), "--sim-agent", &ms(self.options.agent)]);
        command.args(["--sim-prepare", &ms(self.options.prepare)]).args(&self.options.extra);
        let mut process = Process::spawn("lab-cluster", command, root.join("log"))?;
        let read = |path: &Path| -> Option<Ports> {
            serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
        };
        self.address = process.ready(Duration::from_secs(20), || read(&ports)).await?.http;
        self.process = Some(process);
        Ok(())
    }
}

/// The root of the workspace that this crate was built in.
#[must_use]
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A binary of the workspace: `LAB_BIN_DIR`, or beside the running test's own target folder.
///
/// # Errors
/// If it is not built: the runner builds the binaries before the tests.
pub fn binary(name: &str) -> Result<PathBuf> {
    let mut dirs: Vec<PathBuf> = child::env("LAB_BIN_DIR").map(PathBuf::from).into_iter().collect();
    // target/debug/deps/<test> lies two below target/debug.
    let test = std::env::current_exe()?;
    dirs.extend(test.ancestors().skip(1).take(2).map(Path::to_owned));
    let found = dirs.iter().map(|dir| dir.join(name)).find(|path| path.is_file());
    found.with_context(|| format!("{name} is not built (looked in {dirs:?}): cargo build --bin {name}"))
}
