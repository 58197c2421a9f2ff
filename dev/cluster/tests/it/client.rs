//! The client library of the services against the cluster: watchers, reflectors, cut connections, expired versions.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::reflector::{self, Store};
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::harness::{LIMIT, Lab, secret};

/// A client that talks to `address` as the administrator.
fn client(lab: &Lab, address: SocketAddr) -> Client {
    let mut config = Config::new(format!("http://{address}").parse().unwrap());
    config.auth_info.token = Some(lab.admin.clone().into());
    config.default_namespace = "ttlab".to_owned();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// A TCP proxy whose connections can be cut.
struct Proxy {
    address: SocketAddr,
    cut: Arc<Mutex<CancellationToken>>,
}

impl Proxy {
    async fn start(to: SocketAddr, tasks: &TaskTracker) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cut = Arc::new(Mutex::new(CancellationToken::new()));
        let (tokens, connections) = (cut.clone(), tasks.clone());
        tasks.spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let token = tokens.lock().unwrap().clone();
                connections.spawn(async move {
                    let Ok(mut far) = TcpStream::connect(to).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        () = token.cancelled() => {}
                    }
                });
            }
        });
        Self { address, cut }
    }

    /// Cuts what is open; new connections go through.
    fn cut(&self) {
        let old = std::mem::replace(&mut *self.cut.lock().unwrap(), CancellationToken::new());
        old.cancel();
    }
}

/// Tests do not wait for kind pauses.
struct Soon;

impl Iterator for Soon {
    type Item = Duration;
    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(30))
    }
}

impl Backoff for Soon {
    fn reset(&mut self) {}
}

/// Follows ConfigMaps; the store is what the services would see.
fn follow(client: Client, config: watcher::Config, tasks: &TaskTracker) -> Store<ConfigMap> {
    let (reader, writer) = reflector::store();
    let api: Api<ConfigMap> = Api::namespaced(client, "ttlab");
    let stream = watcher(api, config).backoff(Soon).reflect(writer);
    tasks.spawn(async move {
        let mut stream = std::pin::pin!(stream);
        while stream.next().await.is_some() {}
    });
    reader
}

async fn until(store: &Store<ConfigMap>, what: &str, fits: impl Fn(&[Arc<ConfigMap>]) -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !fits(&store.state()) {
        let names: Vec<_> = store.state().iter().map(|m| m.metadata.name.clone()).collect();
        assert!(Instant::now() < deadline, "{what}: still {names:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"l": "1"}}, "data": {"k": "v"}}))
        .unwrap()
}

fn has(state: &[Arc<ConfigMap>], name: &str) -> bool {
    state.iter().any(|m| m.metadata.name.as_deref() == Some(name))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reflector_follows_through_a_cut_and_an_expired_version() {
    let lab = Lab::start().await;
    let tasks = TaskTracker::new();
    let proxy = Proxy::start(lab.address, &tasks).await;
    let api: Api<ConfigMap> = Api::namespaced(client(&lab, lab.address), "ttlab");
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let post = PostParams::default();
        api.create(&post, &config_map("first")).await.unwrap();
        let store = follow(client(&lab, proxy.address), config.labels("l=1"), &tasks);
        until(&store, "the first list", |s| has(s, "first")).await;
        api.create(&post, &config_map("second")).await.unwrap();
        until(&store, "an addition", |s| has(s, "second")).await;
        // It leaves the selector, so for this watcher it is gone.
        let unlabel = Patch::Merge(json!({"metadata": {"labels": {"l": null}}}));
        api.patch("second", &PatchParams::default(), &unlabel).await.unwrap();
        until(&store, "leaving the selector", |s| !has(s, "second")).await;

        proxy.cut();
        api.create(&post, &config_map("third")).await.unwrap();
        until(&store, "what happened during the cut", |s| has(s, "third")).await;

        // The window is lost while the watcher is away: it is told 410 and lists again.
        proxy.cut();
        api.delete("first", &DeleteParams::default()).await.unwrap();
        lab.running.as_ref().unwrap().cluster.store().forget_windows();
        proxy.cut();
        until(&store, "after the 410", |s| !has(s, "first") && has(s, "third")).await;
        for name in ["second", "third"] {
            api.delete(name, &DeleteParams::default()).await.unwrap();
        }
        until(&store, "the end", |s| !has(s, "third")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn typed_calls_of_the_services_work() {
    let lab = Lab::start().await;
    let api: Api<Secret> = Api::namespaced(client(&lab, lab.address), "ttlab");
    let made: Secret = serde_json::from_value(secret("s", json!({"a": "b"}))).unwrap();
    let made = api.create(&PostParams::default(), &made).await.unwrap();
    assert_eq!(made.data.as_ref().unwrap()["k"].0, b"v");
    let again =
        api.create(&PostParams::default(), &serde_json::from_value(secret("s", json!({}))).unwrap()).await;
    let Err(kube::Error::Api(status)) = again else { panic!("{again:?}") };
    assert_eq!((status.code, status.reason.as_str()), (409, "AlreadyExists"));

    let owner =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "annotations": {"x": "1"}}});
    let applied =
        api.patch("s", &PatchParams::apply("lab-test").force(), &Patch::Apply(owner)).await.unwrap();
    assert_eq!(applied.metadata.annotations.unwrap()["x"], "1");
    assert!(applied.data.is_some(), "an apply leaves what it does not name");

    let listed = api.list(&ListParams::default().labels("a=b").limit(1)).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    let metadata = api.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(metadata.items[0].metadata.name.as_deref(), Some("s"));

    let wrong = DeleteParams::default()
        .preconditions(Preconditions { uid: Some("no".into()), resource_version: None });
    let Err(kube::Error::Api(status)) = api.delete("s", &wrong).await else { panic!("deleted") };
    assert_eq!(status.reason, "Conflict");
    let right = DeleteParams::default()
        .preconditions(Preconditions { uid: made.metadata.uid, resource_version: None });
    assert!(api.delete("s", &right).await.unwrap().is_right());
    assert!(api.get_opt("s").await.unwrap().is_none());
}
