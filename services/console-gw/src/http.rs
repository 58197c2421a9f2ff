//! The one route: `GET /api/sessions/{id}/console`.
//!
//! Everything is checked before the upgrade, in this order: token (401), Origin (403), session and owner (404), state
//! (409), then the dial (503). Without an upgrade the same checks answer 204 and KubeVirt is never touched.

use std::sync::Arc;

use axum::{
    Router,
    extract::{
        Path, Query, State,
        ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use lab_bus::Bus;
use lab_domain::OwnerName;
use lab_kit::{
    Clock, Shutdown,
    auth::{Carrier, Verifier, origin_allowed},
};
use serde::Deserialize;

use crate::{
    decide::{self, Admitted, Caller, Session},
    error::Problem,
    events::Facts,
    hub::{Hub, Key, Machines},
    metrics::{Answer, Metrics},
    sessions,
    viewer::{self, Entry, Resume},
};

/// Largest message from a browser: a pasted file arrives in many.
const MAX_MESSAGE: usize = 64 * 1024;

/// Bytes read at once per viewer: people type slowly, and the library's 128 KiB would be held for each of them.
const READ_BUFFER: usize = 8 * 1024;

/// What a request needs.
pub struct App<M, C> {
    /// Checks tokens; `None` until the installation is known.
    pub verifier: tokio::sync::watch::Receiver<Option<Verifier>>,
    /// Our own Origin.
    pub public_url: String,
    /// Asks the api.
    pub bus: Bus,
    /// Holds the consoles.
    pub hub: Hub<M>,
    /// Tells the bus who looks on.
    pub facts: Facts<C>,
    /// Time.
    pub clock: C,
    /// Counters.
    pub metrics: Metrics,
    /// Owns the viewers: axum does not track upgraded sockets.
    pub shutdown: Shutdown,
}

/// Query of the console URL.
#[derive(Debug, Deserialize)]
struct Wanted {
    machine: Option<String>,
    epoch: Option<String>,
    offset: Option<u64>,
}

/// The routes.
pub fn router<M, C>(app: Arc<App<M, C>>) -> Router
where
    M: Machines,
    M::Error: std::error::Error,
    C: Clock + Clone,
{
    Router::new().route("/api/sessions/{id}/console", get(console::<M, C>)).with_state(app)
}

async fn console<M, C>(
    State(app): State<Arc<App<M, C>>>,
    Path(id): Path<String>,
    query: Result<Query<Wanted>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response
where
    M: Machines,
    M::Error: std::error::Error,
    C: Clock + Clone,
{
    match open(&app, &id, query, &headers, upgrade).await {
        Ok(response) => response,
        Err(problem) => {
            app.metrics.answered(Answer::Refused);
            problem.into_response()
        }
    }
}

async fn open<M, C>(
    app: &Arc<App<M, C>>,
    id: &str,
    query: Result<Query<Wanted>, axum::extract::rejection::QueryRejection>,
    headers: &HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem>
where
    M: Machines,
    M::Error: std::error::Error,
    C: Clock + Clone,
{
    let is_upgrade = headers.contains_key(header::UPGRADE);
    let caller = caller(app, headers, is_upgrade)?;
    let Query(wanted) =
        query.map_err(|_| Problem::InvalidRequest("offset is a number, epoch and machine are texts."))?;
    let resume = match (wanted.epoch, wanted.offset) {
        (Some(epoch), Some(offset)) => Some(Resume { epoch, offset }),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => {
            return Err(Problem::InvalidRequest("epoch and offset come together."));
        }
    };
    let (session, admitted) = admit(app, id, &caller, wanted.machine.as_deref()).await?;
    if !is_upgrade {
        app.metrics.answered(Answer::Probed);
        return Ok((StatusCode::NO_CONTENT, [(header::CACHE_CONTROL, "no-store")]).into_response());
    }
    let upgrade = upgrade.map_err(|_| Problem::InvalidRequest("not a WebSocket handshake."))?;
    let key = Key { session: session.id, machine: admitted.machine.clone() };
    let console = app.hub.open(&key, &admitted.pinned).await.map_err(|error| {
        tracing::warn!(session.id = %key.session, machine = %key.machine, error = lab_kit::telemetry::chain(&error), "a console did not open");
        Problem::ConsoleUnavailable
    })?;
    if !console.has_room() {
        return Err(Problem::TooManyViewers);
    }
    app.metrics.answered(Answer::Opened);
    let entry = Entry { machine: admitted.machine, mode: admitted.mode, resume };
    let app = Arc::clone(app);
    let upgrade =
        upgrade.read_buffer_size(READ_BUFFER).max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE);
    Ok(upgrade.on_upgrade(async move |socket| {
        // The token keeps shutdown waiting until this viewer has been told.
        let _tracked = app.shutdown.tracker.token();
        app.metrics.viewers.inc();
        let visit = app.facts.attached(&session, &entry.machine, entry.mode);
        viewer::serve(socket, console, entry, || visit.active()).await;
        app.metrics.viewers.dec();
    }))
}

fn caller<M, C: Clock>(app: &App<M, C>, headers: &HeaderMap, is_upgrade: bool) -> Result<Caller, Problem> {
    let verifier = app.verifier.borrow().clone().ok_or(Problem::Unready)?;
    let (claims, carrier) = verifier.authenticate(headers, app.clock.now()).map_err(|refused| {
        Problem::Unauthorized(match refused {
            lab_kit::auth::Refused::Missing => "no token was sent",
            lab_kit::auth::Refused::Invalid => "the token is not valid here",
            lab_kit::auth::Refused::Expired => "the token has expired",
        })
    })?;
    // A WebSocket is a write: browsers let any page open one with our cookie.
    if is_upgrade && carrier == Carrier::Cookie && !origin_allowed(headers, &app.public_url) {
        return Err(Problem::Origin);
    }
    let name = OwnerName::new(claims.sub.clone())
        .map_err(|_| Problem::Unauthorized("its user name is malformed"))?;
    Ok(Caller { name, staff: claims.is_staff() })
}

async fn admit<M, C>(
    app: &App<M, C>,
    id: &str,
    caller: &Caller,
    machine: Option<&str>,
) -> Result<(Session, Admitted), Problem> {
    let id = id.parse().map_err(|_| Problem::NotFound)?;
    let session = sessions::get(&app.bus, id).await.map_err(|error| {
        tracing::warn!(session.id = %id, error = lab_kit::telemetry::chain(&error), "the api does not answer");
        Problem::ApiUnreachable
    })?;
    let admitted = decide::admit(caller, session.as_ref(), machine)?;
    // `admit` refuses without a session.
    let session = session.ok_or(Problem::NotFound)?;
    Ok((session, admitted))
}
