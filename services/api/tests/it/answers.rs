//! What other services are told.

use std::time::Duration;

use lab_bus::{Bus, Error, Identity, event::Kind};
use lab_domain::SessionId;
use lab_kit::Shutdown;
use lab_proto::{
    convert,
    subjects::{CLASSIFY_OBJECT, GET_SESSION, LIST_SESSIONS},
    v1,
};
use reqwest::Method;

use crate::world::{World, good_start, reap_all};

const ANSWER: Duration = Duration::from_secs(5);

pub(crate) async fn get(bus: &Bus, id: &str) -> Option<v1::Session> {
    let q = v1::GetSessionRequest { session_id: id.to_owned() };
    bus.ask::<_, v1::GetSessionResponse>(GET_SESSION, &q, ANSWER).await.unwrap().session
}

pub(crate) async fn classify(bus: &Bus, session: &str, uid: &str) -> Result<v1::Verdict, Error> {
    let q = v1::ClassifyObjectRequest {
        session_id: session.into(),
        machine: "main".into(),
        kind: "VirtualMachine".into(),
        uid: uid.into(),
    };
    bus.ask::<_, v1::ClassifyObjectResponse>(CLASSIFY_OBJECT, &q, ANSWER).await.map(|a| a.verdict())
}

#[tokio::test]
async fn a_session_is_told_whole() {
    let world = World::start().await;
    let bus = world.bus(Identity::Reaper).await;
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    let at = world.now();
    world.report(&id, good_start("main", at).into_iter().take(4)).await;
    world.until("alice", &id, "booting").await;
    let mut told = get(&bus, &id).await.unwrap();
    // Two facts may still be on their way.
    lab_testkit::wait_for("all four facts", crate::world::LIMIT, async || {
        told = get(&bus, &id).await.unwrap();
        told.machines[0].facts.len() == 4
    })
    .await;
    assert_eq!((told.owner.as_str(), told.lab.as_str()), ("alice", "repair"));
    assert!(told.user.starts_with("u-") && told.state() == v1::SessionState::Booting);
    assert_eq!(told.machines[0].pinned_uid, "uid-main");
    let kinds: Vec<&str> = told.machines[0].facts.iter().map(|f| f.kind.as_str()).collect();
    for kind in ["provisioning-started", "machine-provisioned", "machine-scheduled", "machine-running"] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    let limits = convert::limits(&told.limits.unwrap());
    assert_eq!(limits, lab_domain::StartLimits::default());
    assert!(told.start_deadline.is_some() && told.expires_at.is_none());

    assert_eq!(get(&bus, &SessionId::generate().to_string()).await, None);
    let q = v1::GetSessionRequest { session_id: "nonsense".into() };
    let refused = bus.ask::<_, v1::GetSessionResponse>(GET_SESSION, &q, ANSWER).await;
    assert!(matches!(refused, Err(Error::Refused { code, .. }) if code == "malformed"));
}

#[tokio::test]
async fn open_sessions_are_told_page_by_page() {
    let world = World::start().await;
    let bus = world.bus(Identity::Reaper).await;
    let mut ids = vec![];
    for user in ["a", "b", "c", "d", "e"] {
        ids.push(world.start_lab(user, "repair").await["id"].as_str().unwrap().to_owned());
    }
    let reaper = Shutdown::new();
    reap_all(&world, &reaper).await;
    world.call("c", Method::DELETE, &format!("/api/sessions/{}", ids[2]), None).await;
    world.until("c", &ids[2], "ended").await;
    world.call("d", Method::GET, "/api/me", None).await;
    reaper.token.cancel();
    let (mut told, mut after) = (vec![], String::new());
    loop {
        let q = v1::ListSessionsRequest { after, limit: 2 };
        let page: v1::ListSessionsResponse = bus.ask(LIST_SESSIONS, &q, ANSWER).await.unwrap();
        told.extend(page.sessions.into_iter().map(|s| s.session_id));
        after = page.next;
        if after.is_empty() {
            break;
        }
    }
    ids.remove(2);
    ids.sort();
    assert_eq!(told, ids);
}

#[tokio::test]
async fn an_object_is_classified_by_its_session() {
    let world = World::start().await;
    let bus = world.bus(Identity::Reaper).await;
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    assert_eq!(classify(&bus, &id, "u1").await.unwrap(), v1::Verdict::Wanted);
    world.call("alice", Method::DELETE, &format!("/api/sessions/{id}"), None).await;
    assert_eq!(classify(&bus, &id, "u1").await.unwrap(), v1::Verdict::Ending);
    let version = get(&bus, &id).await.unwrap().ending_version;
    let reaped = Kind::SessionReaped(v1::SessionReaped { ending_version: version });
    world.report(&id, [reaped.clone(), reaped]).await;
    world.until("alice", &id, "ended").await;
    assert_eq!(classify(&bus, &id, "u1").await.unwrap(), v1::Verdict::Unwanted);
    let stranger = SessionId::generate().to_string();
    assert_eq!(classify(&bus, &stranger, "u1").await.unwrap(), v1::Verdict::Unwanted);
    assert!(classify(&bus, "x", "u1").await.is_err());
    world.kube.set_broken(true);
    lab_testkit::wait_for("no answer without a fresh list", crate::world::LIMIT, async || {
        classify(&bus, &stranger, "u1").await.is_err()
    })
    .await;
    world.outbox_is_empty().await;
    let ended = world.kinds_of(&id).await.into_iter().filter(|k| *k == "session-ended").count();
    assert_eq!(ended, 1);
}
