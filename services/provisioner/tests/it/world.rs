//! A broker that knows identities, a cluster that knows roles, a stand-in for the api, and the provisioner between them.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use clap::Parser as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, api::PostParams};
use lab_bus::{
    Bus, Config, Delivery, Disposition, Durable, Envelope, Identity, Metrics,
    event::{self, Kind},
    identity::{self, User, durable},
    setup,
};
use lab_domain::{Environment, InstallationId, SessionId};
use lab_kit::Shutdown;
use lab_kubevirt::{Installation, VirtualMachine};
use lab_proto::{
    convert,
    subjects::{API_QUEUE, GET_SESSION, LIST_SESSIONS, Subjects, kind_name},
    v1,
};
use lab_provisioner::{Setup, config::Args};
use lab_testkit::{Cluster, NAMESPACE, Nats, SimOptions, wait_for};
use secrecy::ExposeSecret as _;
use serde_json::json;
use time::OffsetDateTime;

pub(crate) const LIMIT: Duration = Duration::from_secs(40);
pub(crate) const IMAGE: &str = "abababababababababababababababababababababababababababababababab";

const LAB: &str = "title: {en: T, zh: T}\nsummary: {en: S, zh: S}\ndifficulty: beginner\nruntime: vm\nlife: 60m\n\
    extend: {step: 15m, max: 60m}\nidle: 30m\nlimits: {disk: 10m, boot: 150s, prepare: 5m}\nmachines:\n  \
    - {name: main, image: debian-12, disk: golden, cpus: 1, memory: 128Mi, prepare: prepare.sh}\nsteps:\n  \
    - {title: {en: T, zh: T}, text: step1}\n";

pub(crate) fn dev() -> Environment {
    Environment::new("dev").unwrap()
}

pub(crate) fn installation() -> Installation {
    Installation { environment: dev(), id: InstallationId(uuid::Uuid::from_u128(1)) }
}

#[expect(clippy::disallowed_methods, reason = "a test against real servers has their time")]
fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// What the api would know.
#[derive(Default)]
pub(crate) struct Book {
    sessions: Mutex<HashMap<SessionId, v1::Session>>,
    facts: Mutex<Vec<(SessionId, Kind)>>,
}

impl Book {
    pub(crate) fn facts_of(&self, session: SessionId) -> Vec<&'static str> {
        let facts = self.facts.lock().unwrap();
        facts.iter().filter(|(id, _)| *id == session).map(|(_, kind)| kind_name(kind)).collect()
    }

    pub(crate) fn fact(&self, session: SessionId, name: &str) -> Option<Kind> {
        let facts = self.facts.lock().unwrap();
        facts
            .iter()
            .find(|(id, kind)| *id == session && kind_name(kind) == name)
            .map(|(_, kind)| kind.clone())
    }

    fn take(&self, id: SessionId, kind: Kind) {
        let name = kind_name(&kind);
        self.facts.lock().unwrap().push((id, kind));
        if let Some(session) = self.sessions.lock().unwrap().get_mut(&id) {
            let at = Some(convert::timestamp(now()));
            session.machines[0].facts.push(v1::ProjectedFact { kind: name.to_owned(), at });
        }
    }
}

/// Everything around one provisioner.
pub(crate) struct World {
    pub(crate) admin: Client,
    pub(crate) bus: Bus,
    pub(crate) book: Arc<Book>,
    pub(crate) digest: String,
    pub(crate) dir: tempfile::TempDir,
    cluster: Cluster,
    nats: Nats,
    root: Shutdown,
}

impl World {
    pub(crate) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let users: Vec<User> =
            [Identity::Setup, Identity::Api, Identity::Provisioner].map(|who| user(dir.path(), who)).into();
        let rights = identity::authorization(&Subjects::new(dev()), &users);
        let (nats, cluster) = tokio::join!(Nats::start_with(&rights), Cluster::start(SimOptions::default()));
        let (nats, cluster) = (nats.unwrap(), cluster.unwrap());
        let maker = connect(&nats, dir.path(), Identity::Setup).await;
        setup::streams(&maker, installation().id, 1).await.unwrap();
        let bus = connect(&nats, dir.path(), Identity::Api).await;
        let admin = cluster.client("admin").await.unwrap();
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": "ttlab-environment-dev"},
            "data": {"installation": installation().id.to_string()},
        }))
        .unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), NAMESPACE);
        maps.create(&PostParams::default(), &map).await.unwrap();
        let (book, root) = (Arc::new(Book::default()), Shutdown::new());
        play_api(&bus, &book, &root);
        let digest = write_labs(dir.path());
        Self { admin, bus, book, digest, dir, cluster, nats, root }
    }

    /// Arguments of a provisioner between broker, cluster and labs.
    pub(crate) fn arguments(&self, more: &[&str]) -> Vec<String> {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let mut args = vec![
            format!("--nats-url={}", self.nats.url()),
            format!("--nats-nkey-file={}", seed(self.dir.path(), Identity::Provisioner).display()),
            format!("--kubeconfig={}", self.cluster.kubeconfig("ttlab-provisioner").display()),
            format!("--labs={}", path("labs")),
            format!("--images={}", path("images.yaml")),
            format!("--token-key-file={}", path("key")),
        ];
        args.extend(more.iter().map(|&arg| arg.to_owned()));
        args
    }

    /// Starts a provisioner; several may run.
    pub(crate) fn provisioner(&self, look_interval: &str) -> Shutdown {
        let args = self.arguments(&["--look-interval", look_interval]);
        let args = Args::try_parse_from(std::iter::once("lab-provisioner".to_owned()).chain(args)).unwrap();
        let shutdown = Shutdown::new();
        let running = shutdown.clone();
        self.root.spawn(async move {
            lab_provisioner::run(Setup::load(args).unwrap(), running).await.unwrap();
        });
        shutdown
    }

    /// Lets the api know a session that was requested just now.
    pub(crate) fn know(&self, digest: &str) -> SessionId {
        let session = SessionId::generate();
        let known = v1::Session {
            session_id: session.to_string(),
            state: v1::SessionState::Requested as i32,
            version: 1,
            lab: "try-it".to_owned(),
            lab_digest: digest.to_owned(),
            limits: Some(v1::Limits { prepare_ms: 300_000, ..Default::default() }),
            machines: vec![v1::Machine { name: "main".to_owned(), ..Default::default() }],
            ..Default::default()
        };
        self.book.sessions.lock().unwrap().insert(session, known);
        session
    }

    pub(crate) async fn request(&self, session: SessionId) {
        let requested = Kind::SessionRequested(v1::SessionRequested::default());
        let event = event::new(&dev(), &Envelope::bare(session), requested, now());
        self.bus.publish(&event).await.unwrap();
    }

    pub(crate) fn end(&self, session: SessionId) {
        let ending = v1::SessionState::Ending as i32;
        self.book.sessions.lock().unwrap().get_mut(&session).unwrap().state = ending;
    }

    pub(crate) fn vms(&self) -> Api<VirtualMachine> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    pub(crate) async fn wait_fact(&self, session: SessionId, name: &str) -> Kind {
        wait_for(name, LIMIT, async || self.book.fact(session, name).is_some()).await;
        self.book.fact(session, name).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.root.token.cancel();
    }
}

fn seed(dir: &Path, who: Identity) -> PathBuf {
    dir.join(format!("{}.nk", who.as_str()))
}

fn user(dir: &Path, identity: Identity) -> User {
    let (secret, public_key) = identity::new_key();
    std::fs::write(seed(dir, identity), secret.expose_secret()).unwrap();
    User { identity, public_key }
}

async fn connect(nats: &Nats, dir: &Path, identity: Identity) -> Bus {
    let (environment, metrics) = (dev(), Metrics::default());
    let nkey_file = Some(seed(dir, identity));
    Bus::connect(Config { url: nats.url(), nkey_file, environment, identity, metrics }).await.unwrap()
}

fn write_labs(dir: &Path) -> String {
    let lab = dir.join("labs").join("try-it");
    std::fs::create_dir_all(&lab).unwrap();
    for (name, text) in
        [("lab.yaml", LAB), ("prepare.sh", "#!/bin/sh\n"), ("step1.en.md", "a\n"), ("step1.zh.md", "a\n")]
    {
        std::fs::write(lab.join(name), text).unwrap();
    }
    let table = format!(
        "images: {{debian-12: {{container_disk: \"ttlab.local/debian-12@sha256:{IMAGE}\", digest: \"sha256:{IMAGE}\"}}}}\n"
    );
    std::fs::write(dir.join("images.yaml"), table).unwrap();
    std::fs::write(dir.join("key"), b"a key of at least sixteen bytes").unwrap();
    digest(dir)
}

/// Digest of the lab as it lies on the disk now.
pub(crate) fn digest(dir: &Path) -> String {
    let catalog = lab_catalog::Catalog::load(&dir.join("labs")).unwrap();
    catalog.labs.values().next().unwrap().digest.to_string()
}

fn play_api(bus: &Bus, book: &Arc<Book>, root: &Shutdown) {
    let known = Arc::clone(book);
    let get = move |q: v1::GetSessionRequest| {
        let id: Option<SessionId> = q.session_id.parse().ok();
        let session = id.and_then(|id| known.sessions.lock().unwrap().get(&id).cloned());
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
        known.take(delivery.session, delivery.kind);
        std::future::ready(Disposition::Ack)
    };
    root.spawn(bus.consume(Durable::new(durable::API_FACTS, vec![]), take, root.token.clone()));
}
