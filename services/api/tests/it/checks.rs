//! Checking a step through readiness.

use lab_bus::{Identity, Refusal};
use lab_kit::Shutdown;
use lab_proto::{
    subjects::{GRADE, READINESS_QUEUE},
    v1,
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::world::{World, code};

async fn grader(world: &World, shutdown: &Shutdown, outcome: v1::CheckOutcome, output: &str) {
    let output = output.to_owned();
    let handler = move |q: v1::GradeRequest| {
        let output = output.clone();
        async move {
            if !String::from_utf8_lossy(&q.script).contains("SECRET GRADER") || q.machine != "main" {
                return Err(Refusal("malformed"));
            }
            Ok(v1::GradeResponse { outcome: outcome.into(), exit_code: 3, output, ..Default::default() })
        }
    };
    let bus = world.bus(Identity::Readiness).await;
    shutdown.spawn(bus.answer(GRADE, READINESS_QUEUE, handler, shutdown.token.clone()));
    // The subscription is there when somebody is heard.
    lab_testkit::wait_for("a grader", crate::world::LIMIT, async || {
        let asked = world.bus(Identity::Api).await;
        let answer: Result<v1::GradeResponse, _> =
            asked.ask(GRADE, &v1::GradeRequest::default(), std::time::Duration::from_secs(1)).await;
        answer.is_err_and(|e| !e.is_unheard())
    })
    .await;
}

async fn ready(world: &World) -> String {
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    world.make_ready("alice", &id).await;
    id
}

async fn check(world: &World, id: &str, auto: bool) -> (StatusCode, Value) {
    let path = format!("/api/sessions/{id}/steps/1/check");
    world.call("alice", Method::POST, &path, Some(json!({"auto": auto}))).await
}

#[tokio::test]
async fn a_check_is_graded_recorded_and_counts_as_activity_unless_automatic() {
    let world = World::start().await;
    let id = ready(&world).await;
    let idle = |s: &Value| s["idle_at"].as_str().unwrap().to_owned();
    let path = format!("/api/sessions/{id}");
    let before = idle(&world.get("alice", &path).await.1);
    world.clock.advance(std::time::Duration::from_secs(60));
    let readiness = Shutdown::new();
    grader(&world, &readiness, v1::CheckOutcome::Failed, "not\0yet").await;
    for _ in 0..3 {
        let (status, auto) = check(&world, &id, true).await;
        assert_eq!((status, auto["outcome"].as_str()), (StatusCode::OK, Some("failed")));
        assert_eq!((auto["output"].as_str(), auto["exit_code"].as_i64()), (Some("not\u{fffd}yet"), Some(3)));
    }
    assert_eq!(idle(&world.get("alice", &path).await.1), before);
    let (_, by_hand) = check(&world, &id, false).await;
    assert_eq!(by_hand["auto"], false);
    let session = world.get("alice", &path).await.1;
    assert_ne!(idle(&session), before);
    assert_eq!(
        (session["checks"][0]["step"].as_u64(), session["checks"][0]["outcome"].as_str()),
        (Some(1), Some("failed"))
    );
    world.outbox_is_empty().await;
    let completed = world.kinds_of(&id).await.into_iter().filter(|k| *k == "check-completed").count();
    assert_eq!(completed, 2, "an automatic check that tells nothing new is no event");
    for (_, _, event) in world.events().await {
        assert!(!format!("{event:?}").contains("yet"), "no output on the bus");
    }
    readiness.token.cancel();
}

#[tokio::test]
async fn without_readiness_a_check_has_no_verdict() {
    let world = World::start().await;
    let id = ready(&world).await;
    let (status, result) = check(&world, &id, false).await;
    assert_eq!((status, result["outcome"].as_str()), (StatusCode::OK, Some("error")));
    assert_eq!(result["cause"], "grader_unavailable");
    let odd = world
        .call("alice", Method::POST, &format!("/api/sessions/{id}/steps/1/check"), Some(json!({"x": 1})))
        .await;
    assert_eq!(code(&odd), (400, "invalid_request"));
}
