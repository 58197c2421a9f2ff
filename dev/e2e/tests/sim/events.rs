//! The documented subscriber sees a session's life, and what an outside subscriber may not see stays inside.

use std::{path::Path, process::Stdio, time::Duration};

use lab_e2e::{Student, subscriber_packages};
use lab_stack::{Options, Stack};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_subscriber_sees_a_whole_session() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let stack = Stack::start(Options::sim()).await.unwrap();
    let mut subscriber = Command::new("python3")
        .env("PYTHONPATH", subscriber_packages().await.unwrap())
        .arg(root.join("docs/subscribe.py"))
        .arg(stack.nats_url())
        .arg(stack.nkey_file("subscriber"))
        .arg(stack.environment())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(subscriber.stdout.take().unwrap()).lines();

    let student = Student::login(&stack.web_url(), "alice@example.org", "student").await.unwrap();
    let id = student.start("systemd-repair").await.unwrap();
    student.wait_for(&id, "ready", SOON).await.unwrap();
    student.end(&id).await.unwrap();

    let mut seen = Vec::new();
    let read = async {
        while !seen.iter().any(|l: &String| l.contains("\"sessionEnded\"")) {
            seen.push(lines.next_line().await.unwrap().expect("the subscriber goes on"));
        }
    };
    tokio::time::timeout(SOON * 2, read).await.expect("the session ends in time");
    for event in [
        "sessionRequested",
        "machineProvisioned",
        "machineReady",
        "sessionReady",
        "sessionEnding",
        "sessionReaped",
    ] {
        assert!(seen.iter().any(|l| l.contains(&format!("\"{event}\""))), "{event} is missing");
    }
    assert!(seen.iter().all(|l| !l.contains("alice")), "an event names the user");
    stack.stop().await;
}
