//! The runner's own promises: nothing outlives it, a crash is mended, two commands agree about what runs.
//!
//! The stack under test is the real one on `sim`; its programs must be built (`cargo build --workspace --bins`).

#![expect(clippy::unwrap_used, reason = "a test says by panicking what it missed")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const SOON: Duration = Duration::from_secs(90);

/// A runner with a state directory of its own.
struct Runner {
    state: tempfile::TempDir,
}

impl Runner {
    fn new() -> Self {
        let state = tempfile::Builder::new().prefix("ttlab-it-").tempdir().unwrap();
        std::fs::set_permissions(state.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        Self { state }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lab-stack"));
        command.args(words).env("LAB_STATE_DIR", self.state.path()).env("LAB_PORT", "0");
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).stdin(Stdio::null()).output().unwrap()
    }

    fn supervise(&self) -> Child {
        let log = std::fs::File::create(self.state.path().join("supervisor.log")).unwrap();
        let errors = log.try_clone().unwrap();
        self.command(&["supervise", "--driver", "sim"])
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .unwrap()
    }

    fn status(&self) -> Value {
        serde_json::from_slice(&self.run(&["status", "--json"]).stdout).unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.state.path().join("supervisor.log")).unwrap_or_default()
    }

    fn wait_up(&self) -> Value {
        let mut last = Value::Null;
        wait_for(|| {
            last = self.status();
            last["up"] == true
        })
        .unwrap_or_else(|| panic!("not up: {last}\n{}", self.log()));
        last
    }
}

fn wait_for(mut condition: impl FnMut() -> bool) -> Option<()> {
    let deadline = Instant::now() + SOON;
    while !condition() {
        if Instant::now() > deadline {
            return None;
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    Some(())
}

fn pids(status: &Value) -> Vec<i64> {
    status["processes"].as_array().unwrap().iter().map(|process| process["pid"].as_i64().unwrap()).collect()
}

fn pid_of(status: &Value, name: &str) -> i64 {
    let found = status["processes"].as_array().unwrap().iter().find(|process| process["name"] == name);
    found.unwrap()["pid"].as_i64().unwrap()
}

/// Running, and no zombie.
fn runs(pid: i64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

fn kill(pid: i64) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}

/// Processes whose command line names the state directory.
fn mentioning(state: &Path) -> Vec<String> {
    let needle = state.to_string_lossy().into_owned();
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(&needle))
        .collect()
}

#[test]
fn a_killed_supervisor_leaves_no_process_behind() {
    let runner = Runner::new();
    let mut supervisor = runner.supervise();
    let status = runner.wait_up();
    let all = pids(&status);
    assert_eq!(all.len(), 9, "{status}");
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    wait_for(|| all.iter().all(|pid| !runs(*pid)) && mentioning(runner.state.path()).is_empty())
        .unwrap_or_else(|| panic!("left: {:?}", mentioning(runner.state.path())));
    assert_eq!(runner.status()["up"], false);
}

#[test]
fn a_crashed_service_comes_back_and_down_leaves_nothing() {
    let runner = Runner::new();
    let mut supervisor = runner.supervise();
    let status = runner.wait_up();
    let before = pid_of(&status, "lab-reaper");
    kill(before);
    wait_for(|| {
        let now = runner.status();
        now["up"] == true && pid_of(&now, "lab-reaper") != before
    })
    .unwrap_or_else(|| panic!("the reaper did not come back: {}\n{}", runner.status(), runner.log()));

    let kubeconfig = runner.run(&["kubeconfig", "--as", "reaper"]);
    let path = String::from_utf8(kubeconfig.stdout).unwrap();
    assert!(Path::new(path.trim()).ends_with("kubeconfig/ttlab-reaper.kubeconfig"), "{path}");
    assert!(Path::new(path.trim()).is_file());

    let second = runner.run(&["supervise", "--driver", "sim"]);
    assert!(!second.status.success(), "two supervisors of one clone");

    let down = runner.run(&["down"]);
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    assert!(supervisor.wait().unwrap().success());
    assert_eq!(mentioning(runner.state.path()), Vec::<String>::new());
    let again = runner.run(&["down"]);
    assert!(again.status.success());
    assert!(String::from_utf8_lossy(&again.stdout).contains("was not running"));
}

#[test]
fn the_second_start_keeps_addresses_and_needs_no_new_database() {
    let runner = Runner::new();
    let mut supervisor = runner.supervise();
    let first = runner.wait_up();
    runner.run(&["down"]);
    supervisor.wait().unwrap();
    let begun = Instant::now();
    let mut supervisor = runner.supervise();
    let second = runner.wait_up();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    for address in ["web", "nats", "database", "kubernetes"] {
        assert_eq!(first[address], second[address], "{address}");
    }
    runner.run(&["down"]);
    supervisor.wait().unwrap();
}
