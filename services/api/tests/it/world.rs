//! One environment of a test's own: database, broker, stand-in cluster, replicas of the api, people, reporters.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use futures::StreamExt as _;
use lab_api::{Deps, Metrics, Options, Store, View};
use lab_bus::{Bus, Delivery, Disposition, Durable, Envelope, Identity, event, event::Kind};
use lab_catalog::{Catalog, Check, Extend, Lab, Step, Texts};
use lab_domain::{DiskKind, Environment, InstallationId, LabId, MachineName, Runtime, SessionId};
use lab_kit::{Clock, Shutdown, auth, clock, installation::Gate};
use lab_kubevirt::Installation;
use lab_proto::{convert, v1};
use lab_testkit::{Nats, Postgres, wait_for};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::kube::Kube;

pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// How often the view lists in tests.
pub(crate) const LIST_EVERY: Duration = Duration::from_millis(500);

/// A published example (RFC 8410); it guards nothing.
pub(crate) const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
    -----END PRIVATE KEY-----\n";

pub(crate) const ORIGIN: &str = "http://lab.example:8080";

pub(crate) struct World {
    pub(crate) pg: Postgres,
    pub(crate) nats: Nats,
    pub(crate) kube: Kube,
    pub(crate) clock: clock::Manual,
    pub(crate) installation: InstallationId,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) pool: sqlx::PgPool,
    pub(crate) vm_cap: usize,
    pub(crate) web: Option<PathBuf>,
    pub(crate) oidc: Option<lab_api::config::OidcArgs>,
    people: reqwest::Client,
    keys: Keys,
    reporters: tokio::sync::Mutex<HashMap<Identity, Bus>>,
}

pub(crate) struct Replica {
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: Shutdown,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.shutdown.token.cancel();
    }
}

pub(crate) fn dev() -> Environment {
    Environment::new("dev").unwrap()
}

fn texts(en: &str) -> Texts {
    Texts { en: en.into(), zh: en.into() }
}

/// A lab as the catalogue loads it, with another name, other machines and steps.
fn lab(id: &str, runtime: Runtime, machines: &[&str]) -> Lab {
    let base = base();
    let machine = |name: &&str| lab_catalog::Machine {
        name: MachineName::new(*name).unwrap(),
        ..base.machines[0].clone()
    };
    Lab {
        id: LabId::new(id).unwrap(),
        runtime,
        extend: Extend { step: Duration::from_secs(900), max: Duration::from_secs(1800) },
        machines: machines.iter().map(machine).collect(),
        steps: vec![
            Step {
                n: 1,
                title: texts("First"),
                text: texts("Do it."),
                hint: Some(texts("Hint")),
                solution: Some(texts("SECRET SOLUTION")),
                check: Some(Check {
                    machine: MachineName::new(machines[0]).unwrap(),
                    script: "#!/bin/sh\n# SECRET GRADER\nexit 0\n".into(),
                    timeout: Duration::from_secs(1),
                    auto: false,
                }),
                solve: Some("SECRET SOLVE".into()),
            },
            Step {
                n: 2,
                title: texts("Read"),
                text: texts("Only text."),
                hint: None,
                solution: None,
                check: None,
                solve: None,
            },
        ],
        unsupported: (runtime == Runtime::Pod).then(|| "Labs that run in pods are not supported yet.".into()),
        ..base.clone()
    }
}

fn base() -> &'static Lab {
    static BASE: std::sync::OnceLock<Lab> = std::sync::OnceLock::new();
    BASE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let lab = dir.path().join("base");
        std::fs::create_dir(&lab).unwrap();
        for language in ["en", "zh"] {
            std::fs::write(lab.join(format!("s.{language}.md")), "text\n").unwrap();
        }
        let yaml = "title: {en: a, zh: a}\nsummary: {en: a, zh: a}\ndifficulty: beginner\nruntime: vm\nlife: 60m\n\
            extend: {step: 15m, max: 60m}\nidle: 30m\nlimits: {disk: 10m, boot: 150s, prepare: 5m}\n\
            machines: [{name: main, image: debian-12, disk: golden, cpus: 1, memory: 512Mi}]\n\
            steps: [{title: {en: a, zh: a}, text: s}]\n";
        std::fs::write(lab.join("lab.yaml"), yaml).unwrap();
        let mut catalog = Catalog::load(dir.path()).unwrap();
        catalog.labs.pop_first().unwrap_or_else(|| panic!("{:?}", catalog.problems)).1
    })
}

pub(crate) fn catalog() -> Catalog {
    let labs = [
        lab("repair", Runtime::Vm, &["main"]),
        lab("cluster", Runtime::Vm, &["one", "two", "three"]),
        lab("pods", Runtime::Pod, &["main"]),
    ];
    Catalog { labs: labs.into_iter().map(|l| (l.id.clone(), l)).collect(), problems: vec![] }
}

/// One key per identity: the broker lets each do what it may do in production, and nothing more.
struct Keys {
    dir: tempfile::TempDir,
    authorization: String,
}

impl Keys {
    fn new() -> Self {
        use secrecy::ExposeSecret as _;
        let dir = tempfile::tempdir().unwrap();
        let users: Vec<_> = Identity::ALL
            .iter()
            .map(|identity| {
                let (seed, public_key) = lab_bus::identity::new_key();
                std::fs::write(dir.path().join(identity.as_str()), seed.expose_secret()).unwrap();
                lab_bus::identity::User { identity: *identity, public_key }
            })
            .collect();
        let names = lab_proto::subjects::Subjects::new(dev());
        let authorization = lab_bus::identity::authorization(&names, &users);
        Self { dir, authorization }
    }

    fn file(&self, identity: Identity) -> PathBuf {
        self.dir.path().join(identity.as_str())
    }
}

impl World {
    /// A set-up environment without a replica.
    pub(crate) async fn bare() -> Self {
        lab_kit::install_tls();
        // LAB_TEST_LOG=info shows what the replicas log.
        if std::env::vars().any(|(name, _)| name == "LAB_TEST_LOG") {
            let _ = lab_kit::telemetry::init("lab_api=debug,lab_bus=info,warn");
        }
        let keys = Keys::new();
        let (pg, nats, kube) =
            tokio::join!(Postgres::start(), Nats::start_with(&keys.authorization), Kube::start());
        let (pg, nats) = (pg.unwrap(), nats.unwrap());
        let mut args = setup_args(&pg, &nats, &kube, "dev");
        args.nats.nats_nkey_file = Some(keys.file(Identity::Setup));
        let installation = lab_api::setup::run(&args).await.unwrap();
        let now = clock::System.now();
        Self {
            pool: sqlx::postgres::PgPoolOptions::new().max_connections(2).connect(pg.url()).await.unwrap(),
            pg,
            nats,
            kube,
            clock: clock::Manual::new(now),
            installation,
            replicas: vec![],
            vm_cap: 8,
            web: None,
            oidc: None,
            keys,
            reporters: tokio::sync::Mutex::default(),
            people: reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap(),
        }
    }

    /// One replica.
    pub(crate) async fn start() -> Self {
        let mut world = Self::bare().await;
        world.add_replica().await;
        world
    }

    pub(crate) fn now(&self) -> OffsetDateTime {
        self.clock.now()
    }

    pub(crate) fn ours(&self) -> Installation {
        Installation { environment: dev(), id: self.installation }
    }

    pub(crate) async fn bus(&self, identity: Identity) -> Bus {
        self.bus_at(&self.nats.url(), identity).await
    }

    async fn bus_at(&self, url: &str, identity: Identity) -> Bus {
        let config = lab_bus::Config {
            url: url.to_owned(),
            nkey_file: Some(self.keys.file(identity)),
            environment: dev(),
            identity,
            metrics: lab_bus::Metrics::default(),
        };
        Bus::connect(config).await.unwrap()
    }

    pub(crate) async fn add_replica(&mut self) -> SocketAddr {
        let url = self.nats.url();
        self.add_replica_at(&url).await
    }

    pub(crate) async fn add_replica_at(&mut self, nats_url: &str) -> SocketAddr {
        let (address, gate, view) = self.spawn_replica(nats_url).await;
        wait_for("the replica to serve", LIMIT, async || gate.allowed() && view.places().is_ok()).await;
        address
    }

    /// A replica that must not serve; it has looked at the cluster.
    pub(crate) async fn add_closed_replica(&mut self) {
        let url = self.nats.url();
        let (_, gate, view) = self.spawn_replica(&url).await;
        wait_for("a look at the cluster", LIMIT, async || view.places().is_ok()).await;
        assert!(!gate.allowed());
    }

    async fn spawn_replica(&mut self, nats_url: &str) -> (SocketAddr, Gate, View) {
        let shutdown = Shutdown::new();
        let deps = Deps {
            store: Store::connect(self.pg.url()).await.unwrap(),
            bus: self.bus_at(nats_url, Identity::Api).await,
            clock: Arc::new(self.clock.clone()),
            catalog: catalog(),
            cluster: View::every(LIST_EVERY),
            gate: Gate::closed(),
            metrics: Metrics::default(),
        };
        let cluster =
            lab_kit::args::Cluster { kubeconfig: Some(self.kube.kubeconfig()), namespace: "ttlab".into() };
        let client = lab_kit::kube::client(&cluster).await.unwrap();
        let condition = lab_kit::admin::Health::default().condition("installation");
        lab_api::keep(&deps, &client, "ttlab", &self.ours(), condition, &shutdown);
        let (gate, view) = (deps.gate.clone(), deps.cluster.clone());
        let options = Options {
            environment: dev(),
            installation: self.installation,
            listen: ([127, 0, 0, 1], 0).into(),
            public_url: ORIGIN.into(),
            private_key: KEY.to_owned().into(),
            dev_login: true,
            web: self.web.clone(),
            vm_cap: self.vm_cap,
            time_factor: 1.0,
            oidc: self.oidc.clone(),
        };
        let address = lab_api::start(options, deps, &shutdown).await.unwrap();
        self.replicas.push(Replica { address, shutdown });
        (address, gate, view)
    }

    pub(crate) fn token(&self, user: &str, role: auth::Role) -> String {
        let issuer = auth::issuer(&dev(), self.installation);
        let signer = auth::Signer::new(KEY.as_bytes(), issuer).unwrap();
        signer.sign(user, &[role], self.clock.now()).unwrap()
    }

    pub(crate) fn cookie(&self, token: &str) -> String {
        format!("{}={token}", auth::cookie_name(&dev(), self.installation))
    }

    pub(crate) fn url(&self, replica: usize, path: &str) -> String {
        format!("http://{}{path}", self.replicas[replica].address)
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.people.request(method, self.url(0, path))
    }

    /// A call of a student with a bearer token.
    pub(crate) async fn call(
        &self,
        user: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        self.call_as(user, auth::Role::Student, 0, method, path, body).await
    }

    pub(crate) async fn call_as(
        &self,
        user: &str,
        role: auth::Role,
        replica: usize,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let mut request =
            self.people.request(method, self.url(replica, path)).bearer_auth(self.token(user, role));
        if let Some(body) = body {
            request = request.json(&body);
        }
        answer(request.send().await.unwrap()).await
    }

    pub(crate) async fn get(&self, user: &str, path: &str) -> (StatusCode, Value) {
        self.call(user, Method::GET, path, None).await
    }

    /// Starts a lab; the session.
    pub(crate) async fn start_lab(&self, user: &str, lab: &str) -> Value {
        let (status, session) =
            self.call(user, Method::POST, "/api/sessions", Some(json!({"lab": lab}))).await;
        assert_eq!(status, StatusCode::CREATED, "{session}");
        session
    }

    pub(crate) async fn until(&self, user: &str, id: &str, state: &str) -> Value {
        let mut last = Value::Null;
        let started = std::time::Instant::now();
        while started.elapsed() < LIMIT {
            last = self.get(user, &format!("/api/sessions/{id}")).await.1;
            if last["state"] == state {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("waited in vain for {state}: {last:#}");
    }

    /// Waits until the timeline has so many entries: `ready` implies the facts before it, which may come later.
    pub(crate) async fn until_told(&self, user: &str, id: &str, entries: usize) -> Value {
        let mut session = Value::Null;
        wait_for("a full timeline", LIMIT, async || {
            session = self.get(user, &format!("/api/sessions/{id}")).await.1;
            let has_disks =
                session["machines"].as_array().is_some_and(|m| m.iter().all(|m| m["disk"].is_string()));
            // A higher fact implies the entries of the lower ones; the disk comes with its own fact only.
            has_disks && session["timeline"].as_array().is_some_and(|t| t.len() == entries)
        })
        .await;
        session
    }

    /// Publishes facts as whoever reports them.
    pub(crate) async fn report(&self, session: &str, kinds: impl IntoIterator<Item = Kind>) {
        use lab_proto::subjects::{kind_name, publishes};
        let envelope = Envelope::bare(session.parse().unwrap());
        let mut buses = self.reporters.lock().await;
        for kind in kinds {
            let name = kind_name(&kind);
            let reporters = [
                (Identity::Provisioner, publishes::PROVISIONER),
                (Identity::Readiness, publishes::READINESS),
                (Identity::Reaper, publishes::REAPER),
                (Identity::ConsoleGw, publishes::CONSOLE_GW),
            ];
            let (identity, _) = reporters.into_iter().find(|(_, kinds)| kinds.contains(&name)).unwrap();
            if let std::collections::hash_map::Entry::Vacant(entry) = buses.entry(identity) {
                entry.insert(self.bus(identity).await);
            }
            let bus = &buses[&identity];
            bus.publish(&event::new(&dev(), &envelope, kind, self.clock.now())).await.unwrap();
        }
    }

    /// Makes a session ready by the facts of a good start.
    pub(crate) async fn make_ready(&self, user: &str, id: &str) -> Value {
        self.report(id, good_start("main", self.clock.now())).await;
        self.until(user, id, "ready").await
    }

    /// Collects every event of the stream.
    pub(crate) async fn events(&self) -> Vec<(u64, Kind, v1::Event)> {
        let bus = self.bus(Identity::Api).await;
        let last = bus.last_sequence().await.unwrap();
        let mut tail = bus.tail(0).await.unwrap();
        let mut all = Vec::new();
        while all.last().is_none_or(|(seq, _, _)| *seq < last) && last > 0 {
            all.push(tail.next().await.unwrap());
        }
        all
    }

    pub(crate) async fn kinds_of(&self, session: &str) -> Vec<&'static str> {
        let events = self.events().await.into_iter().filter(|(_, _, e)| e.session_id == session);
        events.map(|(_, kind, _)| lab_proto::subjects::kind_name(&kind)).collect()
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    /// Everything that was decided has been published.
    pub(crate) async fn outbox_is_empty(&self) {
        wait_for("an empty outbox", LIMIT, async || self.count("select count(*) from outbox").await == 0)
            .await;
    }

    pub(crate) fn labels(&self, session: &str) -> BTreeMap<String, String> {
        let session: SessionId = session.parse().unwrap();
        let machine = MachineName::new("main").unwrap();
        self.ours().labels(session, &LabId::new("repair").unwrap(), Some(&machine))
    }
}

pub(crate) fn setup_args(
    pg: &Postgres,
    nats: &Nats,
    kube: &Kube,
    environment: &str,
) -> lab_api::config::Setup {
    let file = kube.path().join(format!("database-url-{}", uuid::Uuid::now_v7()));
    std::fs::write(&file, pg.url()).unwrap();
    lab_api::config::Setup {
        environment: Environment::new(environment).unwrap(),
        nats: lab_kit::args::Nats { nats_url: nats.url(), nats_nkey_file: None },
        cluster: lab_kit::args::Cluster { kubeconfig: Some(kube.kubeconfig()), namespace: "ttlab".into() },
        database_url_file: file,
        nats_replicas: 1,
        log: "info".into(),
    }
}

pub(crate) async fn answer(response: reqwest::Response) -> (StatusCode, Value) {
    let status = response.status();
    let is_problem = response.headers().get("content-type").is_some_and(|t| t == "application/problem+json");
    let text = response.text().await.unwrap();
    let body: Value = if text.is_empty() {
        Value::Null
    } else {
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    };
    if status.is_client_error() || status.is_server_error() {
        assert!(is_problem, "{status} is no problem document: {body}");
        let code = body["code"].as_str().unwrap();
        assert_eq!(body["type"], format!("urn:ttlab:problem:{code}"));
        assert_eq!(body["status"], status.as_u16());
        for part in ["title", "detail", "next"] {
            assert!(body[part].as_str().is_some_and(|t| !t.is_empty()), "{part} of {body}");
        }
    }
    (status, body)
}

pub(crate) fn code(answer: &(StatusCode, Value)) -> (u16, &str) {
    (answer.0.as_u16(), answer.1["code"].as_str().unwrap_or("-"))
}

pub(crate) fn good_start(machine: &str, at: OffsetDateTime) -> Vec<Kind> {
    let (machine, vmi_uid) = (machine.to_owned(), format!("uid-{machine}"));
    let at = Some(convert::timestamp(at));
    vec![
        Kind::ProvisioningStarted(v1::ProvisioningStarted { machine: machine.clone() }),
        Kind::MachineProvisioned(v1::MachineProvisioned {
            machine: machine.clone(),
            disk: convert::disk_kind_number(DiskKind::Golden),
            disk_reason: "golden".into(),
        }),
        Kind::MachineScheduled(v1::MachineScheduled {
            machine: machine.clone(),
            vmi_uid: vmi_uid.clone(),
            at,
        }),
        Kind::MachineRunning(v1::MachineRunning { machine: machine.clone(), vmi_uid: vmi_uid.clone(), at }),
        Kind::AgentReached(v1::AgentReached { machine: machine.clone(), vmi_uid: vmi_uid.clone(), at }),
        Kind::MachineReady(v1::MachineReady { machine, vmi_uid, at }),
    ]
}

/// A reaper that reaps whatever ends, as a durable consumer.
pub(crate) async fn reap_all(world: &World, shutdown: &Shutdown) {
    let bus = world.bus(Identity::Reaper).await;
    let filters = vec![bus.subjects().every("session-ending")];
    let (publisher, clock) = (bus.clone(), world.clock.clone());
    let handler = move |delivery: Delivery| {
        let (bus, clock) = (publisher.clone(), clock.clone());
        async move {
            let envelope = Envelope::caused_by(&delivery.event).unwrap();
            let kind =
                Kind::SessionReaped(v1::SessionReaped { ending_version: delivery.event.session_version });
            bus.publish(&event::new(&dev(), &envelope, kind, clock.now())).await.unwrap();
            Disposition::Ack
        }
    };
    shutdown.spawn(bus.consume(Durable::new("reaper-endings", filters), handler, shutdown.token.clone()));
}

/// An open event stream.
pub(crate) struct Sse {
    body: futures::stream::BoxStream<'static, reqwest::Result<axum::body::Bytes>>,
    text: String,
}

impl Sse {
    pub(crate) async fn open(request: reqwest::RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.bytes_stream().boxed(), text: String::new() }
    }

    /// The next event: its id and its data; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let block: String = self.text.drain(..end + 2).collect();
                let field = |name: &str| {
                    block.lines().find_map(|l| l.strip_prefix(name)).map(|v| v.trim().to_owned())
                };
                if let Some(data) = field("data:") {
                    return Some((field("id:").unwrap(), serde_json::from_str(&data).unwrap()));
                }
                continue;
            }
            let chunk = tokio::time::timeout(LIMIT, self.body.next()).await.expect("the stream is silent")?;
            self.text.push_str(std::str::from_utf8(&chunk.ok()?).unwrap());
        }
    }
}
