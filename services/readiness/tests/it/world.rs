//! A broker, a cluster, a stand-in for the api, and readiness between them.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clap::Parser as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use lab_bus::{
    Bus, Config, Delivery, Disposition, Durable, Identity, Metrics, event::Kind, identity::durable, setup,
};
use lab_domain::{
    Environment, InstallationId, LabId, MachineName, SessionId, StartLimits, id::object_name, token::TokenKey,
};
use lab_kit::Shutdown;
use lab_kubevirt::{Installation, VirtualMachine, VirtualMachineInstance};
use lab_proto::{
    convert,
    subjects::{API_QUEUE, GET_SESSION, LIST_SESSIONS},
    v1,
};
use lab_readiness::config::Args;
use lab_testkit::{Cluster, NAMESPACE, Nats, SimOptions, wait_for};
use serde_json::json;
use time::OffsetDateTime;

pub(crate) const LIMIT: Duration = Duration::from_secs(40);
const KEY: &[u8] = b"a key of at least sixteen bytes";

pub(crate) fn dev() -> Environment {
    Environment::new("dev").unwrap()
}

pub(crate) fn installation() -> Installation {
    Installation { environment: dev(), id: InstallationId(uuid::Uuid::from_u128(1)) }
}

pub(crate) fn main_machine() -> MachineName {
    MachineName::new("main").unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a test against real servers has their time")]
pub(crate) fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// Limits that fit a simulated start and a test's patience.
pub(crate) fn short() -> StartLimits {
    let s = Duration::from_secs;
    StartLimits { disk: s(4), boot: s(3), agent: s(4), prepare: s(20) }
}

/// What the api would know, in memory.
#[derive(Default)]
pub(crate) struct Book {
    sessions: Mutex<HashMap<SessionId, v1::Session>>,
    facts: Mutex<Vec<(SessionId, Kind)>>,
    is_deaf: AtomicBool,
}

impl Book {
    pub(crate) fn session(&self, id: SessionId) -> v1::Session {
        self.sessions.lock().unwrap()[&id].clone()
    }

    pub(crate) fn set_state(&self, id: SessionId, state: v1::SessionState) {
        self.sessions.lock().unwrap().get_mut(&id).unwrap().state = state as i32;
    }

    /// Acks facts without taking them in.
    pub(crate) fn set_deaf(&self, is_deaf: bool) {
        self.is_deaf.store(is_deaf, Ordering::Relaxed);
    }

    /// Facts in the order in which they came, in short.
    pub(crate) fn facts(&self) -> Vec<String> {
        self.facts.lock().unwrap().iter().map(|(_, kind)| short_form(kind)).collect()
    }

    /// Those of one session.
    pub(crate) fn facts_of(&self, session: SessionId) -> Vec<String> {
        let facts = self.facts.lock().unwrap();
        facts.iter().filter(|(id, _)| *id == session).map(|(_, kind)| short_form(kind)).collect()
    }

    pub(crate) fn failure(&self, session: SessionId) -> Option<v1::MachineFailed> {
        self.facts.lock().unwrap().iter().find_map(|(id, kind)| match kind {
            Kind::MachineFailed(f) if *id == session => Some(f.clone()),
            _ => None,
        })
    }

    fn take(&self, id: SessionId, kind: Kind, at: OffsetDateTime) {
        self.facts.lock().unwrap().push((id, kind.clone()));
        let mut sessions = self.sessions.lock().unwrap();
        let Some(session) = sessions.get_mut(&id) else { return };
        if self.is_deaf.load(Ordering::Relaxed) {
            return;
        }
        let (name, uid) = subject(&kind);
        let Some(machine) = session.machines.iter_mut().find(|m| m.name == name) else { return };
        if machine.pinned_uid.is_empty() {
            machine.pinned_uid.clone_from(&uid);
        }
        let kind = lab_proto::subjects::kind_name(&kind);
        if machine.pinned_uid == uid && !machine.facts.iter().any(|f| f.kind == kind) {
            machine.facts.push(v1::ProjectedFact { kind: kind.into(), at: Some(convert::timestamp(at)) });
        }
        if session.machines.iter().all(|m| m.facts.iter().any(|f| f.kind == "machine-ready"))
            && session.state < v1::SessionState::Ready as i32
        {
            session.state = v1::SessionState::Ready as i32;
        }
    }
}

fn subject(kind: &Kind) -> (String, String) {
    match kind {
        Kind::MachineScheduled(f) => (f.machine.clone(), f.vmi_uid.clone()),
        Kind::MachineRunning(f) => (f.machine.clone(), f.vmi_uid.clone()),
        Kind::AgentReached(f) => (f.machine.clone(), f.vmi_uid.clone()),
        Kind::MachineReady(f) => (f.machine.clone(), f.vmi_uid.clone()),
        Kind::MachineFailed(f) => (f.machine.clone(), f.vmi_uid.clone()),
        Kind::MachineStopped(f) => (f.machine.clone(), f.vmi_uid.clone()),
        Kind::MachineLost(f) => (f.machine.clone(), f.vmi_uid.clone()),
        _ => (String::new(), String::new()),
    }
}

fn short_form(kind: &Kind) -> String {
    match kind {
        Kind::MachineFailed(f) => format!("failed {} {}", convert::end_reason(f.reason).unwrap(), f.cause),
        Kind::MachineStopped(f) => format!("stopped {}", f.phase),
        Kind::MachineLost(f) => format!("lost {}", f.cause),
        other => lab_proto::subjects::kind_name(other).to_owned(),
    }
}

/// Everything around one readiness.
pub(crate) struct World {
    pub(crate) nats: Nats,
    pub(crate) cluster: Cluster,
    pub(crate) admin: Client,
    pub(crate) bus: Bus,
    pub(crate) book: Arc<Book>,
    pub(crate) readiness: Option<Shutdown>,
    api: Shutdown,
    dir: tempfile::TempDir,
}

impl World {
    pub(crate) async fn start(rules: serde_json::Value) -> Self {
        let (nats, cluster) = tokio::join!(
            Nats::start(),
            Cluster::start(SimOptions { rules: Some(rules), ..SimOptions::default() })
        );
        let (nats, cluster) = (nats.unwrap(), cluster.unwrap());
        let (environment, metrics, nkey_file) = (dev(), Metrics::default(), None);
        let (url, identity) = (nats.url(), Identity::Api);
        let bus = Bus::connect(Config { url, nkey_file, environment, identity, metrics }).await.unwrap();
        setup::streams(&bus, installation().id, 1).await.unwrap();
        let admin = cluster.client("admin").await.unwrap();
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": "ttlab-environment-dev"},
            "data": {"installation": installation().id.to_string()},
        }))
        .unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), NAMESPACE);
        maps.create(&PostParams::default(), &map).await.unwrap();
        let (book, api) = (Arc::new(Book::default()), Shutdown::new());
        play_api(&bus, &book, &api);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("key"), KEY).unwrap();
        let mut world = Self { nats, cluster, admin, bus, book, readiness: None, api, dir };
        world.start_readiness();
        world
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.dir.path().join("key")
    }

    pub(crate) fn start_readiness(&mut self) {
        let args = Args::try_parse_from([
            "lab-readiness".to_owned(),
            format!("--nats-url={}", self.nats.url()),
            format!("--kubeconfig={}", self.cluster.kubeconfig("ttlab-readiness").display()),
            format!("--token-key-file={}", self.key().display()),
        ])
        .unwrap();
        let shutdown = Shutdown::new();
        let running = shutdown.clone();
        self.api.spawn(async move { lab_readiness::run(args, running).await.unwrap() });
        self.readiness = Some(shutdown);
    }

    pub(crate) fn stop_readiness(&mut self) {
        self.readiness.take().unwrap().token.cancel();
    }

    /// A session of one machine, known to the api, with its objects in the cluster. The lab's name chooses the rule.
    pub(crate) async fn session(&self, lab: &str) -> SessionId {
        let session = SessionId::generate();
        self.know(session, lab, short());
        self.create(session, lab, &installation()).await;
        session
    }

    /// Lets the api know a session that has been provisioned just now.
    pub(crate) fn know(&self, session: SessionId, lab: &str, limits: StartLimits) {
        let provisioned =
            v1::ProjectedFact { kind: "machine-provisioned".into(), at: Some(convert::timestamp(now())) };
        let machine = v1::Machine {
            name: "main".into(),
            state: v1::SessionState::Provisioning as i32,
            disk: v1::DiskKind::Container as i32,
            facts: vec![provisioned],
            ..Default::default()
        };
        let known = v1::Session {
            session_id: session.to_string(),
            state: v1::SessionState::Provisioning as i32,
            version: 3,
            lab: lab.into(),
            limits: Some(convert::limits_message(&limits)),
            machines: vec![machine],
            ..Default::default()
        };
        self.book.sessions.lock().unwrap().insert(session, known);
    }

    /// Makes Secret and VirtualMachine as the provisioner would.
    pub(crate) async fn create(&self, session: SessionId, lab: &str, whose: &Installation) {
        let name = object_name(session, &main_machine());
        let token = TokenKey::new(KEY.to_vec()).unwrap().token(session, &main_machine());
        let labels = whose.labels(session, &LabId::new(lab).unwrap(), Some(&main_machine()));
        let machine = json!({
            "token": token, "session": session, "machine": "main", "lab": lab, "prepare_timeout_s": 2,
        });
        let files = json!([{"path": "/opt/ttlab/machine.json", "content": machine.to_string()}]);
        let userdata = format!("#cloud-config\n{}", json!({"write_files": files}));
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "stringData": {"userdata": userdata},
        }))
        .unwrap();
        let secrets: Api<Secret> = Api::namespaced(self.admin.clone(), NAMESPACE);
        secrets.create(&PostParams::default(), &secret).await.unwrap();
        let vm: VirtualMachine = serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "runStrategy": "Once",
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "domain": {
                            "memory": {"guest": "128Mi"},
                            "devices": {
                                "disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "ci", "disk": {"bus": "virtio"}}],
                                "interfaces": [{"name": "default", "masquerade": {}}],
                            },
                        },
                        "networks": [{"name": "default", "pod": {}}],
                        "terminationGracePeriodSeconds": 1,
                        "volumes": [
                            {"name": "root", "containerDisk": {"image": format!("ttlab.local/debian-12@sha256:{}", "a".repeat(64))}},
                            {"name": "ci", "cloudInitNoCloud": {"secretRef": {"name": name}}},
                        ],
                    },
                },
            },
        }))
        .unwrap();
        self.vms().create(&PostParams::default(), &vm).await.unwrap();
    }

    pub(crate) fn vms(&self) -> Api<VirtualMachine> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    pub(crate) fn vmis(&self) -> Api<VirtualMachineInstance> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    pub(crate) async fn uid(&self, session: SessionId) -> String {
        self.vmis().get(&object_name(session, &main_machine())).await.unwrap().uid().unwrap()
    }

    pub(crate) async fn delete_vm(&self, session: SessionId) {
        let name = object_name(session, &main_machine());
        self.vms().delete(&name, &DeleteParams::default()).await.unwrap();
        wait_for("the VMI to go", LIMIT, async || self.vmis().get_opt(&name).await.unwrap().is_none()).await;
    }

    pub(crate) async fn wait_fact(&self, fact: &str) {
        let start = std::time::Instant::now();
        while !self.book.facts().iter().any(|f| f == fact) {
            assert!(
                start.elapsed() < LIMIT,
                "no {fact}, only {:?}\n{}",
                self.book.facts(),
                self.cluster.output()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(readiness) = &self.readiness {
            readiness.token.cancel();
        }
        self.api.token.cancel();
    }
}

fn play_api(bus: &Bus, book: &Arc<Book>, root: &Shutdown) {
    let known = Arc::clone(book);
    let get = move |q: v1::GetSessionRequest| {
        let session = q.session_id.parse().ok();
        let session = session.and_then(|id: SessionId| known.sessions.lock().unwrap().get(&id).cloned());
        std::future::ready(Ok(v1::GetSessionResponse { session }))
    };
    root.spawn(bus.answer(GET_SESSION, API_QUEUE, get, root.token.clone()));
    let known = Arc::clone(book);
    let list = move |_: v1::ListSessionsRequest| {
        let sessions = known.sessions.lock().unwrap().values().cloned().collect();
        std::future::ready(Ok(v1::ListSessionsResponse { sessions, next: String::new() }))
    };
    root.spawn(bus.answer(LIST_SESSIONS, API_QUEUE, list, root.token.clone()));
    let known = Arc::clone(book);
    let take = move |delivery: Delivery| {
        known.take(delivery.session, delivery.kind, now());
        std::future::ready(Disposition::Ack)
    };
    root.spawn(bus.consume(Durable::new(durable::API_FACTS, vec![]), take, root.token.clone()));
}
