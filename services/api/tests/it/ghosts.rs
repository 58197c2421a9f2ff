//! Objects that no session owns.

use lab_bus::{Identity, event::Kind};
use lab_domain::SessionId;
use lab_kit::auth::Role;
use lab_proto::v1;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    answers::{classify, get},
    world::{LIMIT, World, code, good_start},
};

#[tokio::test]
async fn too_many_ghosts_are_held_until_an_administrator_releases_them() {
    let world = World::start().await;
    let bus = world.bus(Identity::Reaper).await;
    let ghosts =
        async || world.call_as("root", Role::Admin, 0, Method::GET, "/api/admin/ghosts", None).await.1;
    let session = SessionId::generate().to_string();
    for n in 0..5 {
        world.kube.put(&format!("uid-{n}"), &world.labels(&SessionId::generate().to_string()));
    }
    lab_testkit::wait_for("the hold", LIMIT, async || ghosts().await["hold"] == true).await;
    assert_eq!(classify(&bus, &session, "uid-1").await.unwrap(), v1::Verdict::Hold);
    let release = async |role, uids: Value| {
        world
            .call_as("root", role, 0, Method::POST, "/api/admin/ghosts/release", Some(json!({"uids": uids})))
            .await
    };
    assert_eq!(code(&release(Role::Teacher, json!(["uid-1"])).await), (403, "forbidden"));
    assert_eq!(code(&release(Role::Admin, json!(["uid-typo"])).await), (400, "invalid_request"));
    assert_eq!(code(&release(Role::Admin, json!(["a b"])).await), (400, "invalid_request"));
    let (status, after) = release(Role::Admin, json!(["uid-1"])).await;
    assert_eq!((status, after["hold"].as_bool()), (StatusCode::OK, Some(true)));
    assert_eq!(classify(&bus, &session, "uid-1").await.unwrap(), v1::Verdict::Unwanted);
    assert_eq!(classify(&bus, &session, "uid-2").await.unwrap(), v1::Verdict::Hold);
    let (_, after) = release(Role::Admin, json!(["uid-1", "uid-2"])).await;
    assert_eq!(after["hold"], false, "three are believed: {after}");
    assert_eq!(after["ghosts"].as_array().unwrap().len(), 5);
    assert_eq!(classify(&bus, &session, "uid-3").await.unwrap(), v1::Verdict::Unwanted);
}

#[tokio::test]
async fn a_machine_of_an_ended_session_is_reaped_again_once_per_object() {
    let world = World::start().await;
    let bus = world.bus(Identity::Reaper).await;
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    world.call("alice", Method::DELETE, &format!("/api/sessions/{id}"), None).await;
    let version = get(&bus, &id).await.unwrap().ending_version;
    world.report(&id, [Kind::SessionReaped(v1::SessionReaped { ending_version: version })]).await;
    world.until("alice", &id, "ended").await;
    world.clock.advance(std::time::Duration::from_secs(1));
    let again = async || {
        let events = world.events().await;
        let of = |kind: &Kind| matches!(kind, Kind::SessionEnding(e) if e.again && e.reason() == v1::EndReason::User);
        events.iter().filter(|(_, kind, e)| e.session_id == id && of(kind)).count()
    };
    world.kube.put("left-1", &world.labels(&id));
    lab_testkit::wait_for("one more reaping", LIMIT, async || again().await == 1).await;
    world.kube.put("left-2", &world.labels(&id));
    lab_testkit::wait_for("a second object", LIMIT, async || again().await == 2).await;
    assert_eq!(world.get("alice", &format!("/api/sessions/{id}")).await.1["state"], "ended");
    // Made after the end: reported once, reaped once more; a repeat of the report changes nothing.
    let provisioned = good_start("main", world.now()).swap_remove(1);
    world.report(&id, [provisioned.clone(), provisioned]).await;
    lab_testkit::wait_for("a report after the end", LIMIT, async || again().await == 3).await;
    let reaped = Kind::SessionReaped(v1::SessionReaped { ending_version: version });
    world.report(&id, [reaped]).await;
    world.outbox_is_empty().await;
    assert_eq!(world.kinds_of(&id).await.iter().filter(|k| **k == "session-ended").count(), 1);
    assert_eq!(again().await, 3);
}

#[tokio::test]
async fn a_machine_that_the_watch_tells_takes_its_place_at_once_and_frees_it() {
    let world = World::start().await;
    let used = async || {
        let (_, c) = world.call_as("root", Role::Teacher, 0, Method::GET, "/api/admin/capacity", None).await;
        c["used"].as_u64().unwrap()
    };
    let stranger = SessionId::generate().to_string();
    world.kube.put("w-1", &world.labels(&stranger));
    lab_testkit::wait_for("the machine", LIMIT, async || used().await == 1).await;
    world.kube.remove("w-1");
    lab_testkit::wait_for("its end", LIMIT, async || used().await == 0).await;
}
