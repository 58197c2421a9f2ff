//! Answers to the other services: the only way that they know sessions.

use std::sync::Arc;

use lab_bus::Refusal;
use lab_domain::{ObjectUid, SessionId, Verdict, ghost};
use lab_kit::Shutdown;
use lab_proto::{
    convert,
    subjects::{API_QUEUE, CLASSIFY_OBJECT, GET_SESSION, LIST_SESSIONS},
    v1,
};

use crate::{app::App, ghosts, store::Error, wire};

/// Sessions a page, and the most that is given.
const PAGE: i64 = 200;

/// Answers until the process stops.
pub(crate) fn spawn(app: &Arc<App>, shutdown: &Shutdown) {
    let token = || shutdown.token.clone();
    let a = Arc::clone(app);
    let get = move |q| {
        let app = Arc::clone(&a);
        async move { get_session(&app, q).await }
    };
    shutdown.spawn(app.bus.answer(GET_SESSION, API_QUEUE, get, token()));
    let a = Arc::clone(app);
    let list = move |q| {
        let app = Arc::clone(&a);
        async move { list_sessions(&app, q).await }
    };
    shutdown.spawn(app.bus.answer(LIST_SESSIONS, API_QUEUE, list, token()));
    let a = Arc::clone(app);
    let classify = move |q| {
        let app = Arc::clone(&a);
        async move { classify(&app, q).await }
    };
    shutdown.spawn(app.bus.answer(CLASSIFY_OBJECT, API_QUEUE, classify, token()));
}

/// A refusal is no answer: who asked creates nothing and deletes nothing.
fn failed(error: &Error) -> Refusal {
    tracing::warn!(error = %lab_kit::telemetry::chain(error), "a question cannot be answered");
    Refusal("database")
}

fn open(app: &App) -> Result<(), Refusal> {
    if app.gate.allowed() { Ok(()) } else { Err(Refusal("not_ready")) }
}

async fn get_session(app: &App, q: v1::GetSessionRequest) -> Result<v1::GetSessionResponse, Refusal> {
    open(app)?;
    let id: SessionId = q.session_id.parse().map_err(|_| Refusal("malformed"))?;
    let session = app.store.session(id).await.map_err(|e| failed(&e))?;
    Ok(v1::GetSessionResponse { session: session.map(|s| wire::session(app.publisher.installation, &s)) })
}

async fn list_sessions(app: &App, q: v1::ListSessionsRequest) -> Result<v1::ListSessionsResponse, Refusal> {
    open(app)?;
    let after = match q.after.as_str() {
        "" => None,
        id => Some(id.parse().map_err(|_| Refusal("malformed"))?),
    };
    let limit = if q.limit == 0 { PAGE } else { i64::from(q.limit).min(PAGE) };
    let page = app.store.open_sessions(after, limit).await.map_err(|e| failed(&e))?;
    let is_full = i64::try_from(page.len()).unwrap_or(i64::MAX) >= limit;
    let next = page.last().filter(|_| is_full).map(|s| s.id.to_string()).unwrap_or_default();
    let sessions = page.iter().map(|s| wire::session(app.publisher.installation, s)).collect();
    Ok(v1::ListSessionsResponse { sessions, next })
}

async fn classify(app: &App, q: v1::ClassifyObjectRequest) -> Result<v1::ClassifyObjectResponse, Refusal> {
    open(app)?;
    let session: SessionId = q.session_id.parse().map_err(|_| Refusal("malformed"))?;
    let uid = ObjectUid::new(q.uid).map_err(|_| Refusal("malformed"))?;
    let states = app.store.states(&[session]).await.map_err(|e| failed(&e))?;
    let state = states.get(&session).map(|(state, _)| *state);
    let verdict = match ghost::of_state(state) {
        Verdict::Unwanted => {
            let Some(look) = ghosts::look(app).await.map_err(|e| failed(&e))? else {
                return Err(Refusal("cluster_unknown"));
            };
            ghost::classify(state, look.released.contains(&uid), &look.assessment)
        }
        known @ (Verdict::Wanted | Verdict::Ending | Verdict::Hold) => known,
    };
    Ok(v1::ClassifyObjectResponse { verdict: convert::verdict_number(verdict) })
}
