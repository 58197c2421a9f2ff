//! The whole way of a session, and what the page sees of it.

use lab_bus::event::Kind;
use lab_kit::Shutdown;
use lab_proto::v1;
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::world::{Sse, World, code, good_start, reap_all};

#[tokio::test]
async fn a_session_goes_from_request_to_end_and_the_page_follows_on_another_replica() {
    let mut world = World::start().await;
    world.add_replica().await;
    let session = world.start_lab("alice", "repair").await;
    let id = session["id"].as_str().unwrap().to_owned();
    assert_eq!((session["state"].as_str(), session["version"].as_u64()), (Some("requested"), Some(1)));
    assert_eq!(session["console_url"], format!("/api/sessions/{id}/console"));

    let token = world.token("alice", lab_kit::auth::Role::Student);
    let url = world.url(1, &format!("/api/sessions/{id}/events"));
    let mut page = Sse::open(reqwest::Client::new().get(url).bearer_auth(token)).await;
    let (version, snapshot) = page.next().await.unwrap();
    assert_eq!((version.as_str(), snapshot["state"].as_str()), ("1", Some("requested")));

    world.report(&id, good_start("main", world.now())).await;
    let mut states = vec![];
    let mut versions = vec![1];
    while states.last() != Some(&"ready".to_owned()) {
        let (version, change) = page.next().await.unwrap();
        versions.push(version.parse::<u64>().unwrap());
        states.push(change["state"].as_str().unwrap().to_owned());
    }
    assert!(versions.is_sorted(), "{versions:?}");
    world.until("alice", &id, "ready").await;
    let ready = world.until_told("alice", &id, 8).await;
    assert_eq!(ready["machines"][0]["disk"], "golden");
    let phases: Vec<&str> =
        ready["timeline"].as_array().unwrap().iter().map(|e| e["phase"].as_str().unwrap()).collect();
    for phase in ["requested", "provisioning", "provisioned", "scheduled", "running", "agent", "ready"] {
        assert!(phases.contains(&phase), "{phase} in {phases:?}");
    }

    let before = ready["expires_at"].as_str().unwrap();
    let extend = format!("/api/sessions/{id}/extend");
    let (status, extended) = world.call("alice", Method::POST, &extend, None).await;
    assert_eq!(status, StatusCode::OK);
    assert_ne!(extended["expires_at"], before);
    world.call("alice", Method::POST, &extend, None).await;
    let over = world.call("alice", Method::POST, &extend, None).await;
    assert_eq!(code(&over), (409, "extend_limit"));

    let reaper = Shutdown::new();
    reap_all(&world, &reaper).await;
    let (status, ending) = world.call("alice", Method::DELETE, &format!("/api/sessions/{id}"), None).await;
    assert_eq!((status, ending["reason"].as_str()), (StatusCode::ACCEPTED, Some("user")));
    let mut last = json!(null);
    while let Some((_, change)) = page.next().await {
        last = change;
    }
    assert_eq!(last["state"], "ended", "the stream ends after the end");
    let current = world.get("alice", "/api/sessions/current").await;
    assert_eq!((current.0, current.1["state"].as_str()), (StatusCode::OK, Some("ended")));

    world.outbox_is_empty().await;
    let kinds = world.kinds_of(&id).await;
    let decisions =
        ["session-requested", "session-ready", "session-extended", "session-ending", "session-ended"];
    let places: Vec<_> = decisions.iter().map(|k| kinds.iter().position(|x| x == k)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{kinds:?}");
    assert_eq!(kinds.iter().filter(|k| **k == "session-ending").count(), 1);
    reaper.token.cancel();
}

#[tokio::test]
async fn facts_twice_late_and_shuffled_give_the_same_session() {
    let mut world = World::bare().await;
    world.vm_cap = 100;
    world.add_replica().await;
    let mut outlines = vec![];
    let at = world.now();
    for (n, user) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let session = world.start_lab(user, "cluster").await;
        let id = session["id"].as_str().unwrap().to_owned();
        let mut facts: Vec<Kind> = ["one", "two", "three"].iter().flat_map(|m| good_start(m, at)).collect();
        match n {
            0 => {}
            1 => facts.reverse(),
            2 => facts.rotate_left(7),
            _ => facts = facts.iter().rev().chain(&facts).cloned().collect(),
        }
        world.report(&id, facts).await;
        world.until(user, &id, "ready").await;
        let ready = world.until_told(user, &id, 3 * 6 + 2).await;
        let mut phases: Vec<_> = ready["timeline"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| (e["phase"].to_string(), e["machine"].to_string(), e["late"].to_string()))
            .collect();
        phases.sort();
        outlines.push((phases, ready["machines"].to_string()));
        world.call(user, Method::DELETE, &format!("/api/sessions/{id}"), None).await;
    }
    assert!(outlines.windows(2).all(|w| w[0] == w[1]), "{outlines:#?}");
}

#[tokio::test]
async fn a_failed_prepare_ends_the_session_with_its_log_and_a_stranger_changes_nothing() {
    let world = World::start().await;
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    let at = world.now();
    world.report(&id, good_start("main", at).into_iter().take(5)).await;
    world.until("alice", &id, "preparing").await;
    let lost = |uid: &str| {
        Kind::MachineLost(v1::MachineLost {
            machine: "main".into(),
            vmi_uid: uid.into(),
            cause: "deleted".into(),
        })
    };
    world.report(&id, [lost("another-uid")]).await;
    let failed = Kind::MachineFailed(v1::MachineFailed {
        machine: "main".into(),
        vmi_uid: "uid-main".into(),
        reason: v1::EndReason::PrepareFailed.into(),
        cause: "exit_status".into(),
        message: String::new(),
        log_tail: "no such\0 package".into(),
    });
    world.report(&id, [failed]).await;
    let ending = world.until("alice", &id, "ending").await;
    assert_eq!(ending["reason"], "prepare_failed");
    assert_eq!(ending["cause"], "exit_status");
    assert_eq!(ending["log_tail"], "no such\u{fffd} package");
    assert!(ending["message"].as_str().unwrap().contains("Try again"));
    // The contradicting outcome comes too late, and is kept as such.
    world.report(&id, good_start("main", at)).await;
    let mut late = vec![];
    lab_testkit::wait_for("the late outcome", crate::world::LIMIT, async || {
        let session = world.get("alice", &format!("/api/sessions/{id}")).await.1;
        late =
            session["timeline"].as_array().unwrap().iter().filter(|e| e["late"] == true).cloned().collect();
        !late.is_empty()
    })
    .await;
    assert_eq!(late[0]["phase"], "ready");
}

#[tokio::test]
async fn an_event_stream_resumes_where_the_page_left_it() {
    let world = World::start().await;
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    let path = format!("/api/sessions/{id}/events");
    let token = world.token("alice", lab_kit::auth::Role::Student);
    let open = |last: u64| {
        world.request(Method::GET, &path).bearer_auth(&token).header("last-event-id", last.to_string())
    };
    let mut page = Sse::open(open(1)).await;
    world.report(&id, good_start("main", world.now()).into_iter().take(1)).await;
    let (version, change) = page.next().await.unwrap();
    assert_eq!(
        (version.as_str(), change["state"].as_str()),
        ("2", Some("provisioning")),
        "no snapshot again"
    );
    let mut behind = Sse::open(open(1)).await;
    assert_eq!(behind.next().await.unwrap().0, "2");
}

#[tokio::test]
async fn staff_hear_every_event_from_the_stream() {
    let world = World::start().await;
    let token = world.token("root", lab_kit::auth::Role::Admin);
    let open = || world.request(Method::GET, "/api/admin/events").bearer_auth(&token);
    let mut live = Sse::open(open()).await;
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    let (seq, event) = live.next().await.unwrap();
    assert_eq!(
        (event["kind"].as_str(), event["session"].as_str()),
        (Some("session-requested"), Some(id.as_str()))
    );
    assert!(!event.to_string().contains("alice"), "events name nobody");
    let mut resumed = Sse::open(open().header("last-event-id", "0")).await;
    assert_eq!(resumed.next().await.unwrap().0, seq);
}
