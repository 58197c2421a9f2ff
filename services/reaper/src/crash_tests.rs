//! The reaper against a stand-in for the outside: crashes, crossings, silence, refusals.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use lab_bus::{Delivery, Disposition, Envelope, Timeout, event::Kind as Fact};
use lab_domain::{EventId, InstallationId, SessionId, State, Verdict};
use lab_kit::installation::Gate;
use lab_kubevirt::{Installation, kinds::Kind};
use lab_proto::{convert, subjects::kind_name, v1};
use time::{OffsetDateTime, macros::datetime};
use tokio::time::Instant;

use crate::{
    Reaper,
    decide::{Object, ending::CROSSING, tests::object},
    error::Error,
    metrics::Metrics,
    outside::{Outside, Snapshot},
};

const NOW: OffsetDateTime = datetime!(2026-12-01 12:00 UTC);
const GRACE: Duration = Duration::from_secs(120);

#[derive(Debug, Clone)]
struct Fake(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    sessions: HashMap<SessionId, v1::Session>,
    objects: Vec<Object>,
    facts: Vec<Fact>,
    deletes: Vec<String>,
    verdicts: HashMap<String, Verdict>,
    /// The api does not answer.
    is_deaf: bool,
    /// Not every list is allowed.
    is_blind: bool,
    /// Effects until every further one fails.
    fuse: Option<usize>,
    looks: usize,
}

impl Fake {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// What was deleted goes, and what it had made goes with it.
    fn settle(&self) {
        let mut inner = self.lock();
        let gone: Vec<_> =
            inner.objects.iter().filter(|o| o.is_leaving).map(|o| (o.kind, o.identity.clone())).collect();
        inner.objects.retain(|o| {
            let with_vm = matches!(o.kind, Kind::VirtualMachineInstance | Kind::Pod);
            let lost_its_vm = with_vm && gone.contains(&(Kind::VirtualMachine, o.identity.clone()));
            !o.is_leaving && !lost_its_vm
        });
    }

    fn facts(&self) -> Vec<&'static str> {
        self.lock().facts.iter().map(kind_name).collect()
    }

    fn deletes(&self) -> usize {
        self.lock().deletes.len()
    }

    fn looks(&self) -> usize {
        self.lock().looks
    }

    fn set_state(&self, session: SessionId, state: State) {
        self.lock().sessions.get_mut(&session).unwrap().state = convert::state_number(state);
    }
}

impl Inner {
    fn effect(&mut self, session: SessionId) -> Result<(), Error> {
        match &mut self.fuse {
            Some(0) => Err(Error::Unseen { session }),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn hear(&self, session: SessionId) -> Result<(), Error> {
        let source = lab_bus::Error::Refused { question: "get-session", code: "database".to_owned() };
        if self.is_deaf { Err(Error::Ask { session, source }) } else { Ok(()) }
    }
}

impl Outside for Fake {
    async fn ask(&self, session: SessionId) -> Result<Option<v1::Session>, Error> {
        let inner = self.lock();
        inner.hear(session)?;
        Ok(inner.sessions.get(&session).cloned())
    }

    async fn sessions(&self) -> Result<Vec<v1::Session>, Error> {
        let inner = self.lock();
        inner.hear(SessionId(uuid::Uuid::nil()))?;
        let ended = convert::state_number(State::Ended);
        Ok(inner.sessions.values().filter(|s| s.state != ended).cloned().collect())
    }

    async fn classify(&self, session: SessionId, object: &Object) -> Result<Verdict, Error> {
        let inner = self.lock();
        inner.hear(session)?;
        Ok(inner.verdicts.get(object.uid.as_str()).copied().unwrap_or(Verdict::Unwanted))
    }

    async fn look(&self, _us: &Installation, session: Option<SessionId>) -> Snapshot {
        let mut inner = self.lock();
        inner.looks += 1;
        let objects = inner.objects.iter().filter(|o| session.is_none() || o.session() == session);
        Snapshot { began: Instant::now(), objects: objects.cloned().collect(), is_complete: !inner.is_blind }
    }

    async fn secret(&self, _us: &Installation, name: &str) -> Result<Option<Object>, Error> {
        Ok(self.lock().objects.iter().find(|o| o.kind == Kind::Secret && o.name == name).cloned())
    }

    async fn delete(&self, object: &Object) -> Result<(), Error> {
        let mut inner = self.lock();
        inner.effect(object.session().unwrap_or(SessionId(uuid::Uuid::nil())))?;
        inner.deletes.push(object.uid.to_string());
        if let Some(there) = inner.objects.iter_mut().find(|o| o.uid == object.uid) {
            there.is_leaving = true;
        }
        Ok(())
    }

    async fn publish(&self, envelope: &Envelope, kind: Fact) -> Result<(), Error> {
        let mut inner = self.lock();
        inner.effect(envelope.session)?;
        inner.facts.push(kind);
        Ok(())
    }

    fn now(&self) -> OffsetDateTime {
        NOW
    }
}

struct Bench {
    fake: Fake,
    reaper: Arc<Reaper<Fake>>,
}

fn bench() -> Bench {
    let fake = Fake(Arc::default());
    let gate = Gate::open(InstallationId(uuid::Uuid::from_u128(7)));
    let reaper = Reaper::new(fake.clone(), "dev".parse().unwrap(), gate, GRACE, Metrics::default());
    Bench { fake, reaper: Arc::new(reaper) }
}

impl Bench {
    /// An ending session with everything that a machine has; `ago`: MachineProvisioned before the end.
    fn ending(&self, ago: Option<Duration>) -> SessionId {
        let session = SessionId::generate();
        let fact = ago.map(|ago| v1::ProjectedFact {
            kind: "machine-provisioned".to_owned(),
            at: Some(convert::timestamp(NOW - ago)),
        });
        let machine =
            v1::Machine { name: "main".to_owned(), facts: fact.into_iter().collect(), ..Default::default() };
        let answer = v1::Session {
            session_id: session.to_string(),
            state: convert::state_number(State::Ending),
            machines: vec![machine],
            ending_at: Some(convert::timestamp(NOW)),
            ending_version: 5,
            ..Default::default()
        };
        let mut inner = self.fake.lock();
        inner.sessions.insert(session, answer);
        for kind in [Kind::VirtualMachine, Kind::VirtualMachineInstance, Kind::Pod, Kind::Secret] {
            inner.objects.push(object(kind, session, &format!("{}-{}", kind.as_str(), session.0.simple())));
        }
        session
    }

    async fn hear(&self, session: SessionId, again: bool) -> Disposition {
        let version = if again { 7 } else { 5 };
        let ending = v1::SessionEnding { again, ..Default::default() };
        let delivery = Delivery {
            event: v1::Event { session_version: version, ..Default::default() },
            kind: Fact::SessionEnding(ending),
            id: EventId::generate(),
            session,
            sequence: 1,
            stored_at: NOW,
            attempt: 1,
        };
        Arc::clone(&self.reaper).on_ending(delivery).await
    }

    async fn look(&self, session: SessionId) {
        self.reaper.look_at(vec![session]).await;
    }

    fn reaped_versions(&self) -> Vec<u64> {
        let inner = self.fake.lock();
        let reaped = inner.facts.iter().filter_map(|fact| {
            let Fact::SessionReaped(f) = fact else { return None };
            Some(f.ending_version)
        });
        reaped.collect()
    }
}

#[tokio::test]
async fn an_ended_session_is_deleted_looked_at_and_reaped() {
    let bench = bench();
    let session = bench.ending(Some(GRACE));
    assert_eq!(bench.hear(session, false).await, Disposition::Ack);
    // The VM takes VMI and pod along.
    assert_eq!(bench.fake.deletes(), 2);
    bench.look(session).await;
    assert_eq!((bench.fake.deletes(), bench.reaped_versions()), (2, vec![]), "they are leaving");
    bench.fake.settle();
    bench.look(session).await;
    assert_eq!(bench.reaped_versions(), [5]);
    // Until the api has taken it in it is said again, then forgotten.
    bench.look(session).await;
    assert_eq!(bench.reaped_versions(), [5, 5]);
    bench.fake.set_state(session, State::Ended);
    bench.look(session).await;
    assert_eq!(bench.reaped_versions(), [5, 5]);
    assert!(bench.reaper.notes().is_empty());
}

#[tokio::test]
async fn the_same_end_twice_changes_nothing() {
    let bench = bench();
    let session = bench.ending(Some(GRACE));
    assert_eq!(bench.hear(session, false).await, Disposition::Ack);
    assert_eq!(bench.hear(session, false).await, Disposition::Ack);
    assert_eq!(bench.fake.deletes(), 2);
}

#[tokio::test]
async fn a_crash_after_any_effect_converges() {
    for effects in 0..4 {
        let bench = bench();
        let session = bench.ending(Some(GRACE));
        bench.fake.lock().fuse = Some(effects);
        // The first life: message, then looks, until the fuse blows.
        let first = bench.hear(session, false).await;
        assert_eq!(first == Disposition::Ack, effects >= 2, "after {effects} effects: {first:?}");
        bench.fake.settle();
        bench.look(session).await;
        // The second life knows nothing; it finds the session in the api's list.
        let fake = bench.fake.clone();
        fake.lock().fuse = None;
        let gate = Gate::open(InstallationId(uuid::Uuid::from_u128(7)));
        let second = Reaper::new(fake.clone(), "dev".parse().unwrap(), gate, GRACE, Metrics::default());
        let second = Bench { fake, reaper: Arc::new(second) };
        second.reaper.list_endings().await;
        second.look(session).await;
        second.fake.settle();
        second.look(session).await;
        assert!(second.reaped_versions().ends_with(&[5]), "after {effects} effects");
        assert!(second.fake.lock().objects.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_crosses_the_end_is_deleted_before_the_session_is_called_reaped() {
    let bench = bench();
    let session = bench.ending(None);
    bench.fake.lock().objects.clear();
    assert_eq!(bench.hear(session, false).await, Disposition::Ack);
    tokio::time::advance(Duration::from_secs(15)).await;
    bench.fake.lock().objects.push(object(Kind::VirtualMachine, session, "late"));
    tokio::time::advance(Duration::from_secs(4)).await;
    bench.look(session).await;
    bench.fake.settle();
    assert_eq!(bench.fake.lock().deletes, ["late"]);
    bench.look(session).await;
    assert_eq!(bench.reaped_versions(), [0; 0], "19 s are not 20");
    tokio::time::advance(CROSSING - Duration::from_secs(19)).await;
    bench.look(session).await;
    assert_eq!(bench.reaped_versions(), [5]);
}

#[tokio::test]
async fn without_an_answer_nothing_is_deleted() {
    let bench = bench();
    let session = bench.ending(Some(GRACE));
    bench.fake.lock().is_deaf = true;
    assert!(matches!(bench.hear(session, false).await, Disposition::Nak(_)));
    bench.reaper.list_endings().await;
    bench.reaper.sweep().await;
    assert_eq!(bench.fake.deletes(), 0);
}

#[tokio::test]
async fn a_list_that_is_refused_is_not_gone() {
    let bench = bench();
    let session = bench.ending(Some(GRACE));
    {
        let mut inner = bench.fake.lock();
        inner.is_blind = true;
        inner.objects.clear();
    }
    assert!(matches!(bench.hear(session, false).await, Disposition::Nak(_)));
    bench.look(session).await;
    assert_eq!(bench.facts_of_reaping(), 0);
    bench.fake.lock().is_blind = false;
    bench.look(session).await;
    assert_eq!(bench.facts_of_reaping(), 1);
}

impl Bench {
    fn facts_of_reaping(&self) -> usize {
        self.reaped_versions().len()
    }
}

#[tokio::test]
async fn a_session_that_lives_or_is_unknown_loses_nothing() {
    for state in State::ALL.iter().filter(|s| **s != State::Ending) {
        let bench = bench();
        let session = bench.ending(Some(GRACE));
        bench.fake.set_state(session, *state);
        assert_eq!(bench.hear(session, false).await, Disposition::Ack, "{state}");
        assert_eq!(bench.fake.deletes(), 0, "{state}");
    }
    let bench = bench();
    let session = bench.ending(None);
    bench.fake.lock().sessions.clear();
    assert_eq!(bench.hear(session, false).await, Disposition::Ack);
    assert_eq!(bench.fake.deletes(), 0);
}

#[tokio::test]
async fn a_machine_of_an_ended_session_is_deleted_when_the_api_says_so_again() {
    let bench = bench();
    let session = bench.ending(Some(GRACE));
    bench.fake.set_state(session, State::Ended);
    assert_eq!(bench.hear(session, true).await, Disposition::Ack);
    assert_eq!(bench.fake.deletes(), 2);
    bench.fake.settle();
    bench.look(session).await;
    assert_eq!(bench.reaped_versions(), [7]);
    assert!(bench.reaper.notes().is_empty(), "nothing will confirm it");
}

#[tokio::test]
async fn a_closed_gate_deletes_nothing() {
    let fake = Fake(Arc::default());
    let closed = Reaper::new(fake.clone(), "dev".parse().unwrap(), Gate::closed(), GRACE, Metrics::default());
    let bench = Bench { fake, reaper: Arc::new(closed) };
    let session = bench.ending(Some(GRACE));
    assert!(matches!(bench.hear(session, false).await, Disposition::Nak(_)));
    bench.reaper.sweep().await;
    assert_eq!((bench.fake.deletes(), bench.fake.looks()), (0, 0));
}

#[tokio::test]
async fn many_endings_share_one_look() {
    let bench = bench();
    let sessions: Vec<_> = (0..50).map(|_| bench.ending(Some(GRACE))).collect();
    bench.reaper.list_endings().await;
    bench.reaper.look_at(sessions.clone()).await;
    assert_eq!((bench.fake.looks(), bench.fake.deletes()), (1, 100));
    bench.fake.settle();
    bench.reaper.look_at(sessions).await;
    assert_eq!((bench.fake.looks(), bench.reaped_versions().len()), (2, 50));
}

#[tokio::test]
async fn a_secret_without_its_session_label_goes_by_its_name() {
    let bench = bench();
    let session = bench.ending(Some(GRACE));
    bench.fake.lock().objects.retain(|o| o.kind == Kind::Secret);
    bench.fake.lock().objects[0].identity = None;
    assert_eq!(bench.hear(session, false).await, Disposition::Ack);
    assert_eq!(bench.fake.deletes(), 1);
    assert_eq!(bench.reaped_versions().len(), 0);
    bench.fake.settle();
    bench.look(session).await;
    assert_eq!(bench.reaped_versions(), [5]);
}

#[tokio::test(start_paused = true)]
async fn a_ghost_is_reaped_once_after_its_grace() {
    let bench = bench();
    let session = SessionId::generate();
    bench.fake.lock().objects =
        vec![object(Kind::VirtualMachine, session, "u1"), object(Kind::Secret, session, "u2")];
    bench.reaper.sweep().await;
    tokio::time::advance(GRACE / 2).await;
    bench.reaper.sweep().await;
    assert_eq!(bench.fake.deletes(), 0);
    tokio::time::advance(GRACE / 2).await;
    // The report of the first is lost with its ack; it is made up for in the next sweep.
    bench.fake.lock().fuse = Some(1);
    bench.reaper.sweep().await;
    assert_eq!((bench.fake.deletes(), bench.fake.facts().len()), (1, 0));
    bench.fake.lock().fuse = None;
    bench.reaper.sweep().await;
    assert_eq!(bench.fake.lock().deletes, ["u1", "u2"]);
    assert_eq!(bench.fake.facts(), ["ghost-reaped", "ghost-reaped"]);
    bench.reaper.sweep().await;
    assert_eq!(bench.fake.deletes(), 2);
}

#[tokio::test(start_paused = true)]
async fn only_what_the_api_calls_unwanted_is_deleted_as_a_ghost() {
    let table = [
        (Some(Verdict::Unwanted), 1),
        (Some(Verdict::Hold), 0),
        (Some(Verdict::Wanted), 0),
        (Some(Verdict::Ending), 0),
        (None, 0),
    ];
    for (verdict, deletes) in table {
        let bench = bench();
        bench.fake.lock().objects = vec![object(Kind::VirtualMachine, SessionId::generate(), "u1")];
        bench.reaper.sweep().await;
        tokio::time::advance(GRACE).await;
        match verdict {
            Some(verdict) => _ = bench.fake.lock().verdicts.insert("u1".to_owned(), verdict),
            None => bench.fake.lock().is_deaf = true,
        }
        bench.reaper.sweep().await;
        assert_eq!(bench.fake.deletes(), deletes, "{verdict:?}");
        if verdict == Some(Verdict::Wanted) {
            // Found wanted: the grace begins anew.
            bench.fake.lock().verdicts.clear();
            bench.reaper.sweep().await;
            assert_eq!(bench.fake.deletes(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_sweep_that_does_not_see_every_kind_deletes_nothing() {
    let bench = bench();
    bench.fake.lock().objects = vec![object(Kind::VirtualMachineInstance, SessionId::generate(), "u1")];
    bench.reaper.sweep().await;
    tokio::time::advance(GRACE).await;
    bench.fake.lock().is_blind = true;
    bench.reaper.sweep().await;
    assert_eq!(bench.fake.deletes(), 0);
}

#[tokio::test]
async fn a_timer_is_reported_only_when_the_api_says_that_it_is_due() {
    let bench = bench();
    let session = bench.ending(None);
    let fire = async || Arc::clone(&bench.reaper).on_timeout(Timeout { session, attempt: 1 }).await;
    assert_eq!(fire().await, Disposition::Ack, "ending");
    bench.fake.set_state(session, State::Ready);
    let expires = |seconds: i64| Some(convert::timestamp(NOW + time::Duration::seconds(seconds)));
    bench.fake.lock().sessions.get_mut(&session).unwrap().expires_at = expires(60);
    assert!(matches!(fire().await, Disposition::Nak(rest) if rest > Duration::from_secs(59)));
    assert_eq!(bench.fake.facts(), [""; 0]);
    bench.fake.lock().sessions.get_mut(&session).unwrap().expires_at = expires(-1);
    assert_eq!(fire().await, Disposition::Ack);
    assert_eq!(bench.fake.facts(), ["deadline-reached"]);
    bench.fake.lock().is_deaf = true;
    assert!(matches!(fire().await, Disposition::Nak(_)));
}
