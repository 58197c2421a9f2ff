//! A person with a browser, without the browser.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::{Method, StatusCode, header};
use serde_json::{Value, json};

use crate::Terminal;

/// Between two looks at a session.
const LOOK: Duration = Duration::from_millis(250);

/// Somebody who has logged in.
#[derive(Debug, Clone)]
pub struct Student {
    http: reqwest::Client,
    base: String,
    cookie: String,
}

/// A status and a JSON document (null where there was none).
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// Content type, without parameters.
    pub content_type: String,
    /// The document.
    pub body: Value,
}

impl Answer {
    /// The `code` of a problem document.
    #[must_use]
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// The document of an answer that must be a success.
    ///
    /// # Errors
    /// With the problem, if it is none.
    pub fn ok(self) -> Result<Value> {
        ensure!(self.status.is_success(), "{}: {}", self.status, self.body);
        Ok(self.body)
    }
}

impl Student {
    /// Logs in with the development login.
    ///
    /// # Errors
    /// If it is refused.
    pub async fn login(base: &str, user: &str, role: &str) -> Result<Self> {
        // An error means that a provider is installed already.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build()?;
        let response = http
            .post(format!("{base}/api/login"))
            .header(header::ORIGIN, base)
            .json(&json!({"user": user, "role": role}))
            .send()
            .await?;
        ensure!(response.status().is_success(), "login: {} {}", response.status(), response.text().await?);
        let cookie = response.headers().get(header::SET_COOKIE).context("login set no cookie")?.to_str()?;
        let cookie = cookie.split(';').next().context("an empty cookie")?.to_owned();
        Ok(Self { http, base: base.to_owned(), cookie })
    }

    /// The cookie as the browser sends it.
    #[must_use]
    pub fn cookie(&self) -> &str {
        &self.cookie
    }

    /// The stack's address.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.base
    }

    /// One call as our own page makes it.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Result<Answer> {
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.base))
            .header(header::COOKIE, &self.cookie)
            .header(header::ORIGIN, &self.base)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        let response = request.send().await?;
        let status = response.status();
        let kind =
            response.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let content_type = kind.split(';').next().unwrap_or_default().to_owned();
        let text = response.text().await?;
        let body = if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        };
        Ok(Answer { status, content_type, body })
    }

    /// `GET`.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.call(Method::GET, path, None).await
    }

    /// `POST`.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn post(&self, path: &str, body: Value) -> Result<Answer> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Presses Start; the session's id.
    ///
    /// # Errors
    /// If it is refused.
    pub async fn start(&self, lab: &str) -> Result<String> {
        let session = self.post("/api/sessions", json!({"lab": lab})).await?.ok()?;
        Ok(session["id"].as_str().context("a session without an id")?.to_owned())
    }

    /// The session as the page sees it.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn session(&self, id: &str) -> Result<Value> {
        self.get(&format!("/api/sessions/{id}")).await?.ok()
    }

    /// Waits until the session is in `state`.
    ///
    /// # Errors
    /// If it goes past it, or does not come there within `limit`.
    pub async fn wait_for(&self, id: &str, state: &str, limit: Duration) -> Result<Value> {
        let rank = |s: &str| {
            ["queued", "requested", "provisioning", "booting", "preparing", "ready", "ending", "ended"]
                .iter()
                .position(|x| *x == s)
        };
        let started = Instant::now();
        let mut seen = Value::Null;
        loop {
            // A service that is being restarted answers nothing for a moment.
            if let Ok(session) = self.session(id).await {
                let now = session["state"].as_str().unwrap_or_default();
                if now == state {
                    return Ok(session);
                }
                if rank(now) > rank(state) {
                    bail!("session {id} went past {state}: {session}");
                }
                seen = session;
            }
            if started.elapsed() > limit {
                bail!("session {id} is not {state} within {limit:?}: {seen}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Presses Check.
    ///
    /// # Errors
    /// If it is refused.
    pub async fn check(&self, id: &str, step: u64) -> Result<Value> {
        self.post(&format!("/api/sessions/{id}/steps/{step}/check"), json!({"auto": false})).await?.ok()
    }

    /// Presses End.
    ///
    /// # Errors
    /// If it is refused.
    pub async fn end(&self, id: &str) -> Result<Value> {
        self.call(Method::DELETE, &format!("/api/sessions/{id}"), None).await?.ok()
    }

    /// Opens the console.
    ///
    /// # Errors
    /// If it is refused.
    pub async fn terminal(&self, id: &str) -> Result<Terminal> {
        Terminal::open(&self.base, id, &self.cookie, &self.base, None).await
    }
}
