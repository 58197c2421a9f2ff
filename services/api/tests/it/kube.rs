//! A stand-in for the cluster: lists and watches of the three kinds that the api counts, and ConfigMaps.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path as Segments, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio_util::sync::{CancellationToken, DropGuard};

#[derive(Clone)]
struct Shared {
    objects: Arc<Mutex<BTreeMap<String, (String, Value)>>>,
    maps: Arc<Mutex<BTreeMap<String, Value>>>,
    changes: broadcast::Sender<(String, Value)>,
    is_broken: Arc<Mutex<bool>>,
}

pub(crate) struct Kube {
    shared: Shared,
    dir: tempfile::TempDir,
    address: SocketAddr,
    _stop: DropGuard,
}

const GROUP: &str = "/apis/kubevirt.io/v1/namespaces/{ns}";

impl Kube {
    pub(crate) async fn start() -> Self {
        let shared = Shared {
            objects: Arc::default(),
            maps: Arc::default(),
            changes: broadcast::channel(1024).0,
            is_broken: Arc::default(),
        };
        let router = Router::new()
            .route(&format!("{GROUP}/{{plural}}"), get(list))
            .route("/api/v1/namespaces/{ns}/pods", get(pods))
            .route("/api/v1/namespaces/{ns}/configmaps/{name}", get(get_map))
            .route("/api/v1/namespaces/{ns}/configmaps", axum::routing::post(create_map))
            .with_state(shared.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let token = stop.clone();
        let tracker = tokio_util::task::TaskTracker::new();
        tracker.spawn(async move {
            token.run_until_cancelled(async { axum::serve(listener, router).await }).await;
        });
        Self { shared, dir: tempfile::tempdir().unwrap(), address, _stop: stop.drop_guard() }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        let path = self.dir.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
             clusters: [{{name: x, cluster: {{server: \"http://{}\"}}}}]\n\
             users: [{{name: x, user: {{}}}}]\ncontexts: [{{name: x, context: {{cluster: x, user: x}}}}]\n",
            self.address
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Puts a VirtualMachine there, with these labels.
    pub(crate) fn put(&self, uid: &str, labels: &BTreeMap<String, String>) {
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": format!("vm-{uid}"), "namespace": "ttlab", "uid": uid, "labels": labels, "resourceVersion": "5"}
        });
        self.shared.objects.lock().unwrap().insert(uid.into(), ("virtualmachines".into(), object.clone()));
        let _ =
            self.shared.changes.send(("virtualmachines".into(), json!({"type": "ADDED", "object": object})));
    }

    pub(crate) fn remove(&self, uid: &str) {
        if let Some((plural, object)) = self.shared.objects.lock().unwrap().remove(uid) {
            let _ = self.shared.changes.send((plural, json!({"type": "DELETED", "object": object})));
        }
    }

    /// From now on every list fails, or works again.
    pub(crate) fn set_broken(&self, is_broken: bool) {
        *self.shared.is_broken.lock().unwrap() = is_broken;
    }
}

async fn pods(
    state: State<Shared>,
    Segments(ns): Segments<String>,
    query: Query<BTreeMap<String, String>>,
) -> Response {
    list(state, Segments((ns, "pods".into())), query).await
}

async fn list(
    State(shared): State<Shared>,
    Segments((_ns, plural)): Segments<(String, String)>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    if *shared.is_broken.lock().unwrap() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let kind = match plural.as_str() {
        "pods" => "Pod",
        "virtualmachines" => "VirtualMachine",
        _ => "VirtualMachineInstance",
    };
    let version = if kind == "Pod" { "v1" } else { "kubevirt.io/v1" };
    if query.get("watch").is_some_and(|w| w == "true" || w == "1") {
        let changes = tokio_stream::wrappers::BroadcastStream::new(shared.changes.subscribe());
        let lines = changes.filter_map(move |change| {
            let line = change.ok().filter(|(p, _)| *p == plural).map(|(_, event)| format!("{event}\n"));
            futures::future::ready(line.map(Ok::<_, std::convert::Infallible>))
        });
        return Body::from_stream(lines).into_response();
    }
    let objects = shared.objects.lock().unwrap();
    let items: Vec<&Value> = objects.values().filter(|(p, _)| *p == plural).map(|(_, o)| o).collect();
    Json(json!({"apiVersion": version, "kind": format!("{kind}List"), "metadata": {"resourceVersion": "5"}, "items": items}))
        .into_response()
}

async fn get_map(
    State(shared): State<Shared>,
    Segments((_ns, name)): Segments<(String, String)>,
) -> Response {
    match shared.maps.lock().unwrap().get(&name) {
        Some(map) => Json(map.clone()).into_response(),
        None => status(StatusCode::NOT_FOUND, "NotFound"),
    }
}

async fn create_map(State(shared): State<Shared>, Json(map): Json<Value>) -> Response {
    let name = map["metadata"]["name"].as_str().unwrap().to_owned();
    let mut maps = shared.maps.lock().unwrap();
    if maps.contains_key(&name) {
        return status(StatusCode::CONFLICT, "AlreadyExists");
    }
    maps.insert(name, map.clone());
    (StatusCode::CREATED, Json(map)).into_response()
}

fn status(code: StatusCode, reason: &str) -> Response {
    let body = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code.as_u16()});
    (code, Json(body)).into_response()
}
