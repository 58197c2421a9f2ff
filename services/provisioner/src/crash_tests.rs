//! Runs against a stand-in for the outside that fails on demand: crashes after every effect, crossings, refusals.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use lab_bus::{Envelope, event::Kind};
use lab_domain::{
    DiskKind, InstallationId, SessionId, State,
    disk::{Claim, Golden},
    token::TokenKey,
};
use lab_kubevirt::{Installation, VirtualMachine, manifest};
use lab_proto::{convert, subjects::kind_name, v1};
use time::{OffsetDateTime, macros::datetime};

use crate::{
    apply::{PERMIT, Provisioner},
    decide::Then,
    error::Error,
    labs::Labs,
    metrics::Metrics,
    outside::{Outside, Seen},
};

const HEX: &str = "abababababababababababababababababababababababababababababababab";

/// The outside, in memory.
#[derive(Debug, Clone)]
struct Fake {
    state: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    session: v1::Session,
    secret: Option<Secret>,
    vm: Option<VirtualMachine>,
    golden: Golden,
    log: Vec<&'static str>,
    facts: Vec<Kind>,
    uids: u32,
    /// Effects until every further one is lost with the process.
    fuse: Option<usize>,
    /// The next VM create is refused with this.
    refusal: Option<(u16, &'static str)>,
    /// The api does not answer.
    is_deaf: bool,
    /// The session ends once the Secret is there.
    ends_after_secret: bool,
    look_takes: Duration,
    asked: usize,
}

fn status(operation: &'static str, code: u16, message: &str) -> Error {
    let status = kube::core::Status { code, message: message.to_owned(), ..Default::default() };
    Error::Cluster { operation, name: String::new(), source: Box::new(kube::Error::Api(Box::new(status))) }
}

impl Fake {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap()
    }

    /// Logs an effect that happened; an error if the process dies right after it.
    fn effect(inner: &mut Inner, name: &'static str) -> Result<(), Error> {
        inner.log.push(name);
        match &mut inner.fuse {
            Some(0) => Err(Error::TimedOut { operation: name, name: String::new() }),
            Some(left) => {
                *left -= 1;
                if *left == 0 {
                    return Err(Error::TimedOut { operation: name, name: String::new() });
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn count(&self, name: &str) -> usize {
        self.lock().log.iter().filter(|n| **n == name).count()
    }

    fn fact_names(&self) -> Vec<&'static str> {
        self.lock().facts.iter().map(kind_name).collect()
    }

    /// What the api does with everything that was published.
    fn project(&self) {
        let mut inner = self.lock();
        let mut names: Vec<_> = inner.facts.iter().map(kind_name).collect();
        names.dedup();
        inner.session.machines[0].facts = names
            .into_iter()
            .map(|kind| v1::ProjectedFact { kind: kind.to_owned(), at: Some(convert::timestamp(NOW)) })
            .collect();
    }

    fn end(&self) {
        self.lock().session.state = convert::state_number(State::Ending);
    }
}

const NOW: OffsetDateTime = datetime!(2026-12-01 12:00 UTC);

impl Outside for Fake {
    async fn ask(&self, session: SessionId) -> Result<Option<v1::Session>, Error> {
        let mut inner = self.lock();
        inner.asked += 1;
        if inner.is_deaf {
            let source = lab_bus::Error::Refused { question: "get-session", code: "database".to_owned() };
            return Err(Error::Ask { session, source });
        }
        Ok(Some(inner.session.clone()))
    }

    async fn list(&self, _after: &str) -> Result<v1::ListSessionsResponse, Error> {
        let sessions = vec![self.lock().session.clone()];
        Ok(v1::ListSessionsResponse { sessions, next: String::new() })
    }

    async fn see(&self, _name: &str, claim: Option<&str>) -> Result<Seen, Error> {
        let pause = self.lock().look_takes;
        tokio::time::sleep(pause).await;
        let inner = self.lock();
        Ok(Seen {
            secret: inner.secret.clone(),
            vm: inner.vm.clone(),
            golden: claim.map(|_| inner.golden.clone()),
        })
    }

    async fn create_secret(&self, secret: &Secret) -> Result<(), Error> {
        // Lets a second run in between look and create.
        tokio::task::yield_now().await;
        let mut inner = self.lock();
        if inner.secret.is_some() {
            return Err(status("create Secret", 409, "already exists"));
        }
        inner.uids += 1;
        let mut secret = secret.clone();
        secret.metadata.uid = Some(format!("secret-{}", inner.uids));
        inner.secret = Some(secret);
        if inner.ends_after_secret {
            inner.session.state = convert::state_number(State::Ending);
        }
        Self::effect(&mut inner, "secret")
    }

    async fn create_vm(&self, vm: &VirtualMachine) -> Result<(), Error> {
        tokio::task::yield_now().await;
        let mut inner = self.lock();
        if let Some((code, message)) = inner.refusal.take() {
            return Err(status("create VirtualMachine", code, message));
        }
        if inner.vm.is_some() {
            return Err(status("create VirtualMachine", 409, "already exists"));
        }
        inner.uids += 1;
        let mut vm = vm.clone();
        vm.metadata.uid = Some(format!("vm-{}", inner.uids));
        inner.vm = Some(vm);
        Self::effect(&mut inner, "vm")
    }

    async fn set_owner(&self, name: &str, vm_uid: &str, secret_uid: &str) -> Result<(), Error> {
        let mut inner = self.lock();
        let secret = inner.secret.as_mut().ok_or_else(|| status("own Secret", 404, "not found"))?;
        assert_eq!(secret.metadata.uid.as_deref(), Some(secret_uid));
        let patch = manifest::owner_patch(name, vm_uid, secret_uid);
        let owners = patch["metadata"]["ownerReferences"].clone();
        secret.metadata.owner_references = Some(serde_json::from_value(owners).unwrap());
        Self::effect(&mut inner, "owner")
    }

    async fn publish(&self, _envelope: &Envelope, kind: Kind) -> Result<(), Error> {
        let mut inner = self.lock();
        inner.facts.push(kind);
        Self::effect(&mut inner, "fact")
    }

    fn now(&self) -> OffsetDateTime {
        NOW
    }
}

struct Bench {
    fake: Fake,
    provisioner: Provisioner<Fake>,
    installation: Installation,
    session: SessionId,
    _directory: tempfile::TempDir,
}

impl Bench {
    async fn run(&self) -> Result<Then, Error> {
        self.provisioner.session(&self.installation, self.session, None).await
    }

    fn reported_disk(&self) -> Option<(DiskKind, String)> {
        self.fake.lock().facts.iter().find_map(|fact| {
            let Kind::MachineProvisioned(f) = fact else { return None };
            Some((convert::disk_kind(f.disk).unwrap(), f.disk_reason.clone()))
        })
    }

    fn failure(&self) -> Option<String> {
        self.fake.lock().facts.iter().find_map(|fact| {
            let Kind::ProvisionFailed(f) = fact else { return None };
            Some(f.cause.clone())
        })
    }
}

/// One lab on a golden disk that is usable, one session that asks for it.
fn bench() -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let labs = directory.path().join("labs");
    let lab = labs.join("try-it");
    std::fs::create_dir_all(&lab).unwrap();
    let yaml = "title: {en: T, zh: T}\nsummary: {en: S, zh: S}\ndifficulty: beginner\nruntime: vm\nlife: 60m\n\
        extend: {step: 15m, max: 60m}\nidle: 30m\nlimits: {disk: 10m, boot: 150s, prepare: 5m}\nmachines:\n  \
        - {name: main, image: debian-12, disk: golden, cpus: 1, memory: 512Mi, prepare: prepare.sh}\nsteps:\n  \
        - {title: {en: T, zh: T}, text: step1}\n";
    for (name, text) in
        [("lab.yaml", yaml), ("prepare.sh", "#!/bin/sh\n"), ("step1.en.md", "a\n"), ("step1.zh.md", "a\n")]
    {
        std::fs::write(lab.join(name), text).unwrap();
    }
    let images = directory.path().join("images.yaml");
    let table = format!(
        "images: {{debian-12: {{container_disk: \"ttlab.local/debian-12@sha256:{HEX}\", digest: \"sha256:{HEX}\"}}}}\n"
    );
    std::fs::write(&images, table).unwrap();
    let catalog = lab_catalog::Catalog::load(&labs).unwrap();
    assert_eq!(catalog.problems, []);
    let digest = catalog.labs.values().next().unwrap().digest.clone();

    let session = SessionId::generate();
    let mut answer = crate::known::tests::answer(session, State::Requested, &[]);
    answer.lab = "try-it".to_owned();
    answer.lab_digest = digest.to_string();
    let claim =
        Claim { image: Some(HEX.parse().unwrap()), filled: true, many_nodes: true, being_deleted: false };
    let inner = Inner {
        session: answer,
        secret: None,
        vm: None,
        golden: Golden::Found(claim),
        log: vec![],
        facts: vec![],
        uids: 0,
        fuse: None,
        refusal: None,
        is_deaf: false,
        ends_after_secret: false,
        look_takes: Duration::ZERO,
        asked: 0,
    };
    let fake = Fake { state: Arc::new(Mutex::new(inner)) };
    let provisioner = Provisioner {
        outside: fake.clone(),
        labs: Arc::new(Labs::load(&labs, lab_catalog::Images::load(&images).unwrap()).unwrap()),
        key: TokenKey::new(b"0123456789abcdef".to_vec()).unwrap(),
        resolvers: vec!["1.1.1.1".parse().unwrap()],
        metrics: Metrics::default(),
    };
    let id = InstallationId(uuid::Uuid::from_u128(7));
    let installation = Installation { environment: "dev".parse().unwrap(), id };
    Bench { fake, provisioner, installation, session, _directory: directory }
}

#[tokio::test]
async fn a_machine_is_made_in_order_and_reported_after_a_look() {
    let bench = bench();
    assert_eq!(bench.run().await.unwrap(), Then::Done);
    assert_eq!(bench.fake.lock().log, ["fact", "secret", "vm", "owner", "fact"]);
    assert_eq!(bench.fake.fact_names(), ["provisioning-started", "machine-provisioned"]);
    assert_eq!(bench.reported_disk(), Some((DiskKind::Golden, "asked".to_owned())));
    // One question for the whole, whose answer is the Secret's permit, and one more for the VM.
    assert_eq!(bench.fake.lock().asked, 2);
}

#[tokio::test]
async fn a_second_run_creates_nothing_and_repeats_facts_until_they_are_projected() {
    let bench = bench();
    bench.run().await.unwrap();
    bench.run().await.unwrap();
    assert_eq!((bench.fake.count("secret"), bench.fake.count("vm"), bench.fake.count("owner")), (1, 1, 1));
    assert_eq!(bench.fake.fact_names().iter().filter(|n| **n == "machine-provisioned").count(), 2);
    bench.fake.project();
    let before = bench.fake.lock().log.len();
    assert_eq!(bench.run().await.unwrap(), Then::Done);
    assert_eq!(bench.fake.lock().log.len(), before);
}

#[tokio::test]
async fn a_crash_after_any_effect_converges() {
    for effects in 1..=5 {
        let bench = bench();
        bench.fake.lock().fuse = Some(effects);
        let first = bench.run().await;
        assert!(first.is_err(), "crash after {effects}: {first:?}");
        assert_eq!(bench.fake.lock().log.len(), effects);
        bench.fake.lock().fuse = None;
        assert_eq!(bench.run().await.unwrap(), Then::Done, "crash after {effects}");
        assert_eq!((bench.fake.count("secret"), bench.fake.count("vm")), (1, 1), "crash after {effects}");
        let inner = bench.fake.lock();
        let owners = inner.secret.as_ref().unwrap().metadata.owner_references.as_ref().unwrap();
        assert_eq!(Some(&owners[0].uid), inner.vm.as_ref().unwrap().metadata.uid.as_ref());
        assert!(inner.facts.iter().any(|f| kind_name(f) == "machine-provisioned"));
    }
}

#[tokio::test]
async fn two_replicas_at_once_make_one_machine() {
    let bench = bench();
    let (one, two) = tokio::join!(bench.run(), bench.run());
    assert_eq!((one.unwrap(), two.unwrap()), (Then::Done, Then::Done));
    assert_eq!((bench.fake.count("secret"), bench.fake.count("vm")), (1, 1));
    assert_eq!(bench.failure(), None);
}

#[tokio::test]
async fn an_end_between_the_creates_stops_the_second() {
    let bench = bench();
    bench.fake.lock().ends_after_secret = true;
    assert_eq!(bench.run().await.unwrap(), Then::Done);
    assert_eq!((bench.fake.count("secret"), bench.fake.count("vm")), (1, 0));
    assert_eq!(bench.fake.fact_names(), ["provisioning-started"]);
}

#[tokio::test]
async fn a_session_that_is_over_creates_nothing() {
    let bench = bench();
    bench.fake.end();
    assert_eq!(bench.run().await.unwrap(), Then::Done);
    assert_eq!(bench.fake.lock().log, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_old_is_no_permit() {
    let bench = bench();
    bench.fake.lock().look_takes = PERMIT + Duration::from_secs(1);
    bench.run().await.unwrap();
    // The first answer was too old for the Secret's create: a question for each create.
    assert_eq!(bench.fake.lock().asked, 3);
}

#[tokio::test]
async fn without_an_answer_nothing_is_created() {
    let bench = bench();
    bench.fake.lock().is_deaf = true;
    assert!(bench.run().await.is_err());
    assert_eq!(bench.fake.lock().log, [""; 0]);
}

#[tokio::test]
async fn once_it_was_projected_nothing_is_created_again() {
    let bench = bench();
    bench.run().await.unwrap();
    bench.fake.project();
    bench.fake.lock().vm = None;
    assert_eq!(bench.run().await.unwrap(), Then::Done);
    assert_eq!(bench.fake.count("vm"), 1);
}

#[tokio::test]
async fn a_full_quota_passes_and_a_refusal_does_not() {
    let quota = bench();
    quota.fake.lock().refusal = Some((403, "is forbidden: exceeded quota: vms"));
    assert!(quota.run().await.is_err());
    assert_eq!(quota.failure(), None);
    assert_eq!(quota.run().await.unwrap(), Then::Done);
    assert_eq!(quota.failure(), None);

    for (code, cause) in [(422, "refused"), (403, "forbidden")] {
        let refused = bench();
        refused.fake.lock().refusal = Some((code, "denied the request"));
        assert_eq!(refused.run().await.unwrap(), Then::Done);
        assert_eq!(refused.failure().as_deref(), Some(cause));
    }
}

#[tokio::test]
async fn a_golden_disk_that_goes_after_the_create_is_a_failure_that_says_so() {
    let bench = bench();
    bench.fake.lock().fuse = Some(3);
    assert!(bench.run().await.is_err(), "the VM is there, nothing is reported");
    bench.fake.lock().fuse = None;
    bench.fake.lock().golden = Golden::Missing;
    bench.run().await.unwrap();
    assert_eq!(bench.failure().as_deref(), Some("golden_vanished"));
    assert_eq!(bench.reported_disk(), None);
}

#[tokio::test]
async fn a_lab_that_changed_is_reported_after_its_minute() {
    let bench = bench();
    bench.fake.lock().session.lab_digest = "ee".repeat(32);
    assert!(matches!(bench.run().await.unwrap(), Then::Wait(_)));
    let started = convert::timestamp(NOW - Duration::from_secs(61));
    bench.fake.lock().session.machines[0].facts =
        vec![v1::ProjectedFact { kind: "provisioning-started".to_owned(), at: Some(started) }];
    assert_eq!(bench.run().await.unwrap(), Then::Done);
    assert_eq!(bench.failure().as_deref(), Some("lab_changed"));
}
