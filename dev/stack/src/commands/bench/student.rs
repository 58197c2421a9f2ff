//! One student with a browser: signs in, starts, watches the events, ends.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http::{HeaderValue, Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use serde_json::{Value, json};

use crate::http::{Answer, Http, request};

const CALL: Duration = Duration::from_secs(30);
/// No session of the bench may take longer, the burst included.
const READY: Duration = Duration::from_secs(120);

/// When the browser first saw each state, counted from the press of the button.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) id: String,
    pub(crate) accepted: Duration,
    pub(crate) provisioning: Duration,
    pub(crate) booting: Duration,
    pub(crate) preparing: Duration,
    pub(crate) ready: Duration,
}

/// A signed-in student.
pub(crate) struct Student {
    http: Http,
    web: String,
    cookie: HeaderValue,
    lab: String,
}

/// The first lab that can be started.
pub(crate) async fn first_lab(web: &str) -> Result<String> {
    let reader = Student::sign_in(web, "bench-looker", "").await?;
    let labs = reader.call(Method::GET, "/api/labs", None).await?.json()?;
    let labs = labs["labs"].as_array().cloned().unwrap_or_default();
    let usable = |lab: &&Value| lab["supported"].as_bool().unwrap_or(true) && lab["runtime"] == "vm";
    let lab = labs.iter().find(usable).and_then(|lab| lab["id"].as_str());
    lab.map(str::to_owned).context("the catalogue has no lab that can be started")
}

impl Student {
    pub(crate) async fn sign_in(web: &str, user: &str, lab: &str) -> Result<Self> {
        let http = Http::new();
        let body = json!({"user": user, "role": "student"});
        let mut login = request(Method::POST, &format!("{web}/api/login"), None, Some(&body))?;
        own_origin(&mut login, web)?;
        let answer = http.send(login, CALL).await?;
        if !answer.status.is_success() {
            bail!("sign-in of {user}: {} {}", answer.status, answer.text());
        }
        let set = answer.headers.get(header::SET_COOKIE).context("sign-in set no cookie")?.to_str()?;
        let pair = set.split(';').next().unwrap_or_default();
        Ok(Self { http, web: web.to_owned(), cookie: HeaderValue::from_str(pair)?, lab: lab.to_owned() })
    }

    fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Request<Full<Bytes>>> {
        let mut request = request(method, &format!("{}{path}", self.web), None, body)?;
        request.headers_mut().insert(header::COOKIE, self.cookie.clone());
        own_origin(&mut request, &self.web)?;
        Ok(request)
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        self.http.send(self.request(method, path, body)?, CALL).await
    }

    pub(crate) async fn read_lab(&self) -> Result<()> {
        let answer = self.call(Method::GET, &format!("/api/labs/{}", self.lab), None).await?;
        if !answer.status.is_success() {
            bail!("reading the lab: {} {}", answer.status, answer.text());
        }
        Ok(())
    }

    /// Presses Start and watches until the machine is ready.
    pub(crate) async fn start(&self) -> Result<Seen> {
        let pressed = Instant::now();
        let answer = self.call(Method::POST, "/api/sessions", Some(&json!({"lab": self.lab}))).await?;
        let accepted = pressed.elapsed();
        if answer.status != http::StatusCode::CREATED {
            bail!("start: {} {}", answer.status, answer.text());
        }
        let id = answer.json()?["id"].as_str().context("a session without an id")?.to_owned();
        let mut events = Events::open(self, &id).await?;
        let mut seen: [Option<Duration>; 4] = [None; 4];
        loop {
            let left = READY.saturating_sub(pressed.elapsed());
            let session = tokio::time::timeout(left, events.next()).await.context("not ready in time")??;
            let state = session["state"].as_str().unwrap_or_default();
            if matches!(state, "ending" | "ended") {
                bail!("it ended: {} {} {}", session["reason"], session["cause"], session["message"]);
            }
            let rank =
                ["provisioning", "booting", "preparing", "ready"].iter().position(|name| *name == state);
            // A higher state implies the lower ones: a browser that saw only the last saw all of them then.
            for at in seen.iter_mut().take(rank.map_or(0, |rank| rank + 1)) {
                at.get_or_insert_with(|| pressed.elapsed());
            }
            if let [Some(provisioning), Some(booting), Some(preparing), Some(ready)] = seen {
                return Ok(Seen { id, accepted, provisioning, booting, preparing, ready });
            }
        }
    }

    /// Presses End and watches until nothing is left.
    pub(crate) async fn end(&self, id: &str) -> Result<Duration> {
        let pressed = Instant::now();
        let mut events = Events::open(self, id).await?;
        let answer = self.call(Method::DELETE, &format!("/api/sessions/{id}"), None).await?;
        if !answer.status.is_success() {
            bail!("{} {}", answer.status, answer.text());
        }
        loop {
            let left = READY.saturating_sub(pressed.elapsed());
            let session = tokio::time::timeout(left, events.next()).await.context("not ended in time")??;
            if session["state"] == "ended" {
                return Ok(pressed.elapsed());
            }
        }
    }
}

fn own_origin(request: &mut Request<Full<Bytes>>, web: &str) -> Result<()> {
    request.headers_mut().insert(header::ORIGIN, HeaderValue::from_str(web)?);
    request.headers_mut().entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    Ok(())
}

/// Server-sent events of one session.
struct Events {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Events {
    async fn open(student: &Student, id: &str) -> Result<Self> {
        let mut request = student.request(Method::GET, &format!("/api/sessions/{id}/events"), None)?;
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        let response =
            tokio::time::timeout(CALL, student.http.open(request)).await.context("no events")??;
        if !response.status().is_success() {
            bail!("events: {}", response.status());
        }
        Ok(Self { body: response.into_body(), buffer: Vec::new() })
    }

    /// The next session document.
    async fn next(&mut self) -> Result<Value> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = self.buffer.drain(..end + 2).collect();
                if let Some(session) = session_of(&String::from_utf8_lossy(&event)) {
                    return serde_json::from_str(&session).context("an event that is not JSON");
                }
                continue;
            }
            let frame =
                self.body.frame().await.context("the events ended")?.context("the events broke off")?;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}

/// The data of a `session` event.
fn session_of(event: &str) -> Option<String> {
    let mut data = Vec::new();
    let mut is_session = false;
    for line in event.lines() {
        if let Some(name) = line.strip_prefix("event:") {
            is_session = name.trim() == "session";
        } else if let Some(part) = line.strip_prefix("data:") {
            data.push(part.strip_prefix(' ').unwrap_or(part));
        }
    }
    (is_session && !data.is_empty()).then(|| data.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_session_events_carry_a_session() {
        assert_eq!(session_of("event: session\nid: 4\ndata: {\"a\":\ndata: 1}\n\n").unwrap(), "{\"a\":\n1}");
        assert_eq!(session_of(": keep-alive\n\n"), None);
        assert_eq!(session_of("event: other\ndata: {}\n\n"), None);
    }
}
