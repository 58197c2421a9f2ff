//! Ten thousand objects, two hundred writers, and a watcher that misses nothing.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use lab_cluster::resource::SECRETS;

use crate::harness::{Lab, secret};

const OBJECTS: usize = 10_000;
const WRITERS: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_writers_make_ten_thousand_objects() {
    let lab = Arc::new(Lab::start_in(tempfile::tempdir().unwrap(), &["--watch-window", "16384"]).await);
    let store = lab.running.as_ref().unwrap().cluster.store().clone();
    let mut watch = store.watch(&SECRETS, store.version()).unwrap();
    let writers = Arc::new(Semaphore::new(WRITERS));
    let tasks = TaskTracker::new();
    let began = Instant::now();
    for i in 0..OBJECTS {
        let (lab, writers) = (lab.clone(), writers.clone());
        let permit = writers.acquire_owned().await.unwrap();
        tasks.spawn(async move {
            let body = secret(&format!("s{i:05}"), json!({"bucket": (i % 10).to_string()}));
            let answer = lab.call(Method::POST, "/api/v1/namespaces/ttlab/secrets", Some(body)).await;
            assert_eq!(answer.code, StatusCode::CREATED);
            drop(permit);
        });
    }
    tasks.close();
    tasks.wait().await;
    let created = began.elapsed();
    for _ in 0..OBJECTS {
        let change = tokio::time::timeout(Duration::from_secs(5), watch.next()).await.unwrap().unwrap();
        assert!(change.before.is_none());
    }

    let began = Instant::now();
    let list = lab.call(Method::GET, "/api/v1/namespaces/ttlab/secrets", None).await.json();
    let listed = began.elapsed();
    assert_eq!(list["items"].as_array().unwrap().len(), OBJECTS);
    let selected =
        lab.call(Method::GET, "/api/v1/namespaces/ttlab/secrets?labelSelector=bucket%3D3", None).await.json();
    assert_eq!(selected["items"].as_array().unwrap().len(), OBJECTS / 10);

    // Page by page it is the same set, each object once.
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/v1/namespaces/ttlab/secrets?limit=2500&continue={token}");
        let page = lab.call(Method::GET, &path, None).await.json();
        let items = page["items"].as_array().unwrap().iter();
        names.extend(items.map(|i| i["metadata"]["name"].as_str().unwrap().to_owned()));
        match page["metadata"].get("continue").and_then(Value::as_str) {
            Some(next) if !next.is_empty() => next.clone_into(&mut token),
            _ => break,
        }
    }
    names.dedup();
    assert_eq!(names.len(), OBJECTS);
    println!("{OBJECTS} creates by {WRITERS} writers: {created:?}; one list of all: {listed:?}");
    assert!(created < Duration::from_secs(60), "{created:?}");
}
