//! The command line of every process of a stack, and where its files lie.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::keys::Keys;
use crate::nats;
use crate::paths::{make_dir, write_atomically};
use crate::postgres::Postgres;
use crate::process::crew::{Member, Stage};
use crate::process::keeper::Launch;
use crate::process::probe::Probe;
use crate::stack::Driver;

pub(crate) const NAMESPACE: &str = "ttlab";
pub(crate) const ENVIRONMENT: &str = "dev";
pub(crate) const DATABASE: &str = "ttlab";
pub(crate) const SERVICES: [&str; 5] =
    ["lab-api", "lab-provisioner", "lab-readiness", "lab-reaper", "lab-console-gw"];

/// Everything that the command lines depend on.
pub(crate) struct Plan {
    pub(crate) repo: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) bin: PathBuf,
    pub(crate) image_store: PathBuf,
    pub(crate) labs: PathBuf,
    pub(crate) driver: Driver,
    pub(crate) vm_cap: u32,
    pub(crate) time_factor: f64,
    pub(crate) extra_args: Vec<(String, Vec<String>)>,
    pub(crate) web: SocketAddr,
    pub(crate) api: SocketAddr,
    pub(crate) console: SocketAddr,
    pub(crate) cluster: SocketAddr,
    pub(crate) nats: SocketAddr,
    pub(crate) monitor: SocketAddr,
    pub(crate) keys: Keys,
}

/// Arguments, collected pair by pair.
#[derive(Default)]
struct Args(Vec<OsString>);

impl Args {
    fn word(mut self, word: &str) -> Self {
        self.0.push(word.into());
        self
    }

    fn flag(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.0.push(name.into());
        self.0.push(value.into());
        self
    }
}

impl Plan {
    pub(crate) fn public_url(&self) -> String {
        format!("http://{}", self.web)
    }

    pub(crate) fn nats_url(&self) -> String {
        format!("nats://{}", self.nats)
    }

    pub(crate) fn driver_name(&self) -> &'static str {
        match self.driver {
            Driver::Qemu => "qemu",
            Driver::Sim { .. } => "sim",
        }
    }

    pub(crate) fn images_table(&self) -> PathBuf {
        self.state.join("images.yaml")
    }

    pub(crate) fn database_url_file(&self) -> PathBuf {
        self.state.join("keys/database-url")
    }

    pub(crate) fn kubeconfig(&self, identity: &str) -> PathBuf {
        self.state.join("kubeconfig").join(format!("{identity}.kubeconfig"))
    }

    /// The manifests of `deploy/` as this stack loads them.
    pub(crate) fn deploy(&self) -> PathBuf {
        self.state.join("deploy")
    }

    /// Copies the manifests that the cluster serves, with a quota that fits the cap of this stack.
    pub(crate) fn write_deploy(&self) -> Result<()> {
        let _ = fs::remove_dir_all(self.deploy());
        make_dir(&self.deploy(), 0o755)?;
        for name in ["namespace.yaml", "identities.yaml", "quota.yaml", "network.yaml"] {
            let file = self.repo.join("deploy").join(name);
            let text =
                fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            write_atomically(&self.deploy().join(name), with_quota(&text, self.vm_cap).as_bytes(), 0o644)?;
        }
        Ok(())
    }

    fn ports_file(&self, name: &str) -> PathBuf {
        self.state.join("ports").join(format!("{name}.json"))
    }

    fn launch(&self, name: &str, program: PathBuf, args: Args) -> Launch {
        let mut args = args.0;
        for (_, more) in self.extra_args.iter().filter(|(process, _)| process == name) {
            args.extend(more.iter().map(OsString::from));
        }
        Launch {
            name: name.to_owned(),
            program,
            args,
            cwd: self.state.clone(),
            log: self.state.join("logs").join(format!("{name}.log")),
            user: None,
            death_signal: "KILL",
        }
    }

    pub(crate) fn postgres(&self, server: &Postgres) -> Member {
        Member {
            launch: server.launch(self.state.join("logs/postgres.log")),
            probe: Probe::Postgres(Box::new(server.clone())),
            stage: Stage::Store,
            stop: Signal::SIGINT,
            stop_within: Duration::from_secs(10),
        }
    }

    pub(crate) fn nats(&self, program: &Path) -> Result<Member> {
        let config = nats::write_config(&self.state, self.nats, self.monitor, &self.keys)?;
        let args = Args::default().flag("-c", config);
        Ok(Member {
            launch: self.launch("nats-server", program.to_path_buf(), args),
            probe: Probe::Http(format!("http://{}/healthz", self.monitor)),
            stage: Stage::Bus,
            stop: Signal::SIGTERM,
            stop_within: Duration::from_secs(5),
        })
    }

    pub(crate) fn cluster(&self) -> Member {
        let ports = self.ports_file("lab-cluster");
        let mut args = Args::default()
            .flag("--state-dir", self.state.join("cluster"))
            .flag("--listen", self.cluster.to_string())
            .flag("--ports-file", &ports)
            .flag("--deploy", self.deploy())
            .flag("--namespace", NAMESPACE)
            .flag("--image-store", &self.image_store)
            .flag("--kubeconfig-dir", self.state.join("kubeconfig"))
            .flag("--driver", self.driver_name());
        if let Driver::Sim { boot, agent, prepare } = &self.driver {
            for (name, delay) in [("--sim-boot", boot), ("--sim-agent", agent), ("--sim-prepare", prepare)] {
                args = args.flag(name, humantime::format_duration(*delay).to_string());
            }
        }
        Member {
            launch: self.launch("lab-cluster", self.bin.join("lab-cluster"), args),
            probe: Probe::Kubernetes { ports, kubeconfig: self.kubeconfig("admin") },
            stage: Stage::Cluster,
            stop: Signal::SIGTERM,
            stop_within: Duration::from_secs(10),
        }
    }

    /// What every service is told; `identity` is its name without the prefix.
    fn common(&self, args: Args, identity: &str) -> Args {
        self.connections(args, identity)
            .flag("--admin-listen", "127.0.0.1:0")
            .flag("--ports-file", self.ports_file(&format!("lab-{identity}")))
            .flag("--grace", "5s")
    }

    fn connections(&self, args: Args, identity: &str) -> Args {
        args.flag("--environment", ENVIRONMENT)
            .flag("--nats-url", self.nats_url())
            .flag("--nats-nkey-file", self.keys.nkey(identity))
            .flag("--kubeconfig", self.kubeconfig(&format!("ttlab-{identity}")))
            .flag("--namespace", NAMESPACE)
    }

    /// The one-shot step that migrates the database, makes the streams and marks the environment.
    pub(crate) fn setup(&self) -> Launch {
        let args = self.connections(Args::default().word("setup"), "setup");
        let args = args.flag("--database-url-file", self.database_url_file());
        self.launch("setup", self.bin.join("lab-api"), args)
    }

    /// The five services.
    pub(crate) fn services(&self) -> Vec<Member> {
        let api = self
            .common(Args::default().word("serve"), "api")
            .flag("--listen", self.api.to_string())
            .flag("--database-url-file", self.database_url_file())
            .flag("--labs", &self.labs)
            .flag("--public-url", self.public_url())
            .flag("--jwt-private-key", self.keys.jwt_private())
            .flag("--vm-cap", self.vm_cap.to_string())
            .flag("--time-factor", self.time_factor.to_string())
            .word("--dev-login");
        let page = self.repo.join("web/dist");
        let api = if page.join("index.html").is_file() { api.flag("--web", page) } else { api };
        let provisioner = self
            .common(Args::default(), "provisioner")
            .flag("--labs", &self.labs)
            .flag("--images", self.images_table())
            .flag("--token-key-file", self.keys.token());
        let readiness = self.common(Args::default(), "readiness").flag("--token-key-file", self.keys.token());
        let reaper = self.common(Args::default(), "reaper");
        let console = self
            .common(Args::default(), "console-gw")
            .flag("--listen", self.console.to_string())
            .flag("--public-url", self.public_url())
            .flag("--jwt-public-key", self.keys.jwt_public());
        let args = [api, provisioner, readiness, reaper, console];
        SERVICES.into_iter().zip(args).map(|(name, args)| self.service(name, args)).collect()
    }

    fn service(&self, name: &str, args: Args) -> Member {
        Member {
            launch: self.launch(name, self.bin.join(name), args),
            probe: Probe::PortsFile { file: self.ports_file(name), key: "admin", path: "/readyz" },
            stage: Stage::Service,
            stop: Signal::SIGTERM,
            stop_within: Duration::from_secs(8),
        }
    }

    pub(crate) fn front_door(&self) -> Member {
        let args = Args::default()
            .word("front-door")
            .flag("--listen", self.web.to_string())
            .flag("--api", self.api.to_string())
            .flag("--console", self.console.to_string());
        Member {
            launch: self.launch("front-door", self.bin.join("lab-stack"), args),
            probe: Probe::Http(format!("{}/.front-door", self.public_url())),
            stage: Stage::Door,
            stop: Signal::SIGTERM,
            stop_within: Duration::from_secs(3),
        }
    }
}

/// The machines' quota is a wall behind the cap, so it must not stand before it.
fn with_quota(text: &str, vm_cap: u32) -> String {
    const KEY: &str = "count/virtualmachines.kubevirt.io:";
    text.lines()
        .map(|line| match line.split_once(KEY) {
            Some((indent, _)) => format!("{indent}{KEY} \"{}\"\n", vm_cap + 4),
            None => format!("{line}\n"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quota_follows_the_cap_and_nothing_else_changes() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/quota.yaml");
        let before = fs::read_to_string(file).unwrap();
        let after = with_quota(&before, 200);
        let changed: Vec<(&str, &str)> = before.lines().zip(after.lines()).filter(|(a, b)| a != b).collect();
        assert_eq!(changed.len(), 1);
        let value: serde_json::Value = serde_saphyr::from_str(&after).unwrap();
        assert_eq!(value["spec"]["hard"]["count/virtualmachines.kubevirt.io"], "204");
    }
}
