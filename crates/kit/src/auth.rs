//! Who a request comes from: the signed token, the cookie that carries it, and the Origin rule.
//!
//! A browser sends cookies along with requests that other sites make. So a write that is authenticated by the cookie
//! must show our own `Origin` (or `Sec-Fetch-Site: same-origin`); a bearer token shows by itself that our own code
//! sent it.

use std::time::Duration;

use http::{HeaderMap, header};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use lab_domain::{Environment, InstallationId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// How long a token is valid. It is renewed in the second half.
pub const TOKEN_LIFE: Duration = Duration::from_secs(12 * 3600);
/// No token is longer; what is, is no token.
const MAX_TOKEN: usize = 4096;

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The user's name.
    pub sub: String,
    /// `student`, `teacher`, `admin`.
    pub roles: Vec<Role>,
    /// When it was made, seconds since the epoch.
    pub iat: i64,
    /// When it ends, seconds since the epoch.
    pub exp: i64,
    /// [`issuer`] of the installation that it was made for.
    pub iss: String,
}

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Own sessions.
    Student,
    /// Looks at all.
    Teacher,
    /// Looks at all and ends sessions.
    Admin,
}

impl Role {
    /// The word in the token.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Student => "student",
            Self::Teacher => "teacher",
            Self::Admin => "admin",
        }
    }
}

impl Claims {
    /// Whether the user has this role.
    #[must_use]
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Whether the user is staff: may look at everybody's sessions.
    #[must_use]
    pub fn is_staff(&self) -> bool {
        self.has(Role::Teacher) || self.has(Role::Admin)
    }

    /// Whether half of its life is over: time to renew it.
    #[must_use]
    pub fn is_in_second_half(&self, now: OffsetDateTime) -> bool {
        now.unix_timestamp() >= self.iat.saturating_add(self.exp.saturating_sub(self.iat) / 2)
    }
}

/// Why a token is not taken. Says nothing about the token itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// None was sent.
    #[error("no token was sent")]
    Missing,
    /// Malformed, wrongly signed, or of another installation.
    #[error("the token is not valid here")]
    Invalid,
    /// It was valid once.
    #[error("the token has expired")]
    Expired,
}

/// A key that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("not an Ed25519 key in PEM form")]
pub struct BadKey(#[source] jsonwebtoken::errors::Error);

/// `iss` of the tokens of one installation: a token of another one of the same name is refused.
#[must_use]
pub fn issuer(environment: &Environment, installation: InstallationId) -> String {
    format!("ttlab:{environment}:{installation}")
}

/// Name of the cookie. Two installations on one host do not overwrite each other's.
#[must_use]
pub fn cookie_name(environment: &Environment, installation: InstallationId) -> String {
    format!("lab_{environment}_{}", installation.0.simple())
}

/// The `Set-Cookie` value that carries a token for its whole life.
#[must_use]
pub fn set_cookie(name: &str, token: &str, is_https: bool) -> String {
    let secure = if is_https { "; Secure" } else { "" };
    format!("{name}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{secure}", TOKEN_LIFE.as_secs())
}

/// The `Set-Cookie` value that removes it.
#[must_use]
pub fn clear_cookie(name: &str, is_https: bool) -> String {
    let secure = if is_https { "; Secure" } else { "" };
    format!("{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0{secure}")
}

/// Makes tokens.
pub struct Signer {
    key: EncodingKey,
    issuer: String,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl Signer {
    /// From a PKCS#8 private key in PEM form.
    ///
    /// # Errors
    /// If it is no Ed25519 key.
    pub fn new(pem: &[u8], issuer: String) -> Result<Self, BadKey> {
        Ok(Self { key: EncodingKey::from_ed_pem(pem).map_err(BadKey)?, issuer })
    }

    /// A token for a user, valid from now on for [`TOKEN_LIFE`].
    ///
    /// # Errors
    /// If the key does not sign.
    pub fn sign(&self, sub: &str, roles: &[Role], now: OffsetDateTime) -> Result<String, BadKey> {
        let iat = now.unix_timestamp();
        let claims = Claims {
            sub: sub.to_owned(),
            roles: roles.to_vec(),
            iat,
            exp: iat.saturating_add(i64::try_from(TOKEN_LIFE.as_secs()).unwrap_or(i64::MAX)),
            iss: self.issuer.clone(),
        };
        jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), &claims, &self.key).map_err(BadKey)
    }
}

/// Checks tokens.
#[derive(Clone)]
pub struct Verifier {
    key: DecodingKey,
    validation: Validation,
    cookie: String,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("cookie", &self.cookie).finish_non_exhaustive()
    }
}

/// How a token came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// In the `Authorization` header.
    Bearer,
    /// In our cookie: writes need our Origin.
    Cookie,
}

impl Verifier {
    /// From an SPKI public key in PEM form, for one installation.
    ///
    /// # Errors
    /// If it is no Ed25519 key.
    pub fn new(pem: &[u8], environment: &Environment, installation: InstallationId) -> Result<Self, BadKey> {
        let key = DecodingKey::from_ed_pem(pem).map_err(BadKey)?;
        let mut validation = Validation::new(Algorithm::EdDSA);
        validation.set_issuer(&[issuer(environment, installation)]);
        validation.set_required_spec_claims(&["exp", "iss", "sub"]);
        // Times are compared with our own clock, below.
        validation.validate_exp = false;
        validation.validate_aud = false;
        Ok(Self { key, validation, cookie: cookie_name(environment, installation) })
    }

    /// Name of the cookie that it reads.
    #[must_use]
    pub fn cookie(&self) -> &str {
        &self.cookie
    }

    /// Checks one token.
    ///
    /// # Errors
    /// If it is not valid at `now`.
    pub fn verify(&self, token: &str, now: OffsetDateTime) -> Result<Claims, Refused> {
        if token.len() > MAX_TOKEN {
            return Err(Refused::Invalid);
        }
        let token = jsonwebtoken::decode::<Claims>(token, &self.key, &self.validation);
        let claims = token.map_err(|_| Refused::Invalid)?.claims;
        if claims.exp <= now.unix_timestamp() { Err(Refused::Expired) } else { Ok(claims) }
    }

    /// The user of a request: a bearer token if one was sent, else our cookie.
    ///
    /// # Errors
    /// If there is none, or it is not valid.
    pub fn authenticate(
        &self,
        headers: &HeaderMap,
        now: OffsetDateTime,
    ) -> Result<(Claims, Carrier), Refused> {
        if let Some(value) = headers.get(header::AUTHORIZATION) {
            let value = value.to_str().map_err(|_| Refused::Invalid)?;
            let (scheme, token) = value.split_once(' ').ok_or(Refused::Invalid)?;
            if !scheme.eq_ignore_ascii_case("bearer") {
                return Err(Refused::Invalid);
            }
            return Ok((self.verify(token.trim(), now)?, Carrier::Bearer));
        }
        let token = cookie_value(headers, &self.cookie).ok_or(Refused::Missing)?;
        Ok((self.verify(token, now)?, Carrier::Cookie))
    }
}

/// The value of a cookie of a request.
#[must_use]
pub fn cookie_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|v| v.to_str().ok());
    lines.flat_map(|line| line.split(';')).find_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    })
}

/// Whether a write that our cookie authenticates may come from where it came from. `own` is the public URL of the
/// page, `scheme://host[:port]`, a path after it is ignored.
#[must_use]
pub fn origin_allowed(headers: &HeaderMap, own: &str) -> bool {
    let text = |name: &str| headers.get(name).map(|v| v.to_str().unwrap_or("?"));
    match text("origin") {
        // An Origin that is there decides: a browser that says both never contradicts itself.
        Some(origin) => normal_origin(own).is_some_and(|own| normal_origin(origin) == Some(own)),
        None => text("sec-fetch-site") == Some("same-origin"),
    }
}

/// Scheme, host and port, with the scheme's own port where none is written.
fn normal_origin(text: &str) -> Option<(String, String, u16)> {
    let uri: http::Uri = text.trim_end_matches('/').parse().ok()?;
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let port = match (uri.port_u16(), scheme.as_str()) {
        (Some(port), _) => port,
        (None, "http") => 80,
        (None, "https") => 443,
        (None, _) => return None,
    };
    let host = uri.host()?.to_ascii_lowercase();
    // Three spellings of this machine: people type `localhost` where the runner printed an address.
    let host = if matches!(host.as_str(), "localhost" | "[::1]") { "127.0.0.1".to_owned() } else { host };
    Some((scheme, host, port))
}

#[cfg(test)]
mod tests;
