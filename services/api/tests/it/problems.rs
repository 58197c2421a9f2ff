//! What bad input gets: a 4xx problem document with a stable code, and nothing changed.

use lab_kit::auth::Role;
use reqwest::Method;
use serde_json::json;

use crate::world::{World, answer, code};

#[tokio::test]
async fn senseless_requests_get_their_code_and_change_nothing() {
    let world = World::start().await;
    let stranger = world.start_lab("bob", "repair").await["id"].as_str().unwrap().to_owned();
    let nobody = uuid::Uuid::now_v7();
    let j = |v: serde_json::Value| Some(v);
    let (get, post, delete, put) = (Method::GET, Method::POST, Method::DELETE, Method::PUT);
    type Case = (Method, String, Option<serde_json::Value>, (u16, &'static str));
    let cases: Vec<Case> = vec![
        (post.clone(), "/api/sessions".into(), j(json!({"lab": "nothing"})), (404, "unknown_lab")),
        (post.clone(), "/api/sessions".into(), j(json!({"lab": "../etc"})), (404, "unknown_lab")),
        (post.clone(), "/api/sessions".into(), j(json!({"lab": "pods"})), (409, "lab_unsupported")),
        (post.clone(), "/api/sessions".into(), j(json!({"lab": 7})), (400, "invalid_request")),
        (post.clone(), "/api/sessions".into(), j(json!({})), (400, "invalid_request")),
        (
            post.clone(),
            "/api/sessions".into(),
            j(json!({"lab": "repair", "user": "bob"})),
            (400, "invalid_request"),
        ),
        (get.clone(), "/api/labs/nothing".into(), None, (404, "unknown_lab")),
        (get.clone(), "/api/sessions/current".into(), None, (404, "no_session")),
        (get.clone(), format!("/api/sessions/{nobody}"), None, (404, "not_found")),
        (get.clone(), "/api/sessions/x%00y".into(), None, (404, "not_found")),
        (get.clone(), format!("/api/sessions/{stranger}"), None, (404, "not_found")),
        (get.clone(), format!("/api/sessions/{stranger}/events"), None, (404, "not_found")),
        (delete.clone(), format!("/api/sessions/{stranger}"), None, (404, "not_found")),
        (post.clone(), format!("/api/sessions/{stranger}/extend"), None, (404, "not_found")),
        (post.clone(), format!("/api/sessions/{stranger}/steps/1/check"), j(json!({})), (404, "not_found")),
        (get.clone(), "/api/nothing".into(), None, (404, "not_found")),
        (get.clone(), "/nothing".into(), None, (404, "not_found")),
        (put, "/api/sessions".into(), j(json!({})), (405, "method_not_allowed")),
        (get, "/api/login".into(), None, (405, "method_not_allowed")),
        (delete, format!("/api/admin/sessions/{stranger}"), None, (403, "forbidden")),
        (post, "/api/admin/ghosts/release".into(), j(json!({"uids": []})), (403, "forbidden")),
    ];
    for (method, path, body, expected) in cases {
        let got = world.call("alice", method.clone(), &path, body).await;
        assert_eq!(code(&got), expected, "{method} {path}");
    }
    let bobs = world.get("bob", &format!("/api/sessions/{stranger}")).await.1;
    assert_eq!((bobs["state"].as_str(), bobs["version"].as_u64()), (Some("requested"), Some(1)));
    assert_eq!(world.count("select count(*) from session").await, 1);
}

#[tokio::test]
async fn a_huge_body_and_broken_json_are_refused() {
    let world = World::start().await;
    let token = world.token("alice", Role::Student);
    let post = || {
        let request = world.request(Method::POST, "/api/sessions").bearer_auth(&token);
        request.header("content-type", "application/json")
    };
    let huge = answer(post().body("x".repeat(70_000)).send().await.unwrap()).await;
    assert_eq!(code(&huge), (413, "payload_too_large"));
    let chunks = futures::stream::iter((0..80).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1024])));
    let unannounced = answer(post().body(reqwest::Body::wrap_stream(chunks)).send().await.unwrap()).await;
    assert_eq!(code(&unannounced), (413, "payload_too_large"));
    for broken in ["", "{", "nonsense", "{\"lab\":\"repair\"} trailing", "\u{fffd}"] {
        let refused = answer(post().body(broken).send().await.unwrap()).await;
        assert_eq!(code(&refused), (400, "invalid_request"), "{broken:?}");
    }
    let deep = "[".repeat(50_000);
    assert_eq!(code(&answer(post().body(deep).send().await.unwrap()).await), (400, "invalid_request"));
}

#[tokio::test]
async fn what_needs_a_ready_session_says_not_ready() {
    let world = World::start().await;
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    let extend = world.call("alice", Method::POST, &format!("/api/sessions/{id}/extend"), None).await;
    assert_eq!((code(&extend), extend.1["state"].as_str()), ((409, "not_ready"), Some("requested")));
    let check = |n: &str| {
        world.call(
            "alice",
            Method::POST,
            Box::leak(format!("/api/sessions/{id}/steps/{n}/check").into_boxed_str()),
            Some(json!({})),
        )
    };
    assert_eq!(code(&check("1").await), (409, "not_ready"));
    for n in ["0", "2", "3", "-1", "x", "99999999999999"] {
        assert_eq!(code(&check(n).await), (404, "unknown_step"), "{n}");
    }
}

#[tokio::test]
async fn the_catalogue_keeps_graders_and_solutions() {
    let world = World::start().await;
    let (_, labs) = world.get("alice", "/api/labs").await;
    let (_, lab) = world.get("alice", "/api/labs/repair").await;
    for text in [labs.to_string(), lab.to_string()] {
        assert!(!text.contains("SECRET"), "{text}");
    }
    assert_eq!(lab["steps"][0]["text"]["en"], "Do it.");
    assert_eq!(lab["steps"][0]["hint"]["zh"], "Hint");
    assert!(lab["steps"][1]["hint"].is_null());
    assert!(labs["labs"][0]["steps"][0].get("text").is_none());
    let pods = labs["labs"].as_array().unwrap().iter().find(|l| l["id"] == "pods").unwrap();
    assert_eq!((pods["supported"].as_bool(), pods["unsupported"].is_string()), (Some(false), true));
}
