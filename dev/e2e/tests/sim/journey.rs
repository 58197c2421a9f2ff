//! A session's life on `sim`.

use std::time::Duration;

use futures::StreamExt as _;
use lab_e2e::{Operator, Student, Terminal};
use lab_stack::{Options, Stack};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);
const LAB: &str = "systemd-repair";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_student_starts_works_and_ends_and_nothing_is_left() {
    let stack = Stack::start(Options::sim()).await.unwrap();
    let student = Student::login(&stack.web_url(), "alice", "student").await.unwrap();
    let id = student.start(LAB).await.unwrap();
    let ready = student.wait_for(&id, "ready", SOON).await.unwrap();
    for phase in ["requested", "provisioning", "provisioned", "scheduled", "running", "agent", "ready"] {
        let seen = ready["timeline"].as_array().unwrap().iter().any(|e| e["phase"] == phase);
        assert!(seen, "{phase} is missing from {}", ready["timeline"]);
    }
    assert!(ready["expires_at"].is_string() && ready["idle_at"].is_string(), "{ready}");

    // Two viewers of one console, each with every byte.
    let mut first = student.terminal(&id).await.unwrap();
    first.prompt(SOON).await.unwrap();
    let mut second = student.terminal(&id).await.unwrap();
    first.clear();
    first.send("echo both-$((1+1))\r").await.unwrap();
    first.wait_for("both-", SOON).await.unwrap();
    second.wait_for("both-", SOON).await.unwrap();

    // A page that comes back gets exactly what it missed.
    let epoch =
        first.control.iter().find(|f| f["type"] == "hello").unwrap()["epoch"].as_str().unwrap().to_owned();
    let seen = first.received;
    drop(first);
    second.clear();
    second.send("echo while-away\r").await.unwrap();
    second.wait_for("while-away", SOON).await.unwrap();
    let query = format!("epoch={epoch}&offset={seen}");
    let mut back =
        Terminal::open(student.base(), &id, student.cookie(), student.base(), Some(&query)).await.unwrap();
    back.wait_for("while-away", SOON).await.unwrap();
    let hello = back.control.iter().find(|f| f["type"] == "hello").unwrap();
    assert_eq!((hello["epoch"].as_str(), hello["offset"].as_u64()), (Some(epoch.as_str()), Some(seen)));
    assert!(!back.control.iter().any(|f| f["type"] == "gap"), "nothing was lost: {:?}", back.control);

    let extended = student.post(&format!("/api/sessions/{id}/extend"), json!({})).await.unwrap();
    assert_eq!(extended.status, 200, "{}", extended.body);
    assert_ne!(extended.body["expires_at"], ready["expires_at"]);

    student.end(&id).await.unwrap();
    assert_eq!(back.wait_closed(SOON).await.unwrap(), (4000, "user".to_owned()));
    let ended = student.wait_for(&id, "ended", SOON * 2).await.unwrap();
    assert_eq!(ended["reason"], "user");
    let operator = Operator::new(&stack.kubeconfig("admin"), stack.namespace()).await.unwrap();
    assert_eq!(operator.objects(None).await.unwrap(), Vec::<String>::new());
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ended_while_it_starts_leaves_nothing() {
    let stack = Stack::start(Options::sim()).await.unwrap();
    let operator = Operator::new(&stack.kubeconfig("admin"), stack.namespace()).await.unwrap();
    let mut ids = Vec::new();
    for i in 0..6 {
        let student = Student::login(&stack.web_url(), &format!("s{i}"), "student").await.unwrap();
        let id = student.start(LAB).await.unwrap();
        // Each is ended a little later in its start than the one before.
        if i > 0 {
            let state = ["requested", "provisioning", "booting", "preparing", "ready"][i - 1];
            drop(student.wait_for(&id, state, Duration::from_secs(20)).await);
        }
        student.end(&id).await.unwrap();
        ids.push((student, id));
    }
    for (student, id) in ids {
        student.wait_for(&id, "ended", SOON * 2).await.unwrap();
        assert_eq!(operator.objects(Some(&id)).await.unwrap(), Vec::<String>::new(), "session {id}");
    }
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_event_stream_resumes_and_every_change_raises_the_version() {
    let stack = Stack::start(Options::sim()).await.unwrap();
    let student = Student::login(&stack.web_url(), "alice", "student").await.unwrap();
    let id = student.start(LAB).await.unwrap();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let response = http
        .get(format!("{}/api/sessions/{id}/events", student.base()))
        .header("cookie", student.cookie())
        .send()
        .await
        .unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut stream = response.bytes_stream();
    let mut text = String::new();
    let read = async {
        while !text.contains("\"state\":\"ready\"") {
            let chunk = stream.next().await.expect("the stream goes on until the session ends").unwrap();
            text.push_str(&String::from_utf8_lossy(&chunk));
        }
    };
    tokio::time::timeout(SOON, read).await.expect("ready in time");
    let versions: Vec<u64> =
        text.lines().filter_map(|l| l.strip_prefix("id:")).map(|v| v.trim().parse().unwrap()).collect();
    assert!(versions.len() >= 2 && versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    student.end(&id).await.unwrap();
    student.wait_for(&id, "ended", SOON * 2).await.unwrap();
    stack.stop().await;
}
