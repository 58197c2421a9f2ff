//! A broker that goes away, a replica that dies, a shutdown with open streams.

use std::time::{Duration, Instant};

use lab_bus::Identity;
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::world::{LIMIT, Sse, World, code, good_start};

#[tokio::test]
async fn without_a_broker_what_was_decided_waits_and_after_ten_seconds_nothing_more_is_started() {
    let mut world = World::start().await;
    world.nats.kill();
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    world.clock.advance(Duration::from_secs(11));
    let refused = world.call("bob", Method::POST, "/api/sessions", Some(json!({"lab": "repair"}))).await;
    assert_eq!(code(&refused), (503, "bus_unreachable"));
    // Ending is always possible.
    let (status, _) = world.call("alice", Method::DELETE, &format!("/api/sessions/{id}"), None).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    world.nats.restart().await.unwrap();
    world.outbox_is_empty().await;
    assert_eq!(world.kinds_of(&id).await, ["session-requested", "session-ending"]);
    world.start_lab("bob", "repair").await;
}

#[tokio::test]
async fn what_a_dead_replica_left_is_published_by_the_next_one() {
    let mut world = World::start().await;
    let proxy = lab_testkit::Proxy::start(([127, 0, 0, 1], world.nats.port()).into()).await.unwrap();
    world.replicas.clear();
    world.add_replica_at(&format!("nats://{}", proxy.address())).await;
    proxy.cut();
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    assert!(world.count("select count(*) from outbox").await > 0);
    world.replicas.clear();
    world.add_replica().await;
    world.outbox_is_empty().await;
    assert_eq!(world.kinds_of(&id).await, ["session-requested"]);
    world.make_ready("alice", &id).await;
}

#[tokio::test]
async fn a_broker_that_is_killed_loses_no_fact_and_decides_nothing_twice() {
    let mut world = World::start().await;
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    world.outbox_is_empty().await;
    world.report(&id, good_start("main", world.now()).into_iter().take(3)).await;
    world.nats.restart().await.unwrap();
    world.report(&id, good_start("main", world.now())).await;
    world.until("alice", &id, "ready").await;
    world.outbox_is_empty().await;
    let ready = world.kinds_of(&id).await.into_iter().filter(|k| *k == "session-ready").count();
    assert_eq!(ready, 1);
}

#[tokio::test]
async fn a_shutdown_ends_open_event_streams_at_once() {
    let world = World::start().await;
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    let token = world.token("alice", lab_kit::auth::Role::Student);
    let path = format!("/api/sessions/{id}/events");
    let mut page = Sse::open(world.request(Method::GET, &path).bearer_auth(&token)).await;
    page.next().await.unwrap();
    let admin = world.token("root", lab_kit::auth::Role::Admin);
    let mut staff = Sse::open(world.request(Method::GET, "/api/admin/events").bearer_auth(&admin)).await;
    let shutdown = world.replicas[0].shutdown.clone();
    let started = Instant::now();
    shutdown.token.cancel();
    assert!(shutdown.finish(LIMIT).await);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(page.next().await.is_none());
    assert!(staff.next().await.is_none());
}

#[tokio::test]
async fn a_database_that_is_away_or_holds_nonsense_is_told_without_its_text() {
    let world = World::start().await;
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    world.outbox_is_empty().await;
    sqlx::query("update session set lab = 'Not A Lab'").execute(&world.pool).await.unwrap();
    let broken = world.get("alice", &format!("/api/sessions/{id}")).await;
    assert_eq!(code(&broken), (500, "internal"));
    assert!(!broken.1.to_string().contains("Not A Lab"));
    sqlx::query("update session set lab = 'repair'").execute(&world.pool).await.unwrap();

    let name: String =
        sqlx::query_scalar("select current_database()::text").fetch_one(&world.pool).await.unwrap();
    let url = world.pg.url().replace(&format!("/{name}"), "/postgres");
    let server = sqlx::PgPool::connect(&url).await.unwrap();
    let run = async |sql: String| sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&server).await.unwrap();
    run(format!("alter database {name} allow_connections false")).await;
    let cut = format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'");
    run(cut).await;
    lab_testkit::wait_for("the cut", LIMIT, async || {
        code(&world.get("alice", &format!("/api/sessions/{id}")).await) == (503, "unavailable")
    })
    .await;
    run(format!("alter database {name} allow_connections true")).await;
    // And everything goes on: the listener, the relay, the projection.
    world.make_ready("alice", &id).await;
    world.outbox_is_empty().await;
}

#[tokio::test]
async fn a_replica_whose_installation_is_not_agreed_on_starts_nothing() {
    let mut world = World::start().await;
    let bus = world.bus(Identity::Readiness).await;
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    world.replicas.clear();
    // As after a restore of another environment's backup.
    sqlx::query("update installation set environment = 'prod'").execute(&world.pool).await.unwrap();
    world.add_closed_replica().await;
    let refused = world.call("bob", Method::POST, "/api/sessions", Some(json!({"lab": "repair"}))).await;
    assert_eq!(code(&refused), (503, "not_serving"));
    world.report(&id, good_start("main", world.now())).await;
    let q = lab_proto::v1::GetSessionRequest { session_id: id.clone() };
    let asked: Result<lab_proto::v1::GetSessionResponse, _> =
        bus.ask(lab_proto::subjects::GET_SESSION, &q, Duration::from_secs(5)).await;
    assert!(matches!(asked, Err(lab_bus::Error::Refused { code, .. }) if code == "not_ready"));
    assert_eq!(world.get("alice", &format!("/api/sessions/{id}")).await.1["state"], "requested");
}
