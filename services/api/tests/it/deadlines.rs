//! Ends that nobody asked for.

use std::time::Duration;

use lab_bus::{Identity, event::Kind};
use lab_proto::v1;
use reqwest::{Method, StatusCode};

use crate::world::{World, good_start};

#[tokio::test]
async fn a_start_that_does_not_get_on_is_ended_by_the_scan_with_the_reason_of_its_phase() {
    let world = World::start().await;
    let one = world.start_lab("a", "repair").await["id"].as_str().unwrap().to_owned();
    let two = world.start_lab("b", "repair").await["id"].as_str().unwrap().to_owned();
    world.report(&two, good_start("main", world.now()).into_iter().take(4)).await;
    world.until("b", &two, "booting").await;
    world.clock.advance(Duration::from_secs(1261));
    let (one, two) = (world.until("a", &one, "ending").await, world.until("b", &two, "ending").await);
    assert_eq!(
        (one["reason"].as_str(), one["cause"].as_str()),
        (Some("provision_failed"), Some("not_provisioned"))
    );
    assert_eq!(two["reason"], "agent_unreachable");
}

#[tokio::test]
async fn a_session_expires_and_an_idle_one_is_ended_but_activity_and_extension_hold_it() {
    let world = World::start().await;
    let mut ids = vec![];
    for user in ["idle", "busy"] {
        let id = world.start_lab(user, "repair").await["id"].as_str().unwrap().to_owned();
        world.make_ready(user, &id).await;
        ids.push(id);
    }
    world.clock.advance(Duration::from_secs(1700));
    let active = Kind::ConsoleActive(v1::ConsoleActive {
        machine: "main".into(),
        connection_id: "c".into(),
        minute: 1,
    });
    world.report(&ids[1], [active]).await;
    lab_testkit::wait_for("the activity", crate::world::LIMIT, async || {
        let s = world.get("busy", &format!("/api/sessions/{}", ids[1])).await.1;
        s["version"].as_u64() > Some(7)
    })
    .await;
    world.clock.advance(Duration::from_secs(200));
    assert_eq!(world.until("idle", &ids[0], "ending").await["reason"], "idle");
    assert_eq!(world.get("busy", &format!("/api/sessions/{}", ids[1])).await.1["state"], "ready");
    let (status, extended) =
        world.call("busy", Method::POST, &format!("/api/sessions/{}/extend", ids[1]), None).await;
    assert_eq!((status, extended["state"].as_str()), (StatusCode::OK, Some("ready")));
    // Past the life and the extension.
    world.clock.advance(Duration::from_secs(3600));
    let over = world.until("busy", &ids[1], "ending").await;
    assert!(["expired", "idle"].contains(&over["reason"].as_str().unwrap()), "{over}");
}

#[tokio::test]
async fn a_deadline_that_the_reaper_reports_counts_only_if_it_stands() {
    let world = World::start().await;
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    world.make_ready("alice", &id).await;
    let reached = |n: i64| {
        Kind::DeadlineReached(v1::DeadlineReached {
            deadline: v1::Deadline::Expiry.into(),
            value: Some(prost_types::Timestamp { seconds: n, nanos: 0 }),
        })
    };
    let marker = Kind::ConsoleActive(v1::ConsoleActive {
        machine: "main".into(),
        connection_id: "m".into(),
        minute: 9,
    });
    world.clock.advance(Duration::from_secs(1));
    world.report(&id, [reached(1), marker]).await;
    lab_testkit::wait_for("the fact after it", crate::world::LIMIT, async || {
        world.get("alice", &format!("/api/sessions/{id}")).await.1["version"].as_u64() > Some(7)
    })
    .await;
    assert_eq!(world.get("alice", &format!("/api/sessions/{id}")).await.1["state"], "ready");
    world.clock.advance(Duration::from_secs(3600));
    world.report(&id, [reached(2)]).await;
    let ending = world.until("alice", &id, "ending").await;
    assert!(["expired", "idle"].contains(&ending["reason"].as_str().unwrap()), "{ending}");
}

#[tokio::test]
async fn each_deadline_sets_the_sessions_one_timer() {
    let world = World::start().await;
    let bus = world.bus(Identity::Reaper).await;
    let shutdown = lab_kit::Shutdown::new();
    let (sender, mut fired) = tokio::sync::mpsc::unbounded_channel();
    let handler = move |timeout: lab_bus::Timeout| {
        let sender = sender.clone();
        async move {
            let _ = sender.send(timeout.session);
            lab_bus::Disposition::Ack
        }
    };
    let durable = lab_bus::Durable::new("reaper-timeouts", vec![]);
    shutdown.spawn(bus.consume_timeouts(durable, handler, shutdown.token.clone()));
    // A clock that stands in the past makes deadlines that the broker's clock has passed.
    world.clock.set(world.now() - Duration::from_secs(2000));
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    let session = tokio::time::timeout(crate::world::LIMIT, fired.recv()).await.unwrap().unwrap();
    assert_eq!(session.to_string(), id);
    shutdown.token.cancel();
}
