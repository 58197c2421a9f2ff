//! Signing in through an OpenID Connect provider: authorization code flow with PKCE.
//!
//! ```text
//!  /api/auth/login ─▶ provider (state, nonce, S256 challenge) ─▶ /api/auth/callback?code ─▶ token endpoint ─▶ ID token
//! ```
//!
//! The attempt (state, nonce, verifier) travels in a short-lived cookie of the browser that began it, so a code that
//! was obtained elsewhere cannot be redeemed here. Only the ID token is used; no access token is kept.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, jwk::JwkSet};
use lab_domain::OwnerName;
use lab_kit::auth::Role;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;
use url::Url;

/// No request to the provider takes longer.
const REQUEST: Duration = Duration::from_secs(10);
/// Signatures that are accepted: asymmetric ones only, never a secret that the client shares.
const ALGORITHMS: [Algorithm; 4] = [Algorithm::RS256, Algorithm::PS256, Algorithm::ES256, Algorithm::EdDSA];

/// How we are known to the provider.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) issuer: Url,
    pub(crate) client_id: String,
    pub(crate) client_secret: Option<SecretString>,
    /// `<public URL>/api/auth/callback`.
    pub(crate) redirect: String,
    /// Claim with a list of words, of which `teacher` and `admin` give those roles.
    pub(crate) roles_claim: String,
}

/// What went wrong on the way to a signed-in user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The provider does not answer as it should.
    #[error("the identity provider could not be asked for {what}")]
    Provider {
        what: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer does not belong to this attempt, or its token is not valid.
    #[error("the identity provider's answer was refused: {0}")]
    Refused(&'static str),
}

fn provider<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    what: &'static str,
) -> impl FnOnce(E) -> Error {
    move |source| Error::Provider { what, source: source.into() }
}

#[derive(Debug, Clone, Deserialize)]
struct Endpoints {
    issuer: String,
    authorization_endpoint: Url,
    token_endpoint: Url,
    jwks_uri: Url,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

/// What the browser keeps while it is at the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) state: String,
    nonce: String,
    verifier: String,
}

impl Attempt {
    fn new() -> Self {
        let word = || URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        Self { state: word(), nonce: word(), verifier: word() }
    }

    /// For the cookie. The alphabet of the parts has no dot.
    pub(crate) fn to_cookie(&self) -> String {
        format!("{}.{}.{}", self.state, self.nonce, self.verifier)
    }

    pub(crate) fn from_cookie(text: &str) -> Option<Self> {
        let mut parts = text.split('.').map(str::to_owned);
        let attempt = Self { state: parts.next()?, nonce: parts.next()?, verifier: parts.next()? };
        parts.next().is_none().then_some(attempt)
    }

    fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }
}

/// Who signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) owner: OwnerName,
    pub(crate) roles: Vec<Role>,
}

/// A client of one provider.
#[derive(Debug)]
pub(crate) struct Oidc {
    settings: Settings,
    http: reqwest::Client,
    endpoints: OnceCell<Endpoints>,
}

impl Oidc {
    pub(crate) fn new(settings: Settings) -> Result<Self, Error> {
        let http = reqwest::Client::builder()
            .timeout(REQUEST)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(provider("anything"))?;
        Ok(Self { settings, http, endpoints: OnceCell::new() })
    }

    async fn endpoints(&self) -> Result<&Endpoints, Error> {
        let discover = async {
            let issuer = self.settings.issuer.as_str().trim_end_matches('/');
            let url = format!("{issuer}/.well-known/openid-configuration");
            let found: Endpoints = self.get(&url, "its endpoints").await?;
            if found.issuer.trim_end_matches('/') == issuer {
                Ok(found)
            } else {
                Err(Error::Refused("it calls itself by another name"))
            }
        };
        self.endpoints.get_or_try_init(|| discover).await
    }

    async fn get<T: for<'de> Deserialize<'de>>(&self, url: &str, what: &'static str) -> Result<T, Error> {
        let answer = self.http.get(url).send().await.and_then(reqwest::Response::error_for_status);
        answer.map_err(provider(what))?.json().await.map_err(provider(what))
    }

    /// Where to send the browser, and what it must bring back.
    pub(crate) async fn begin(&self) -> Result<(Url, Attempt), Error> {
        let attempt = Attempt::new();
        let mut url = self.endpoints().await?.authorization_endpoint.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("scope", "openid profile")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", &self.settings.redirect)
            .append_pair("state", &attempt.state)
            .append_pair("nonce", &attempt.nonce)
            .append_pair("code_challenge", &attempt.challenge())
            .append_pair("code_challenge_method", "S256");
        Ok((url, attempt))
    }

    /// Redeems the code of an attempt.
    pub(crate) async fn finish(&self, code: &str, attempt: &Attempt) -> Result<Known, Error> {
        let endpoints = self.endpoints().await?;
        let request = self
            .http
            .post(endpoints.token_endpoint.clone())
            .header("content-type", "application/x-www-form-urlencoded")
            .body(self.redemption(code, attempt));
        let answer = request.send().await.and_then(reqwest::Response::error_for_status);
        let tokens: Tokens =
            answer.map_err(provider("a token"))?.json().await.map_err(provider("a token"))?;
        let keys: JwkSet = self.get(endpoints.jwks_uri.as_str(), "its keys").await?;
        let claims = self.claims(&tokens.id_token, &keys, &endpoints.issuer)?;
        self.known(&claims, attempt)
    }

    fn redemption(&self, code: &str, attempt: &Attempt) -> String {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", &self.settings.redirect)
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("code_verifier", &attempt.verifier);
        if let Some(secret) = &self.settings.client_secret {
            form.append_pair("client_secret", secret.expose_secret());
        }
        form.finish()
    }

    fn claims(&self, token: &str, keys: &JwkSet, issuer: &str) -> Result<Map<String, Value>, Error> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| Error::Refused("no token"))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(Error::Refused("its token is signed in a way that is not accepted"));
        }
        let key = match header.kid.as_deref() {
            Some(kid) => keys.find(kid),
            None if keys.keys.len() == 1 => keys.keys.first(),
            None => None,
        };
        let key = key.ok_or(Error::Refused("its token is signed with an unknown key"))?;
        let key = DecodingKey::from_jwk(key).map_err(|_| Error::Refused("its key cannot be used"))?;
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[issuer]);
        validation.set_audience(&[&self.settings.client_id]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let decoded = jsonwebtoken::decode::<Map<String, Value>>(token, &key, &validation);
        decoded.map(|d| d.claims).map_err(|_| Error::Refused("its token is not valid"))
    }

    fn known(&self, claims: &Map<String, Value>, attempt: &Attempt) -> Result<Known, Error> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("nonce") != attempt.nonce {
            return Err(Error::Refused("its token belongs to another attempt"));
        }
        let owner = OwnerName::new(text("sub")).map_err(|_| Error::Refused("its token names nobody"))?;
        let words = claims.get(&self.settings.roles_claim).and_then(Value::as_array);
        let has = |role: Role| {
            words.is_some_and(|words| words.iter().any(|word| word.as_str() == Some(role.as_str())))
        };
        let mut roles = vec![Role::Student];
        roles.extend([Role::Teacher, Role::Admin].into_iter().filter(|role| has(*role)));
        Ok(Known { owner, roles })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_survives_its_cookie_and_nothing_else_does() {
        let attempt = Attempt::new();
        assert_eq!(Attempt::from_cookie(&attempt.to_cookie()), Some(attempt.clone()));
        assert_ne!(attempt, Attempt::new());
        for bad in ["", "a.b", "a.b.c.d"] {
            assert_eq!(Attempt::from_cookie(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_challenge_is_that_of_the_standard() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        let attempt = Attempt { state: String::new(), nonce: String::new(), verifier };
        assert_eq!(attempt.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
