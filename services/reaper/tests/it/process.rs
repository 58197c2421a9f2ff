//! The binary as an operator meets it.

use std::{path::Path, process::Command};

use lab_testkit::{child, wait_for};
use nix::sys::signal::Signal;

use crate::world::{LIMIT, World};

const BINARY: &str = env!("CARGO_BIN_EXE_lab-reaper");

#[test]
fn a_bad_configuration_exits_64_and_says_why() {
    for args in BAD {
        let output = Command::new(BINARY).args(*args).env_clear().output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_says_where_it_listens_and_stops_when_told() {
    let world = World::start().await;
    let dir = tempfile::tempdir().unwrap();
    let ports = dir.path().join("ports.json");
    let mut command = child::command(Path::new(BINARY));
    command.args(world.arguments(&[])).arg("--ports-file").arg(&ports);
    let mut process = child::Process::spawn("lab-reaper", command, dir.path().join("log")).unwrap();
    let read = || serde_json::from_str::<serde_json::Value>(&std::fs::read_to_string(&ports).ok()?).ok();
    let told = process.ready(LIMIT, read).await.unwrap();
    assert!(told["admin"].as_str().unwrap().starts_with("127.0.0.1:"));
    let agreed = "installation agreed";
    wait_for(agreed, LIMIT, async || process.output().contains(agreed)).await;
    let started = std::time::Instant::now();
    process.signal(Signal::SIGTERM).unwrap();
    wait_for("its end", LIMIT, async || !process.is_alive()).await;
    assert!(started.elapsed() < std::time::Duration::from_secs(8), "{}", process.output());
    let log = process.output();
    assert!(log.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{log}");
}

const BAD: &[&[&str]] = &[&["--environment", "Dev-1"], &["--ghost-grace", "soon"], &["--log", "lab=shout"]];
