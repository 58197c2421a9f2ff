//! The binary as an operator meets it.

use std::{
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use lab_testkit::{child, wait_for};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::world::{LIMIT, World};

const BINARY: &str = env!("CARGO_BIN_EXE_lab-readiness");

fn run(args: &[&str]) -> Output {
    Command::new(BINARY).args(args).env_clear().output().unwrap()
}

#[test]
fn a_bad_configuration_exits_64_and_says_why() {
    for args in [
        [].as_slice(),
        &["--token-key-file", "/nonexistent", "--environment", "Dev-1"],
        &["--token-key-file", "/nonexistent", "--log", "lab=shout"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(64), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
    let output = run(&["--token-key-file", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nonexistent"));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_says_where_it_listens_when_it_is_ready_and_stops_when_told() {
    let mut world = World::start(json!({})).await;
    world.stop_readiness();
    let dir = tempfile::tempdir().unwrap();
    let ports = dir.path().join("ports.json");
    let mut command = child::command(Path::new(BINARY));
    command.arg("--nats-url").arg(world.nats.url());
    command.arg("--kubeconfig").arg(world.cluster.kubeconfig("ttlab-readiness"));
    command.arg("--token-key-file").arg(world.key()).arg("--ports-file").arg(&ports);
    let mut process = child::Process::spawn("lab-readiness", command, dir.path().join("log")).unwrap();
    let read = || serde_json::from_str::<serde_json::Value>(&std::fs::read_to_string(&ports).ok()?).ok();
    let told = process.ready(LIMIT, read).await.unwrap();
    let admin = told["admin"].as_str().unwrap().to_owned();
    wait_for("readyz", LIMIT, async || ask(&admin, "/readyz").await.starts_with("HTTP/1.1 200")).await;
    assert!(ask(&admin, "/metrics").await.contains("lab_readiness_sessions_followed"));
    world.session("good").await;
    world.wait_fact("machine-ready").await;
    let started = std::time::Instant::now();
    process.signal(Signal::SIGTERM).unwrap();
    wait_for("its end", LIMIT, async || !process.is_alive()).await;
    assert!(started.elapsed() < Duration::from_secs(8), "{}", process.output());
    let log = process.output();
    assert!(log.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{log}");
    assert!(log.contains("reported"));
}

async fn ask(address: &str, path: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let Ok(mut stream) = tokio::net::TcpStream::connect(address).await else { return String::new() };
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    match stream.write_all(request.as_bytes()).await {
        Ok(()) => drop(stream.read_to_string(&mut answer).await),
        Err(_) => return String::new(),
    }
    answer
}
