use lab_domain::{Environment, InstallationId};
use time::macros::datetime;
use uuid::Uuid;

use super::*;

/// Keys made for this test; nothing else uses them.
const PRIVATE: &[u8] = b"-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIHgjCoKptgWfxk2GJoLugYtxeyWopkvpJsiHiFs1rkru
-----END PRIVATE KEY-----
";
const PUBLIC: &[u8] = b"-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAiZbWFfoAfQCGVlugyo2qglWOhDC8ithHnx5s+POji/c=
-----END PUBLIC KEY-----
";
const NOW: OffsetDateTime = datetime!(2026-12-01 12:00 UTC);

fn dev() -> Environment {
    Environment::new("dev").unwrap()
}

fn installation(n: u128) -> InstallationId {
    InstallationId(Uuid::from_u128(n))
}

fn token() -> String {
    let signer = Signer::new(PRIVATE, issuer(&dev(), installation(1))).unwrap();
    signer.sign("alice", &[Role::Student], NOW).unwrap()
}

fn verifier(n: u128) -> Verifier {
    Verifier::new(PUBLIC, &dev(), installation(n)).unwrap()
}

fn headers(pairs: &[(&'static str, String)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(*name, value.parse().unwrap());
    }
    map
}

#[test]
fn a_token_is_valid_for_twelve_hours_in_its_own_installation() {
    let (token, here) = (token(), verifier(1));
    let claims = here.verify(&token, NOW).unwrap();
    assert_eq!((claims.sub.as_str(), claims.roles.as_slice()), ("alice", [Role::Student].as_slice()));
    assert!(!claims.is_staff());
    assert!(!claims.is_in_second_half(NOW + Duration::from_secs(6 * 3600 - 1)));
    assert!(claims.is_in_second_half(NOW + Duration::from_secs(6 * 3600)));
    assert_eq!(here.verify(&token, NOW + TOKEN_LIFE), Err(Refused::Expired));
    assert_eq!(verifier(2).verify(&token, NOW), Err(Refused::Invalid));
}

#[test]
fn a_token_that_was_touched_is_refused() {
    let (token, here) = (token(), verifier(1));
    let mut parts: Vec<&str> = token.split('.').collect();
    // {"alg":"none"} and {"alg":"HS256"}.
    for header in ["eyJhbGciOiJub25lIn0", "eyJhbGciOiJIUzI1NiJ9"] {
        parts[0] = header;
        assert_eq!(here.verify(&parts.join("."), NOW), Err(Refused::Invalid));
        assert_eq!(here.verify(&format!("{}.{}.", parts[0], parts[1]), NOW), Err(Refused::Invalid));
    }
    for bad in ["", "a.b.c", &"a".repeat(10_000), &token[..token.len() - 4]] {
        assert_eq!(here.verify(bad, NOW), Err(Refused::Invalid));
    }
}

#[test]
fn the_bearer_goes_before_the_cookie_and_tells_how_it_came() {
    let here = verifier(1);
    let cookie = format!("a=b; {}={}; c=d", here.cookie(), token());
    let by = |pairs: &[(&'static str, String)]| here.authenticate(&headers(pairs), NOW).map(|(_, how)| how);
    assert_eq!(by(&[("cookie", cookie.clone())]), Ok(Carrier::Cookie));
    assert_eq!(by(&[("authorization", format!("Bearer {}", token()))]), Ok(Carrier::Bearer));
    assert_eq!(
        by(&[("authorization", "Bearer x".into()), ("cookie", cookie.clone())]),
        Err(Refused::Invalid)
    );
    assert_eq!(by(&[("authorization", "Basic eDp5".into())]), Err(Refused::Invalid));
    assert_eq!(by(&[("cookie", "lab_dev_x=1".into())]), Err(Refused::Missing));
    assert_eq!(by(&[]), Err(Refused::Missing));
}

#[test]
fn the_cookie_is_named_after_its_installation_and_unreadable_for_scripts() {
    let name = cookie_name(&dev(), installation(1));
    assert_eq!(name, "lab_dev_00000000000000000000000000000001");
    let cookie = set_cookie(&name, "t", true);
    for part in ["HttpOnly", "SameSite=Strict", "Secure", "Max-Age=43200", "Path=/"] {
        assert!(cookie.contains(part), "{part}");
    }
    assert!(!set_cookie(&name, "t", false).contains("Secure"));
}

#[test]
fn a_write_must_come_from_our_own_page() {
    let own = "http://127.0.0.1:8080";
    let allowed = |pairs: &[(&'static str, &str)]| {
        let pairs: Vec<_> = pairs.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
        origin_allowed(&headers(&pairs), own)
    };
    assert!(allowed(&[("origin", "http://127.0.0.1:8080")]));
    assert!(allowed(&[("origin", "http://localhost:8080")]));
    assert!(allowed(&[("origin", "http://[::1]:8080")]));
    assert!(!allowed(&[("origin", "http://localhost.evil.example:8080")]));
    assert!(allowed(&[("sec-fetch-site", "same-origin")]));
    for bad in [
        [("origin", "http://127.0.0.1:8081"), ("sec-fetch-site", "same-origin")].as_slice(),
        &[("origin", "https://127.0.0.1:8080")],
        &[("origin", "http://127.0.0.1")],
        &[("origin", "http://evil.example/http://127.0.0.1:8080")],
        &[("origin", "null")],
        &[("origin", "")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
        &[],
    ] {
        assert!(!allowed(bad), "{bad:?}");
    }
    assert!(origin_allowed(
        &headers(&[("origin", "https://lab.example".into())]),
        "https://lab.example:443/"
    ));
}

#[test]
fn a_key_that_is_no_key_is_refused_without_showing_it() {
    let error = Signer::new(b"secret", "x".into()).unwrap_err();
    assert!(!crate::telemetry::chain(&error).contains("secret"));
}
