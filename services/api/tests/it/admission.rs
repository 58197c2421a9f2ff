//! Who is let in, when many come at once.

use std::collections::HashMap;

use lab_kit::{Shutdown, auth::Role};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::world::{LIMIT, World, code, reap_all};

#[tokio::test]
async fn many_at_once_over_two_replicas_never_pass_the_cap_nor_one_per_student() {
    let mut world = World::start().await;
    world.add_replica().await;
    // Two places are taken by machines that no session of ours knows.
    for uid in ["ghost-1", "ghost-2"] {
        let session = uuid::Uuid::now_v7().to_string();
        world.kube.put(uid, &world.labels(&session));
    }
    let token = world.token("root", Role::Admin);
    for replica in 0..2 {
        lab_testkit::wait_for("the view of the strangers", LIMIT, async || {
            let url = world.url(replica, "/api/admin/capacity");
            let answer = reqwest::Client::new().get(url).bearer_auth(&token).send().await.unwrap();
            crate::world::answer(answer).await.1["used"] == 2
        })
        .await;
    }
    let calls = (0..120).map(|n| {
        let (world, user) = (&world, format!("student-{}", n % 40));
        async move {
            let body = Some(json!({"lab": "repair"}));
            let answer =
                world.call_as(&user, Role::Student, n % 2, Method::POST, "/api/sessions", body).await;
            (user, answer)
        }
    });
    let mut admitted: HashMap<String, usize> = HashMap::new();
    for (user, answer) in futures::future::join_all(calls).await {
        match code(&answer) {
            (201, _) => *admitted.entry(user).or_default() += 1,
            (409, "capacity") => {
                assert_eq!((answer.1["used"].as_u64(), answer.1["cap"].as_u64()), (Some(8), Some(8)));
                assert!(answer.1["expected_at"].is_string(), "{}", answer.1);
            }
            (409, "session_exists") => assert!(answer.1["session"]["id"].is_string()),
            other => panic!("{other:?}: {}", answer.1),
        }
    }
    assert_eq!(admitted.values().sum::<usize>(), 6, "{admitted:?}");
    assert!(admitted.values().all(|n| *n == 1), "{admitted:?}");
    assert_eq!(world.count("select count(*) from session").await, 6);
    world.outbox_is_empty().await;
}

#[tokio::test]
async fn a_lab_of_three_machines_takes_three_places() {
    let world = World::start().await;
    world.start_lab("a", "cluster").await;
    world.start_lab("b", "cluster").await;
    let third = world.call("c", Method::POST, "/api/sessions", Some(json!({"lab": "cluster"}))).await;
    assert_eq!(code(&third), (409, "capacity"));
    world.start_lab("c", "repair").await;
}

#[tokio::test]
async fn an_ending_session_lets_its_student_start_again_but_keeps_its_place() {
    let world = World::start().await;
    let mut ids = vec![];
    for _ in 0..2 {
        let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
        let twice = world.call("alice", Method::POST, "/api/sessions", Some(json!({"lab": "repair"}))).await;
        assert_eq!(
            (code(&twice), twice.1["session"]["id"].as_str()),
            ((409, "session_exists"), Some(id.as_str()))
        );
        let path = format!("/api/sessions/{id}");
        assert_eq!(world.call("alice", Method::DELETE, &path, None).await.0, StatusCode::ACCEPTED);
        assert_eq!(world.call("alice", Method::DELETE, &path, None).await.0, StatusCode::ACCEPTED);
        ids.push(id);
    }
    let third = world.call("alice", Method::POST, "/api/sessions", Some(json!({"lab": "repair"}))).await;
    assert_eq!(code(&third), (409, "session_ending"));
    let (_, capacity) =
        world.call_as("root", Role::Teacher, 0, Method::GET, "/api/admin/capacity", None).await;
    assert_eq!((capacity["used"].as_u64(), capacity["sessions"].as_u64()), (Some(2), Some(2)));
    let reaper = Shutdown::new();
    reap_all(&world, &reaper).await;
    for id in ids {
        world.until("alice", &id, "ended").await;
    }
    world.start_lab("alice", "repair").await;
    reaper.token.cancel();
}

#[tokio::test]
async fn an_unknown_cluster_admits_nobody_until_it_is_known_again() {
    let world = World::start().await;
    world.kube.set_broken(true);
    let body = || Some(json!({"lab": "repair"}));
    lab_testkit::wait_for("cluster_unknown", LIMIT, async || {
        let answer = world.call("alice", Method::POST, "/api/sessions", body()).await;
        if answer.0 == StatusCode::CREATED {
            let path = format!("/api/sessions/{}", answer.1["id"].as_str().unwrap());
            world.call("alice", Method::DELETE, &path, None).await;
        }
        code(&answer) == (503, "cluster_unknown") || code(&answer) == (409, "session_ending")
    })
    .await;
    lab_testkit::wait_for("cluster_unknown for a newcomer", LIMIT, async || {
        let (_, capacity) =
            world.call_as("root", Role::Admin, 0, Method::GET, "/api/admin/capacity", None).await;
        capacity["used"].is_null()
    })
    .await;
    let answer = world.call("bob", Method::POST, "/api/sessions", body()).await;
    assert_eq!(code(&answer), (503, "cluster_unknown"));
    let ghosts = world.call_as("root", Role::Admin, 0, Method::GET, "/api/admin/ghosts", None).await;
    assert_eq!(code(&ghosts), (503, "cluster_unknown"));
    world.kube.set_broken(false);
    lab_testkit::wait_for("a known cluster", LIMIT, async || {
        world.call("bob", Method::POST, "/api/sessions", body()).await.0 == StatusCode::CREATED
    })
    .await;
}
