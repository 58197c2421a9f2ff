//! What was answered survives: an orderly restart, and `kill -9` of the real binary.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{LIMIT, Lab, secret, token};

const SECRETS: &str = "/api/v1/namespaces/ttlab/secrets";

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_objects_and_tokens_and_expires_older_versions() {
    let lab = Lab::start().await;
    let made = lab.create(SECRETS, secret("a", json!({}))).await;
    lab.create(SECRETS, secret("b", json!({}))).await;
    let admin = lab.admin.clone();
    let lab = lab.restart().await;
    assert_eq!(lab.admin, admin);
    let again = lab.call(Method::GET, &format!("{SECRETS}/a"), None).await.json();
    assert_eq!(again["metadata"], made["metadata"]);
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{SECRETS}?watch=1&resourceVersion={version}&timeoutSeconds=5");
    let event: Value = lab.call(Method::GET, &path, None).await.json();
    assert_eq!(event["type"], "ERROR");
    assert_eq!(event["object"]["reason"], "Expired");
    assert_eq!(event["object"]["code"], 410);
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(dir: &Path) -> Killed {
    let ports = dir.join("ports.json");
    let _ = std::fs::remove_file(&ports);
    let child = Command::new(env!("CARGO_BIN_EXE_lab-cluster"))
        .arg("--state-dir")
        .arg(dir.join("state"))
        .arg("--ports-file")
        .arg(&ports)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Killed(child)
}

async fn address(dir: &Path) -> String {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Ok(text) = std::fs::read_to_string(dir.join("ports.json")) {
            let ports: Value = serde_json::from_str(&text).unwrap();
            return ports["http"].as_str().unwrap().to_owned();
        }
        assert!(Instant::now() < deadline, "no ports file");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_was_answered_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    // Only its client is used, with the address of the child.
    let mut lab = Lab::start().await;
    let child = spawn(dir.path());
    lab.address = address(dir.path()).await.parse().unwrap();
    lab.admin = token(&dir.path().join("state/kubeconfig/admin.kubeconfig"));
    let mut answered = Vec::new();
    for i in 0..50 {
        answered.push(lab.create(SECRETS, secret(&format!("s{i}"), json!({}))).await);
    }
    drop(child);

    let child = spawn(dir.path());
    lab.address = address(dir.path()).await.parse().unwrap();
    for made in &answered {
        let path = format!("{SECRETS}/{}", made["metadata"]["name"].as_str().unwrap());
        let again = lab.call(Method::GET, &path, None).await;
        assert_eq!(again.code, StatusCode::OK);
        assert_eq!(again.json(), *made);
    }
    let newest = lab.create(SECRETS, secret("after", json!({}))).await;
    let version = |o: &Value| o["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(version(&newest) > version(answered.last().unwrap()));
    drop(child);
}
