//! Signing in through an identity provider, played by the test.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    extract::State,
    routing::{get, post},
};
use lab_api::config::OidcArgs;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use url::Url;

use crate::world::{KEY, World, answer, code};

#[derive(Clone, Default)]
struct Provider {
    address: String,
    /// What the browser was sent with.
    nonce: Arc<Mutex<String>>,
    challenge: Arc<Mutex<String>>,
    audience: Arc<Mutex<String>>,
}

async fn provider() -> Provider {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let provider = Provider { address, ..Default::default() };
    *provider.audience.lock().unwrap() = "lab".into();
    let router = Router::new()
        .route("/.well-known/openid-configuration", get(discovery))
        .route("/keys", get(keys))
        .route("/token", post(token))
        .with_state(provider.clone());
    tokio_util::task::TaskTracker::new().spawn(async move { axum::serve(listener, router).await });
    provider
}

async fn discovery(State(p): State<Provider>) -> Json<Value> {
    let at = |path: &str| format!("{}{path}", p.address);
    Json(
        json!({"issuer": p.address, "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"), "jwks_uri": at("/keys")}),
    )
}

async fn keys() -> Json<Value> {
    let x = "Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE";
    Json(
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "alg": "EdDSA", "use": "sig", "x": x}]}),
    )
}

async fn token(State(p): State<Provider>, body: String) -> (StatusCode, Json<Value>) {
    let form: std::collections::HashMap<_, _> =
        url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    let challenge = {
        use base64::Engine as _;
        use sha2::Digest as _;
        base64::engine::general_purpose::URL_SAFE_NO_PAD
            .encode(sha2::Sha256::digest(form["code_verifier"].as_bytes()))
    };
    if form["code"] != "good" || challenge != *p.challenge.lock().unwrap() || form["client_id"] != "lab" {
        return (StatusCode::BAD_REQUEST, Json(json!({"error": "invalid_grant"})));
    }
    let now = jsonwebtoken::get_current_timestamp();
    let claims = json!({
        "iss": p.address, "aud": *p.audience.lock().unwrap(), "sub": "carol", "exp": now + 60, "iat": now,
        "nonce": *p.nonce.lock().unwrap(), "roles": ["teacher", "something"]
    });
    let mut header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::EdDSA);
    header.kid = Some("k".into());
    let key = jsonwebtoken::EncodingKey::from_ed_pem(KEY.as_bytes()).unwrap();
    let id_token = jsonwebtoken::encode(&header, &claims, &key).unwrap();
    (StatusCode::OK, Json(json!({"id_token": id_token, "access_token": "unused", "token_type": "Bearer"})))
}

/// The browser at `/api/auth/login`: the attempt's cookie and its state.
async fn begin(world: &World, provider: &Provider) -> (String, String) {
    let sent = world.request(Method::GET, "/api/auth/login").send().await.unwrap();
    assert_eq!(sent.status(), StatusCode::SEE_OTHER);
    let cookie = sent.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(
        cookie.contains("SameSite=Lax") && cookie.contains("HttpOnly") && cookie.contains("Path=/api/auth")
    );
    let url = Url::parse(sent.headers()["location"].to_str().unwrap()).unwrap();
    let query: std::collections::HashMap<_, _> = url.query_pairs().into_owned().collect();
    assert_eq!((query["code_challenge_method"].as_str(), query["response_type"].as_str()), ("S256", "code"));
    provider.nonce.lock().unwrap().clone_from(&query["nonce"]);
    provider.challenge.lock().unwrap().clone_from(&query["code_challenge"]);
    (cookie.split(';').next().unwrap().to_owned(), query["state"].clone())
}

#[tokio::test]
async fn a_code_gives_the_same_cookie_as_a_login_and_only_to_who_began() {
    let provider = provider().await;
    let mut world = World::bare().await;
    world.oidc = Some(OidcArgs {
        oidc_issuer: Some(Url::parse(&provider.address).unwrap()),
        oidc_client_id: Some("lab".into()),
        oidc_client_secret_file: None,
        oidc_roles_claim: "roles".into(),
    });
    world.add_replica().await;
    let back = |cookie: String, code: &'static str, state: String| {
        let path = format!("/api/auth/callback?code={code}&state={state}");
        world.request(Method::GET, &path).header("cookie", cookie).send()
    };
    let (cookie, state) = begin(&world, &provider).await;
    let done = back(cookie.clone(), "good", state.clone()).await.unwrap();
    assert_eq!((done.status(), done.headers()["location"].to_str().unwrap()), (StatusCode::SEE_OTHER, "/"));
    let signed_in = done.headers().get_all("set-cookie").iter().next().unwrap().to_str().unwrap().to_owned();
    let me = world.request(Method::GET, "/api/me").header("cookie", signed_in.split(';').next().unwrap());
    let (_, me) = answer(me.send().await.unwrap()).await;
    assert_eq!(
        (me["user"].as_str(), me["roles"].to_string().as_str()),
        (Some("carol"), r#"["student","teacher"]"#)
    );

    for (cookie, word, state) in [
        (String::from("x=y"), "good", state.clone()),
        (cookie.clone(), "good", String::from("another")),
        (cookie.clone(), "good", String::new()),
    ] {
        let refused = answer(back(cookie, word, state).await.unwrap()).await;
        assert_eq!(code(&refused), (401, "unauthorized"));
    }
    let bad_code = answer(back(cookie.clone(), "bad", state.clone()).await.unwrap()).await;
    assert_eq!(code(&bad_code), (503, "unavailable"));
    *provider.nonce.lock().unwrap() = "another".into();
    assert_eq!(code(&answer(back(cookie, "good", state).await.unwrap()).await), (401, "unauthorized"));
    let (cookie, state) = begin(&world, &provider).await;
    *provider.audience.lock().unwrap() = "another client".into();
    assert_eq!(code(&answer(back(cookie, "good", state).await.unwrap()).await), (401, "unauthorized"));
}

#[tokio::test]
async fn without_a_provider_there_is_no_such_sign_in() {
    let world = World::start().await;
    for path in ["/api/auth/login", "/api/auth/callback?code=a&state=b"] {
        let refused = answer(world.request(Method::GET, path).send().await.unwrap()).await;
        assert_eq!(code(&refused), (404, "not_found"));
    }
}
