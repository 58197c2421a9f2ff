//! The static page.

use reqwest::{Method, StatusCode};

use crate::world::{World, answer, code};

#[tokio::test]
async fn the_page_is_served_with_its_headers_and_knows_its_own_routes() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("assets")).unwrap();
    std::fs::write(dir.path().join("index.html"), "<!doctype html>page").unwrap();
    std::fs::write(dir.path().join("assets/app-1234abcd.js"), "1").unwrap();
    let mut world = World::bare().await;
    world.web = Some(dir.path().to_owned());
    world.add_replica().await;
    let get = |path: &'static str| world.request(Method::GET, path).send();
    for path in ["/", "/labs/repair", "/index.html", "/session"] {
        let page = get(path).await.unwrap();
        assert_eq!(page.status(), StatusCode::OK, "{path}");
        let header = |name: &str| page.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("cache-control"), "no-cache");
        assert_eq!(header("x-content-type-options"), "nosniff");
        let policy = header("content-security-policy");
        assert!(
            policy.contains("script-src 'self'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(header("content-type").starts_with("text/html"), "{path}");
        assert_eq!(page.text().await.unwrap(), "<!doctype html>page");
    }
    let asset = get("/assets/app-1234abcd.js").await.unwrap();
    assert_eq!(asset.headers()["cache-control"], "public, max-age=31536000, immutable");
    for missing in ["/assets/app-old.js", "/api/nothing", "/api"] {
        assert_eq!(code(&answer(get(missing).await.unwrap()).await), (404, "not_found"), "{missing}");
    }
    let outside = get("/..%2f..%2fetc%2fpasswd").await.unwrap();
    assert!(!outside.text().await.unwrap().contains("root:"));
    let api = get("/api/me").await.unwrap();
    assert_eq!(api.headers()["cache-control"], "no-store");
}
