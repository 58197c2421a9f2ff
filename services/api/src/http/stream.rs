//! Server-sent events: a session's changes, and the whole stream for staff.
//!
//! Both end when the process stops: an open event stream would keep a graceful shutdown waiting for ever (measured).

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::sse::{Event, KeepAlive, Sse},
};
use futures::Stream;
use lab_domain::{SessionId, State as SessionState};

use super::{Staff, User, admin, sessions, view::SessionView};
use crate::{
    app::App,
    error::{ApiError, Code, Problem},
    live::{Notice, Notices},
    store::Error,
};

/// A comment keeps proxies from closing a silent stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A look even without a notice: a notice can be lost with its connection.
const LOOK: Duration = Duration::from_secs(20);

type Events = Sse<
    axum::response::sse::KeepAliveStream<
        std::pin::Pin<Box<dyn Stream<Item = Result<Event, Infallible>> + Send>>,
    >,
>;

fn last_event_id(headers: &HeaderMap) -> Option<u64> {
    headers.get("last-event-id")?.to_str().ok()?.trim().parse().ok()
}

fn sse(stream: impl Stream<Item = Event> + Send + 'static) -> Events {
    use futures::StreamExt as _;
    let stream: std::pin::Pin<Box<dyn Stream<Item = Result<Event, Infallible>> + Send>> =
        Box::pin(stream.map(Ok));
    Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

struct Following {
    app: Arc<App>,
    id: SessionId,
    notices: Notices,
    /// Version that the client has; `None` before the snapshot.
    sent: Option<u64>,
    is_over: bool,
}

/// A snapshot of the session, then each change; ends after `ended`.
#[utoipa::path(get, operation_id = "session_events", path = "/api/sessions/{id}/events", tag = "sessions",
    params(("id" = String, Path), ("Last-Event-ID" = Option<u64>, Header, description = "Version that the client has")),
    responses((status = 200, content_type = "text/event-stream", body = SessionView), (status = "4XX", body = Problem)))]
pub(super) async fn session(
    State(app): State<Arc<App>>,
    user: User,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Events, ApiError> {
    // Before the look at the database, so that no change falls between the two.
    let notices = app.live.notices();
    let session = sessions::own(&app, &user.owner, &id).await?;
    // A client that has the end already must still hear it once more, or it would come back for ever.
    let sent = last_event_id(&headers).filter(|_| session.state() != SessionState::Ended);
    let shutdown = app.shutdown.clone();
    let following = Following { app, id: session.id, notices, sent, is_over: false };
    let events = futures::stream::unfold(following, |mut f| async move {
        let event = f.next().await?;
        Some((event, f))
    });
    Ok(sse(futures::StreamExt::take_until(events, shutdown.cancelled_owned())))
}

impl Following {
    async fn next(&mut self) -> Option<Event> {
        if self.is_over {
            return None;
        }
        loop {
            match self.look().await {
                Ok(Some(event)) => return Some(event),
                Ok(None) => {}
                // The browser comes back with what it has; until then the database may have recovered.
                Err(_) => return None,
            }
            self.changed().await?;
        }
    }

    async fn look(&mut self) -> Result<Option<Event>, Error> {
        let Some(session) = self.app.store.session(self.id).await? else { return Ok(None) };
        if self.sent.is_some_and(|sent| sent >= session.version) {
            return Ok(None);
        }
        let checks = self.app.store.latest_checks(self.id).await?;
        self.sent = Some(session.version);
        self.is_over = session.state() == SessionState::Ended;
        let view = SessionView::new(&session, checks, self.app.now());
        let event = Event::default().event("session").id(session.version.to_string());
        // A view always writes as JSON.
        Ok(event.json_data(view).ok())
    }

    /// Waits until the session may have changed; `None` when the process ends.
    async fn changed(&mut self) -> Option<()> {
        let look = tokio::time::sleep(LOOK);
        tokio::pin!(look);
        loop {
            tokio::select! {
                () = &mut look => return Some(()),
                notice = self.notices.next() => match notice? {
                    Notice::Session(id) if id == self.id => return Some(()),
                    Notice::Anything => return Some(()),
                    Notice::Session(_) | Notice::Outbox(_) => {}
                },
            }
        }
    }
}

/// Every event of the environment, from now on or after `Last-Event-ID`, for staff.
#[utoipa::path(get, operation_id = "admin_events", path = "/api/admin/events", tag = "admin",
    params(("Last-Event-ID" = Option<u64>, Header, description = "Sequence that the client has")),
    responses((status = 200, content_type = "text/event-stream", body = admin::EventView), (status = "4XX", body = Problem)))]
pub(super) async fn events(
    State(app): State<Arc<App>>,
    _staff: Staff,
    headers: HeaderMap,
) -> Result<Events, ApiError> {
    let gone = |error: lab_bus::Error| {
        tracing::warn!(error = %lab_kit::telemetry::chain(&error), "the event stream cannot be read");
        ApiError::new(Code::BusUnreachable, "The event stream cannot be read just now.")
    };
    let from = match last_event_id(&headers) {
        Some(sequence) => sequence,
        None => app.bus.last_sequence().await.map_err(gone)?,
    };
    let tail = app.bus.tail(from).await.map_err(gone)?;
    let shutdown = app.shutdown.clone();
    let events = futures::stream::unfold(tail, |mut tail| async move {
        // On an error the stream ends and the client comes back with the sequence that it has.
        let (sequence, kind, event) = tail.next().await.ok()?;
        let view = admin::EventView::new(sequence, &kind, &event);
        let sent = Event::default().event("event").id(sequence.to_string()).json_data(view).ok()?;
        Some((sent, tail))
    });
    Ok(sse(futures::StreamExt::take_until(events, shutdown.cancelled_owned())))
}
