//! A broker of the test's own, with JetStream on disk.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use tempfile::TempDir;

use crate::child::{self, Process};

/// Version of the cached server.
pub const VERSION: &str = "2.15.1";

/// A running nats-server.
#[derive(Debug)]
pub struct Nats {
    // Before the folder: fields are dropped in order, and a running server would write into it again.
    process: Option<Process>,
    dir: TempDir,
    extra: String,
    port: u16,
}

#[derive(Deserialize)]
struct Ports {
    nats: Vec<String>,
}

impl Nats {
    /// A broker that lets everybody in.
    ///
    /// # Errors
    /// If there is no nats-server, or it does not start.
    pub async fn start() -> Result<Self> {
        Self::start_with("").await
    }

    /// A broker with more configuration, for example an `authorization` block.
    ///
    /// # Errors
    /// If there is no nats-server, or it does not take the configuration.
    pub async fn start_with(extra: &str) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("lab-nats-").tempdir()?;
        let mut nats = Self { dir, extra: extra.to_owned(), port: 0, process: None };
        nats.restart().await?;
        Ok(nats)
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it printed.
    #[must_use]
    pub fn output(&self) -> String {
        self.process.as_ref().map(Process::output).unwrap_or_default()
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
        // -1 lets the server choose a port; after that it keeps it.
        let port = if self.port == 0 { -1 } else { i32::from(self.port) };
        let config = format!(
            "host = \"127.0.0.1\"\nport = {port}\nports_file_dir = {ports:?}\njetstream {{ store_dir = {store:?} }}\n{}",
            self.extra,
            ports = root.display().to_string(),
            store = root.join("js").display().to_string(),
        );
        let file = root.join("nats.conf");
        std::fs::write(&file, config)?;
        for old in ports_files(root)? {
            std::fs::remove_file(old)?;
        }
        let mut command = child::command(&server()?);
        command.arg("-c").arg(&file);
        let mut process = Process::spawn("nats-server", command, root.join("log"))?;
        let url = process.ready(Duration::from_secs(20), || read_ports(root)).await?;
        self.port =
            url.rsplit(':').next().and_then(|p| p.parse().ok()).context("no port in the ports file")?;
        self.process = Some(process);
        Ok(())
    }
}

/// `LAB_NATS_SERVER`, a new enough one on the PATH, or one that was fetched before.
fn server() -> Result<PathBuf> {
    if let Some(named) = child::env("LAB_NATS_SERVER") {
        return Ok(named.into());
    }
    let cache = child::cache_dir();
    let mut found = child::find("", "nats-server", &[]).filter(|program| is_new_enough(program));
    let fetched = [
        cache.join(format!("nats-server-{VERSION}")),
        cache.join("nats-server").join(VERSION).join("nats-server"),
    ];
    found = found.or_else(|| fetched.iter().find(|program| program.is_file()).cloned());
    found.with_context(|| {
        format!("no nats-server 2.12: neither LAB_NATS_SERVER, nor on the PATH, nor {}", fetched[0].display())
    })
}

/// Debian 12's own 2.9 takes our streams and silently ignores half of their settings.
fn is_new_enough(program: &std::path::Path) -> bool {
    let Ok(output) = std::process::Command::new(program).arg("--version").output() else { return false };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut parts = text.trim().rsplit('v').next().unwrap_or_default().split('.').map(str::parse::<u32>);
    matches!((parts.next(), parts.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (2, 12))
}

fn ports_files(dir: &std::path::Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir)?.collect::<std::io::Result<Vec<_>>>()?;
    Ok(entries
        .into_iter()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "ports"))
        .collect())
}

fn read_ports(dir: &std::path::Path) -> Option<String> {
    let file = ports_files(dir).ok()?.into_iter().next()?;
    let ports: Ports = serde_json::from_str(&std::fs::read_to_string(file).ok()?).ok()?;
    ports.nats.into_iter().next()
}
