//! The whole service.

use std::time::Duration;

use futures::StreamExt as _;
use lab_bus::Error;
use lab_domain::{InstallationId, SessionId};
use lab_kubevirt::Installation;
use lab_proto::{
    convert,
    subjects::{GRADE, RESIZE},
    v1,
};
use lab_testkit::wait_for;
use serde_json::json;

use crate::world::{LIMIT, World, dev, installation, main_machine, now, short};

/// How machines of these labs behave.
fn rules() -> serde_json::Value {
    let rule = |lab: &str, behaviour: serde_json::Value| json!({"lab": lab, "behaviour": behaviour});
    let exec = |contains: &str, exit: i32, output: &str| json!({"contains": contains, "exit": exit, "output": output});
    json!({"rules": [
        rule("unschedulable", json!({"unschedulable": "0/1 nodes are available: 1 Insufficient memory."})),
        rule("no-image", json!({"image_pull_error": "manifest unknown"})),
        rule("never-boots", json!({"never_boots": true})),
        rule("fails-to-boot", json!({"fails_to_boot": true})),
        rule("dies", json!({"dies_after_ms": 1500, "dies_as": "poweroff"})),
        rule("crashes", json!({"dies_after_ms": 1500, "dies_as": "crash"})),
        rule("absent", json!({"agent": "absent"})),
        rule("silent", json!({"agent": "silent"})),
        rule("garbage", json!({"agent": "garbage"})),
        rule("endless", json!({"agent": "endless"})),
        rule("redirect", json!({"agent": "redirect"})),
        rule("unauthorized", json!({"agent": "unauthorized"})),
        rule("exits", json!({"prepare": {"exit": {"code": 3, "log": "no such unit", "megabytes": 1}}})),
        rule("hangs", json!({"prepare": {"hangs": {"log": "still waiting"}}})),
        rule("cloud-init", json!({"prepare": "cloud_init"})),
        rule("signal", json!({"prepare": "signal"})),
        rule("graded", json!({"exec": [exec("check1", 0, "well done"), exec("check2", 4, "not yet")]})),
    ]})
}

const HAPPY: [&str; 4] = ["machine-scheduled", "machine-running", "agent-reached", "machine-ready"];

/// By rank: facts may overtake each other on the bus. What is not of a happy start comes last.
fn in_order(mut facts: Vec<String>) -> Vec<String> {
    facts.sort_by_key(|fact| HAPPY.iter().position(|f| f == fact).unwrap_or(HAPPY.len()));
    facts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_followed_to_ready_and_reported_once() {
    let world = World::start(rules()).await;
    let session = world.session("good").await;
    world.wait_fact("machine-ready").await;
    assert_eq!(in_order(world.book.facts()), HAPPY);
    let machine = world.book.session(session).machines.remove(0);
    assert_eq!(machine.pinned_uid, world.uid(session).await);
    // A whole other start later there is still nothing new to say about it.
    let other = world.session("good").await;
    wait_for("the other", LIMIT, async || world.book.session(other).state == v1::SessionState::Ready as i32)
        .await;
    for session in [session, other] {
        assert_eq!(in_order(world.book.facts_of(session)), HAPPY);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_is_named() {
    let world = World::start(rules()).await;
    let cases = [
        ("unschedulable", "failed disk_timeout Unschedulable"),
        ("no-image", "failed disk_timeout ErrImagePull"),
        ("never-boots", "failed boot_timeout not_running"),
        ("fails-to-boot", "stopped Failed"),
        ("absent", "failed agent_unreachable no_answer"),
        ("silent", "failed agent_unreachable no_answer"),
        ("garbage", "failed agent_unreachable no_answer"),
        ("endless", "failed agent_unreachable malformed_answer"),
        ("redirect", "failed agent_unreachable malformed_answer"),
        ("unauthorized", "failed agent_unreachable unauthorized"),
        ("exits", "failed prepare_failed exit_status"),
        ("hangs", "failed prepare_timeout timeout"),
        ("cloud-init", "failed prepare_failed cloud_init"),
        ("signal", "failed prepare_failed signal"),
    ];
    let mut started = Vec::new();
    for (lab, want) in cases {
        started.push((world.session(lab).await, lab, want));
    }
    for (session, lab, want) in started {
        let ended = || {
            let facts = world.book.facts_of(session).into_iter();
            facts.filter(|f| f.starts_with("failed") || f.starts_with("stopped")).collect::<Vec<_>>()
        };
        wait_for(lab, LIMIT, async || !ended().is_empty()).await;
        assert_eq!(ended(), [want], "{lab}");
        if lab == "exits" {
            let failure = world.book.failure(session).unwrap();
            assert!(failure.log_tail.ends_with("no such unit"), "{}", failure.log_tail);
            assert!(failure.log_tail.len() <= 4096);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_goes_by_itself_is_stopped() {
    for (lab, want) in [("dies", "stopped Succeeded"), ("crashes", "stopped Failed")] {
        let world = World::start(rules()).await;
        world.session(lab).await;
        world.wait_fact(want).await;
        assert_eq!(in_order(world.book.facts()), [HAPPY.as_slice(), &[want]].concat());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_machine_that_somebody_deletes_is_lost_unless_its_session_is_ending() {
    let world = World::start(rules()).await;
    let (lost, ended) = (world.session("good").await, world.session("good").await);
    for session in [lost, ended] {
        wait_for("both to be ready", LIMIT, async || {
            world.book.session(session).state == v1::SessionState::Ready as i32
        })
        .await;
    }
    world.book.set_state(ended, v1::SessionState::Ending);
    world.delete_vm(ended).await;
    world.delete_vm(lost).await;
    world.wait_fact("lost deleted").await;
    let lost_facts = world.book.facts().into_iter().filter(|f| f.starts_with("lost")).count();
    assert_eq!(lost_facts, 1);
    let facts = world.book.session(lost).machines.remove(0).facts;
    assert_eq!(facts.last().unwrap().kind, "machine-lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_was_remade_is_lost_although_one_of_its_name_runs() {
    let world = World::start(rules()).await;
    let session = world.session("good").await;
    world.wait_fact("machine-ready").await;
    let pinned = world.uid(session).await;
    let name = lab_domain::id::object_name(session, &main_machine());
    world.vmis().delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
    wait_for("another machine of the name", LIMIT, async || {
        world.vmis().get_opt(&name).await.unwrap().is_some_and(|vmi| vmi.metadata.uid != Some(pinned.clone()))
    })
    .await;
    wait_for("its loss", LIMIT, async || world.book.facts().iter().any(|f| f.starts_with("lost"))).await;
    // Nothing was said about the newcomer.
    assert_eq!(world.book.facts().len(), 5, "{:?}", world.book.facts());
    assert_eq!(world.book.session(session).machines[0].pinned_uid, pinned);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_in_the_middle_changes_nothing() {
    let mut world = World::start(rules()).await;
    world.session("good").await;
    world.wait_fact("machine-scheduled").await;
    world.stop_readiness();
    world.start_readiness();
    world.wait_fact("machine-ready").await;
    assert_eq!(in_order(world.book.facts()), HAPPY);
    // While it is away a machine goes; the next start tells.
    let session = world.session("good").await;
    wait_for("ready", LIMIT, async || world.book.session(session).state == v1::SessionState::Ready as i32)
        .await;
    world.stop_readiness();
    world.delete_vm(session).await;
    world.start_readiness();
    world.wait_fact("lost deleted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fact_is_repeated_under_its_id_until_the_api_shows_it() {
    let world = World::start(rules()).await;
    world.book.set_deaf(true);
    let client = async_nats::connect(world.nats.url()).await.unwrap();
    let mut published = client.subscribe("lab.v1.dev.session.*.machine-scheduled").await.unwrap();
    let session = world.session("good").await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let message = tokio::time::timeout(LIMIT, published.next()).await.unwrap().unwrap();
        ids.push(message.headers.unwrap().get("Nats-Msg-Id").unwrap().to_string());
    }
    assert_eq!(ids[0], ids[1]);
    // The stream held it once all the while, so the api has to be shown it in another way.
    assert_eq!(world.book.facts().iter().filter(|f| *f == "machine-scheduled").count(), 1);
    assert!(world.book.session(session).machines[0].pinned_uid.is_empty());
    assert!(!world.book.facts().contains(&"agent-reached".to_owned()), "nobody dials an unpinned machine");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machines_of_another_installation_are_none_of_its_business() {
    let world = World::start(rules()).await;
    let theirs = Installation { id: InstallationId(uuid::Uuid::from_u128(2)), ..installation() };
    let session = SessionId::generate();
    world.know(session, "good", short());
    world.create(session, "good", &theirs).await;
    let ours = world.session("good").await;
    wait_for("ours", LIMIT, async || world.book.session(ours).state == v1::SessionState::Ready as i32).await;
    assert_eq!(in_order(world.book.facts()), HAPPY);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guest_is_graded_and_its_terminal_told() {
    let world = World::start(rules()).await;
    let session = world.session("graded").await;
    wait_for("ready", LIMIT, async || world.book.session(session).state == v1::SessionState::Ready as i32)
        .await;
    let ask = async |script: &str, id: &str, seconds: u64| {
        let request = v1::GradeRequest {
            session_id: session.to_string(),
            machine: "main".into(),
            check_id: id.into(),
            script: script.into(),
            timeout_ms: 5000,
            deadline: Some(convert::timestamp(now() + Duration::from_secs(seconds))),
        };
        world.bus.ask::<_, v1::GradeResponse>(GRADE, &request, Duration::from_secs(10)).await
    };
    for (script, outcome, output) in [
        ("#!/bin/sh\n# check1", v1::CheckOutcome::Passed, "well done"),
        ("#!/bin/sh\n# check2", v1::CheckOutcome::Failed, "not yet"),
    ] {
        for _ in 0..2 {
            let answer = ask(script, script, 10).await.unwrap();
            assert_eq!((answer.outcome(), answer.output.trim()), (outcome, output));
        }
    }
    assert!(
        matches!(ask("# check1", "late", 0).await, Err(Error::Refused { code, .. }) if code == "too_late")
    );
    assert!(matches!(ask("# check1", "", 5).await, Err(Error::Refused { code, .. }) if code == "malformed"));
    let resize = |rows| v1::ResizeRequest {
        session_id: session.to_string(),
        machine: "main".into(),
        rows,
        cols: 120,
        deadline: Some(convert::timestamp(now() + Duration::from_secs(5))),
    };
    let told: v1::ResizeResponse = world.bus.ask(RESIZE, &resize(40), Duration::from_secs(6)).await.unwrap();
    assert!(told.applied, "{}", told.cause);
    let refused = world.bus.ask::<_, v1::ResizeResponse>(RESIZE, &resize(0), Duration::from_secs(6)).await;
    assert!(matches!(refused, Err(Error::Refused { .. })));
    world.book.set_state(session, v1::SessionState::Ending);
    let answer = ask("# check1", "x", 5).await.unwrap();
    assert_eq!((answer.outcome(), answer.cause.as_str()), (v1::CheckOutcome::Error, "not_running"));
    assert_eq!(world.bus.environment(), &dev());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_restarts_stops_no_start() {
    let mut world = World::start(rules()).await;
    world.session("good").await;
    world.wait_fact("machine-scheduled").await;
    world.nats.restart().await.unwrap();
    world.wait_fact("machine-ready").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_restarts_loses_no_machine() {
    let mut world = World::start(rules()).await;
    let session = world.session("good").await;
    wait_for("ready", LIMIT, async || world.book.session(session).state == v1::SessionState::Ready as i32)
        .await;
    world.cluster.restart().await.unwrap();
    let other = world.session("good").await;
    wait_for("another start", LIMIT, async || {
        world.book.session(other).state == v1::SessionState::Ready as i32
    })
    .await;
    for session in [session, other] {
        assert_eq!(
            in_order(world.book.facts_of(session)),
            HAPPY,
            "a cluster that does not answer says nothing"
        );
    }
}
