//! Signing in, and what a cookie may and may not do.

use std::time::Duration;

use lab_kit::auth::{self, Role};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::world::{ORIGIN, World, answer, code, dev};

#[tokio::test]
async fn a_login_gives_a_cookie_that_works_until_logout() {
    let world = World::start().await;
    let body = json!({"user": "alice", "role": "student"});
    let response = world.request(Method::POST, "/api/login").json(&body).send().await.unwrap();
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert_eq!(answer(response).await, (StatusCode::OK, json!({"user": "alice", "roles": ["student"]})));
    let name = auth::cookie_name(&dev(), world.installation);
    assert!(cookie.starts_with(&format!("{name}=")), "{cookie}");
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
        assert!(cookie.contains(part), "{part} in {cookie}");
    }
    let pair = cookie.split(';').next().unwrap();
    let me = world.request(Method::GET, "/api/me").header("cookie", pair).send().await.unwrap();
    let (_, me) = answer(me).await;
    assert_eq!(me, json!({"user": "alice", "roles": ["student"], "environment": "dev", "dev_login": true}));
    let out = world.request(Method::POST, "/api/logout").header("cookie", pair).header("origin", ORIGIN);
    let out = out.header("content-type", "application/json").send().await.unwrap();
    assert_eq!(out.status(), StatusCode::NO_CONTENT);
    assert!(out.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
}

#[tokio::test]
async fn a_login_from_another_site_or_with_nonsense_is_refused() {
    let world = World::start().await;
    let login = |body: serde_json::Value| world.request(Method::POST, "/api/login").json(&body);
    let alice = || json!({"user": "alice", "role": "student"});
    let evil = answer(login(alice()).header("origin", "http://evil.example").send().await.unwrap()).await;
    assert_eq!(code(&evil), (403, "origin"));
    for body in [
        json!({"user": "alice", "role": "emperor"}),
        json!({"user": "", "role": "student"}),
        json!({"user": "a\u{0}b", "role": "student"}),
        json!({"user": "alice", "role": "student", "extra": 1}),
        json!({"user": 7, "role": "student"}),
        json!([]),
    ] {
        let refused = answer(login(body.clone()).send().await.unwrap()).await;
        assert_eq!(code(&refused), (400, "invalid_request"), "{body}");
    }
}

#[tokio::test]
async fn a_write_by_cookie_needs_our_origin_and_json() {
    let world = World::start().await;
    let cookie = world.cookie(&world.token("alice", Role::Student));
    let start = |origin: Option<(&'static str, &'static str)>, kind: &'static str| {
        let request = world.request(Method::POST, "/api/sessions").header("cookie", &cookie);
        let request = match origin {
            Some((name, value)) => request.header(name, value),
            None => request,
        };
        request.header("content-type", kind).body(r#"{"lab":"repair"}"#).send()
    };
    let json_type = "application/json";
    for origin in [
        None,
        Some(("origin", "http://evil.example")),
        Some(("origin", "null")),
        Some(("origin", "http://lab.example:8081")),
        Some(("sec-fetch-site", "cross-site")),
        Some(("sec-fetch-site", "same-site")),
    ] {
        let refused = answer(start(origin, json_type).await.unwrap()).await;
        assert_eq!(code(&refused), (403, "origin"), "{origin:?}");
    }
    let form = answer(start(Some(("origin", ORIGIN)), "text/plain").await.unwrap()).await;
    assert_eq!(code(&form), (415, "invalid_request"));
    assert_eq!(world.count("select count(*) from session").await, 0, "nothing changed");
    let allowed = answer(start(Some(("sec-fetch-site", "same-origin")), json_type).await.unwrap()).await;
    assert_eq!(allowed.0, StatusCode::CREATED);
    let again = answer(start(Some(("origin", ORIGIN)), json_type).await.unwrap()).await;
    assert_eq!(code(&again), (409, "session_exists"));
}

#[tokio::test]
async fn tokens_that_are_expired_foreign_or_broken_let_nobody_in() {
    let world = World::start().await;
    let me = |token: String| world.request(Method::GET, "/api/me").bearer_auth(token).send();
    let good = world.token("alice", Role::Student);
    assert_eq!(me(good.clone()).await.unwrap().status(), StatusCode::OK);
    let mut broken = good.clone();
    broken.replace_range(good.len() - 8.., "AAAAAAAA");
    for bad in [String::from("x"), broken, "a".repeat(5000)] {
        assert_eq!(code(&answer(me(bad).await.unwrap()).await), (401, "unauthorized"));
    }
    let none = answer(world.request(Method::GET, "/api/me").send().await.unwrap()).await;
    assert_eq!((code(&none), none.1["dev_login"].as_bool()), ((401, "unauthorized"), Some(true)));
    world.clock.advance(Duration::from_secs(12 * 3600));
    assert_eq!(code(&answer(me(good).await.unwrap()).await), (401, "unauthorized"));
}

#[tokio::test]
async fn a_cookie_is_renewed_in_the_second_half_of_its_life_only() {
    let world = World::start().await;
    let cookie = world.cookie(&world.token("alice", Role::Student));
    let labs = || world.request(Method::GET, "/api/labs").header("cookie", &cookie).send();
    assert!(!labs().await.unwrap().headers().contains_key("set-cookie"));
    world.clock.advance(Duration::from_secs(7 * 3600));
    let renewed = labs().await.unwrap().headers()["set-cookie"].to_str().unwrap().to_owned();
    let pair = renewed.split(';').next().unwrap().to_owned();
    world.clock.advance(Duration::from_secs(7 * 3600));
    assert_eq!(labs().await.unwrap().status(), StatusCode::UNAUTHORIZED, "the first one is over");
    let me = world.request(Method::GET, "/api/me").header("cookie", pair).send().await.unwrap();
    assert_eq!(me.status(), StatusCode::OK);
}

#[tokio::test]
async fn staff_pages_ask_for_the_role() {
    let world = World::start().await;
    for path in ["sessions", "stats", "capacity", "ghosts", "events"] {
        let path = format!("/api/admin/{path}");
        let student = world.get("alice", &path).await;
        assert_eq!(code(&student), (403, "forbidden"), "{path}");
        if !path.ends_with("events") {
            let teacher = world.call_as("t", Role::Teacher, 0, Method::GET, &path, None).await;
            assert_eq!(teacher.0, StatusCode::OK, "{path}: {}", teacher.1);
        }
    }
    let id = world.start_lab("alice", "repair").await["id"].as_str().unwrap().to_owned();
    let path = format!("/api/admin/sessions/{id}");
    let teacher = world.call_as("t", Role::Teacher, 0, Method::DELETE, &path, None).await;
    assert_eq!(code(&teacher), (403, "forbidden"));
    let (_, all) = world.call_as("t", Role::Teacher, 0, Method::GET, "/api/admin/sessions", None).await;
    assert_eq!(
        (all["sessions"][0]["owner"].as_str(), all["sessions"][0]["id"].as_str()),
        (Some("alice"), Some(id.as_str()))
    );
    let (status, ended) = world.call_as("root", Role::Admin, 0, Method::DELETE, &path, None).await;
    assert_eq!((status, ended["reason"].as_str()), (StatusCode::ACCEPTED, Some("admin")));
}
