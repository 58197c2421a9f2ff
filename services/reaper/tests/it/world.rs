//! A broker that knows identities, a cluster that knows roles, a stand-in for the api, and the reaper between them.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use clap::Parser as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, PostParams},
};
use lab_bus::{
    Bus, Config, Delivery, Disposition, Durable, Envelope, Identity, Metrics,
    event::{self, Kind},
    identity::{self, User, durable},
    setup,
};
use lab_domain::{Digest, Environment, InstallationId, SessionId, Verdict, disk::DiskReason};
use lab_kit::Shutdown;
use lab_kubevirt::{
    Installation, VirtualMachine, kinds,
    manifest::{Machine, RootDisk, Subject, owner_patch},
};
use lab_proto::{
    convert,
    subjects::{API_QUEUE, CLASSIFY_OBJECT, GET_SESSION, LIST_SESSIONS, Subjects, kind_name},
    v1,
};
use lab_reaper::config::Args;
use lab_testkit::{Cluster, NAMESPACE, Nats, SimOptions, wait_for};
use secrecy::ExposeSecret as _;
use serde_json::json;
use time::OffsetDateTime;

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn dev() -> Environment {
    Environment::new("dev").unwrap()
}

pub(crate) fn installation() -> Installation {
    Installation { environment: dev(), id: InstallationId(uuid::Uuid::from_u128(1)) }
}

#[expect(clippy::disallowed_methods, reason = "a test against real servers has their time")]
pub(crate) fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// What the api would know.
#[derive(Default)]
pub(crate) struct Book {
    sessions: Mutex<HashMap<SessionId, v1::Session>>,
    facts: Mutex<Vec<(SessionId, Kind)>>,
    verdict: Mutex<Option<Verdict>>,
}

impl Book {
    pub(crate) fn change(&self, session: SessionId, change: impl FnOnce(&mut v1::Session)) {
        change(self.sessions.lock().unwrap().get_mut(&session).unwrap());
    }

    pub(crate) fn state(&self, session: SessionId) -> v1::SessionState {
        self.sessions.lock().unwrap()[&session].state()
    }

    /// The answer to every question about an object; none: no answer.
    pub(crate) fn set_verdict(&self, verdict: Option<Verdict>) {
        *self.verdict.lock().unwrap() = verdict;
    }

    pub(crate) fn facts(&self, session: SessionId, name: &str) -> Vec<Kind> {
        let facts = self.facts.lock().unwrap();
        let named = facts.iter().filter(|(id, kind)| *id == session && kind_name(kind) == name);
        named.map(|(_, kind)| kind.clone()).collect()
    }

    fn take(&self, id: SessionId, kind: Kind) {
        let is_reaped = matches!(kind, Kind::SessionReaped(_));
        self.facts.lock().unwrap().push((id, kind));
        if let Some(session) = self.sessions.lock().unwrap().get_mut(&id)
            && is_reaped
        {
            session.state = v1::SessionState::Ended as i32;
        }
    }
}

/// Everything around one reaper.
pub(crate) struct World {
    pub(crate) bus: Bus,
    pub(crate) book: Arc<Book>,
    pub(crate) cluster: Cluster,
    admin: Client,
    dir: tempfile::TempDir,
    nats: Nats,
    root: Shutdown,
}

impl World {
    pub(crate) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let users: Vec<User> =
            [Identity::Setup, Identity::Api, Identity::Reaper].map(|who| user(dir.path(), who)).into();
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
        Self { bus, book, cluster, admin, dir, nats, root }
    }

    /// Arguments of a reaper between broker and cluster.
    pub(crate) fn arguments(&self, more: &[&str]) -> Vec<String> {
        let mut args = vec![
            format!("--nats-url={}", self.nats.url()),
            format!("--nats-nkey-file={}", seed(self.dir.path(), Identity::Reaper).display()),
            format!("--kubeconfig={}", self.cluster.kubeconfig("ttlab-reaper").display()),
        ];
        args.extend(more.iter().map(|&arg| arg.to_owned()));
        args
    }

    /// Starts a reaper.
    pub(crate) fn reaper(&self, more: &[&str]) -> Shutdown {
        let args = std::iter::once("lab-reaper".to_owned()).chain(self.arguments(more));
        let args = Args::try_parse_from(args).unwrap();
        let shutdown = Shutdown::new();
        let running = shutdown.clone();
        self.root.spawn(async move { lab_reaper::run(args, running).await.unwrap() });
        shutdown
    }

    /// A session that has been ready for long, known to the api, with its machine in the cluster.
    pub(crate) async fn session(&self) -> SessionId {
        let session = SessionId::generate();
        let long_ago = convert::timestamp(now() - Duration::from_secs(600));
        let fact = v1::ProjectedFact { kind: "machine-provisioned".to_owned(), at: Some(long_ago) };
        let machine = v1::Machine { name: "main".to_owned(), facts: vec![fact], ..Default::default() };
        let known = v1::Session {
            session_id: session.to_string(),
            state: v1::SessionState::Ready as i32,
            version: 4,
            lab: "try-it".to_owned(),
            machines: vec![machine],
            ..Default::default()
        };
        self.book.sessions.lock().unwrap().insert(session, known);
        self.create(session, &installation()).await;
        session
    }

    /// Makes the objects of one machine as the provisioner does.
    pub(crate) async fn create(&self, session: SessionId, whose: &Installation) {
        let subject = Subject {
            installation: whose.clone(),
            session,
            machine: "main".parse().unwrap(),
            lab: "try-it".parse().unwrap(),
        };
        let image = Digest::new("ab".repeat(32)).unwrap();
        let secret = subject.secret("0badcafe", "#cloud-config\n{}\n", None);
        let name = subject.object_name();
        let machine = Machine {
            subject,
            lab_digest: image.clone(),
            hostname: "main".to_owned(),
            cpus: 1,
            memory: "128Mi".to_owned(),
            disk: RootDisk::Container { image: format!("ttlab.local/debian-12@sha256:{image}") },
            disk_reason: DiskReason::Asked,
            token_key: "0badcafe".to_owned(),
            resolvers: vec!["1.1.1.1".parse().unwrap()],
            session_network: None,
            image,
        };
        let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(self.admin.clone(), NAMESPACE);
        let secret = secrets.create(&PostParams::default(), &secret).await.unwrap();
        let vm = self.vms().create(&PostParams::default(), &machine.virtual_machine(false)).await.unwrap();
        let patch = owner_patch(&name, &vm.metadata.uid.unwrap(), &secret.metadata.uid.unwrap());
        secrets.patch(&name, &Default::default(), &kube::api::Patch::Merge(patch)).await.unwrap();
        wait_for("the machine to run", LIMIT, async || {
            self.vms().get(&name).await.unwrap().printable_status() == Some("Running")
        })
        .await;
    }

    /// The api decides that it ends.
    pub(crate) async fn end(&self, session: SessionId, again: bool) {
        let version = if again { 7 } else { 5 };
        if !again {
            self.book.change(session, |known| {
                known.state = v1::SessionState::Ending as i32;
                known.ending_at = Some(convert::timestamp(now()));
                known.ending_version = version;
            });
        }
        let ending = v1::SessionEnding { reason: v1::EndReason::User as i32, cause: String::new(), again };
        let envelope = Envelope { version, ..Envelope::bare(session) };
        let event = event::new(&dev(), &envelope, Kind::SessionEnding(ending), now());
        self.bus.publish(&event).await.unwrap();
    }

    pub(crate) fn vms(&self) -> Api<VirtualMachine> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    /// Everything that carries an installation's labels, as kind and name.
    pub(crate) async fn objects(&self, whose: &Installation) -> Vec<String> {
        let mut all = Vec::new();
        for kind in kinds::Kind::ALL {
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.admin.clone(), NAMESPACE, &kind.resource());
            let params = ListParams::default().labels(&whose.selector());
            // What the cluster does not serve has no objects.
            if let Ok(list) = api.list_metadata(&params).await {
                let name = |o: &kube::core::PartialObjectMeta<_>| o.metadata.name.clone().unwrap();
                all.extend(list.items.iter().map(|o| format!("{} {}", kind.as_str(), name(o))));
            }
        }
        all
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
        let open = |s: &&v1::Session| s.state() != v1::SessionState::Ended;
        let sessions = known.sessions.lock().unwrap().values().filter(open).cloned().collect();
        std::future::ready(Ok(v1::ListSessionsResponse { sessions, next: String::new() }))
    };
    root.spawn(bus.answer(LIST_SESSIONS, API_QUEUE, list, root.token.clone()));
    let known = Arc::clone(book);
    let classify = move |_: v1::ClassifyObjectRequest| {
        let verdict = *known.verdict.lock().unwrap();
        let answer = verdict.map(|v| v1::ClassifyObjectResponse { verdict: convert::verdict_number(v) });
        std::future::ready(answer.ok_or(lab_bus::Refusal("cluster_unknown")))
    };
    root.spawn(bus.answer(CLASSIFY_OBJECT, API_QUEUE, classify, root.token.clone()));
    let known = Arc::clone(book);
    let take = move |delivery: Delivery| {
        known.take(delivery.session, delivery.kind);
        std::future::ready(Disposition::Ack)
    };
    root.spawn(bus.consume(Durable::new(durable::API_FACTS, vec![]), take, root.token.clone()));
}
