//! What bad input gets: a problem document with a stable code, and nothing changes.

use std::time::Duration;

use lab_e2e::{Student, Terminal};
use lab_stack::{Options, Stack};
use reqwest::{Method, header};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);
const LAB: &str = "systemd-repair";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_gets_a_problem_with_a_stable_code_and_changes_nothing() {
    let stack = Stack::start(Options::sim()).await.unwrap();
    let alice = Student::login(&stack.web_url(), "alice", "student").await.unwrap();
    let mallory = Student::login(&stack.web_url(), "mallory", "student").await.unwrap();
    let id = alice.start(LAB).await.unwrap();

    let expect =
        async |who: &Student, method: Method, path: &str, body: Option<Value>, status: u16, code: &str| {
            let answer = who.call(method.clone(), path, body).await.unwrap();
            assert_eq!(
                (answer.status.as_u16(), answer.code()),
                (status, code),
                "{method} {path}: {}",
                answer.body
            );
            assert_eq!(answer.content_type, "application/problem+json", "{method} {path}");
            assert_eq!(answer.body["type"], format!("urn:ttlab:problem:{code}"), "{method} {path}");
            assert!(answer.body["detail"].as_str().is_some_and(|d| !d.is_empty()), "{method} {path}");
        };
    let session = format!("/api/sessions/{id}");
    expect(&alice, Method::POST, "/api/sessions", Some(json!({"lab": LAB})), 409, "session_exists").await;
    alice.wait_for(&id, "ready", SOON).await.unwrap();
    let before = alice.session(&id).await.unwrap();

    expect(&mallory, Method::POST, "/api/sessions", Some(json!({"lab": "nope"})), 404, "unknown_lab").await;
    expect(&mallory, Method::POST, "/api/sessions", Some(json!({"lab": "../../etc"})), 404, "unknown_lab")
        .await;
    expect(&mallory, Method::POST, "/api/sessions", Some(json!({"lab": 7})), 400, "invalid_request").await;
    expect(&mallory, Method::POST, "/api/sessions", Some(json!([])), 400, "invalid_request").await;
    for method in [Method::GET, Method::DELETE] {
        expect(&mallory, method, &session, None, 404, "not_found").await;
    }
    expect(&mallory, Method::POST, &format!("{session}/extend"), Some(json!({})), 404, "not_found").await;
    expect(&mallory, Method::POST, &format!("{session}/steps/1/check"), Some(json!({})), 404, "not_found")
        .await;
    expect(&mallory, Method::GET, &format!("{session}/console"), None, 404, "not_found").await;
    expect(&mallory, Method::GET, "/api/sessions/not-an-id", None, 404, "not_found").await;
    expect(&mallory, Method::GET, "/api/admin/sessions", None, 403, "forbidden").await;
    expect(&alice, Method::POST, &format!("{session}/steps/99/check"), Some(json!({})), 404, "unknown_step")
        .await;
    expect(&alice, Method::GET, &format!("{session}/console?machine=nope"), None, 404, "unknown_machine")
        .await;
    let huge = "x".repeat(3 * 1024 * 1024);
    expect(&alice, Method::POST, "/api/sessions", Some(json!({"lab": huge})), 413, "payload_too_large").await;

    // The console, with an upgrade.
    let refused =
        Terminal::open(mallory.base(), &id, mallory.cookie(), mallory.base(), None).await.unwrap_err();
    assert!(refused.to_string().starts_with("404"), "{refused}");
    let refused =
        Terminal::open(alice.base(), &id, alice.cookie(), "http://evil.example", None).await.unwrap_err();
    assert!(refused.to_string().starts_with("403"), "{refused}");
    let refused = Terminal::open(alice.base(), &id, "x=y", alice.base(), None).await.unwrap_err();
    assert!(refused.to_string().starts_with("401"), "{refused}");

    // Another site's form, and a token that is none.
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = || http.post(format!("{}/api/sessions", alice.base())).body(json!({"lab": LAB}).to_string());
    let foreign = post()
        .header(header::COOKIE, alice.cookie())
        .header(header::ORIGIN, "http://evil.example")
        .header(header::CONTENT_TYPE, "application/json");
    assert_eq!(foreign.send().await.unwrap().status(), 403);
    let form = post()
        .header(header::COOKIE, alice.cookie())
        .header(header::ORIGIN, alice.base())
        .header(header::CONTENT_TYPE, "text/plain");
    assert!(form.send().await.unwrap().status().is_client_error());
    let unsigned = post()
        .header(header::AUTHORIZATION, "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.")
        .header(header::CONTENT_TYPE, "application/json");
    assert_eq!(unsigned.send().await.unwrap().status(), 401);

    let mut after = alice.session(&id).await.unwrap();
    after["now"] = before["now"].clone();
    assert_eq!(after, before, "refusals change nothing");
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_house_says_so_and_when_a_place_is_expected() {
    let mut options = Options::sim();
    options.vm_cap = 1;
    let stack = Stack::start(options).await.unwrap();
    let alice = Student::login(&stack.web_url(), "alice", "student").await.unwrap();
    let bob = Student::login(&stack.web_url(), "bob", "student").await.unwrap();
    let id = alice.start(LAB).await.unwrap();
    let refused = bob.post("/api/sessions", json!({"lab": LAB})).await.unwrap();
    assert_eq!((refused.status.as_u16(), refused.code()), (409, "capacity"), "{}", refused.body);
    assert_eq!((&refused.body["used"], &refused.body["cap"]), (&json!(1), &json!(1)));
    alice.wait_for(&id, "ready", SOON).await.unwrap();
    alice.end(&id).await.unwrap();
    alice.wait_for(&id, "ended", SOON * 2).await.unwrap();
    bob.start(LAB).await.unwrap();
    stack.stop().await;
}
