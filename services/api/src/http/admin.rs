//! For staff: all sessions, statistics, capacity, ghosts.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use lab_bus::event::Kind;
use lab_domain::{EndReason, ObjectUid, SessionId, capacity};
use lab_proto::{convert, subjects, v1};
use serde::{Deserialize, Serialize};
use time::{OffsetDateTime, serde::rfc3339};
use utoipa::ToSchema;

use super::{Admin, Staff, input::Strict, sessions as own, view::SessionView};
use crate::{
    app::App,
    error::{ApiError, Code, Problem},
    ghosts as looks,
    store::Store,
};

/// Sessions in one answer.
const PAGE: i64 = 200;
/// How far back statistics go.
const STATS_OF: Duration = Duration::from_secs(30 * 24 * 3600);

/// A session with its owner.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OwnedView {
    owner: String,
    #[serde(flatten)]
    session: SessionView,
}

/// Sessions, open ones first, then the youngest ended ones.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SessionsView {
    sessions: Vec<OwnedView>,
}

/// All sessions.
#[utoipa::path(get, operation_id = "admin_sessions", path = "/api/admin/sessions", tag = "admin",
    responses((status = 200, body = SessionsView), (status = "4XX", body = Problem)))]
pub(super) async fn sessions(
    State(app): State<Arc<App>>,
    _staff: Staff,
) -> Result<Json<SessionsView>, ApiError> {
    let now = app.now();
    let sessions = app.store.recent_sessions(PAGE).await?;
    let sessions = sessions.iter().map(|s| OwnedView {
        owner: s.owner.to_string(),
        // Output of checks stays with the student.
        session: SessionView::new(s, vec![], now),
    });
    Ok(Json(SessionsView { sessions: sessions.collect() }))
}

/// Ends anybody's session.
#[utoipa::path(delete, operation_id = "admin_end_session", path = "/api/admin/sessions/{id}", tag = "admin", params(("id" = String, Path)),
    responses((status = 202, body = OwnedView), (status = "4XX", body = Problem)))]
pub(super) async fn end(
    State(app): State<Arc<App>>,
    Admin(user): Admin,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<OwnedView>), ApiError> {
    let unknown = || ApiError::new(Code::NotFound, "There is no session of this id.");
    let id: SessionId = id.parse().map_err(|_| unknown())?;
    let session = own::end_for(&app, id, EndReason::Admin).await?.ok_or_else(unknown)?;
    let by = lab_domain::UserId::of(app.publisher.installation, &user.owner);
    tracing::info!(session.id = %id, user = %by, "an administrator ended a session");
    let view = SessionView::new(&session, vec![], app.now());
    Ok((StatusCode::ACCEPTED, Json(OwnedView { owner: session.owner.to_string(), session: view })))
}

/// Median and spread of a phase of a lab.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PhaseView {
    lab: String,
    /// `provisioning`, `disk`, `boot`, `agent`, `prepare`, `start` (all of it) or `ending`.
    phase: String,
    count: i64,
    p50_ms: f64,
    p90_ms: f64,
}

/// How often sessions of a lab ended for a reason.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EndView {
    lab: String,
    reason: String,
    count: i64,
}

/// Statistics of the last 30 days.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StatsView {
    #[serde(with = "rfc3339")]
    since: OffsetDateTime,
    phases: Vec<PhaseView>,
    ends: Vec<EndView>,
}

/// How long phases take.
#[utoipa::path(get, operation_id = "admin_stats", path = "/api/admin/stats", tag = "admin",
    responses((status = 200, body = StatsView), (status = "4XX", body = Problem)))]
pub(super) async fn stats(State(app): State<Arc<App>>, _staff: Staff) -> Result<Json<StatsView>, ApiError> {
    let since = app.now() - STATS_OF;
    let phases = app.store.phase_stats(since).await?.into_iter();
    let ends = app.store.end_stats(since).await?.into_iter();
    Ok(Json(StatsView {
        since,
        phases: phases
            .map(|p| PhaseView {
                lab: p.lab,
                phase: p.phase,
                count: p.count,
                p50_ms: p.p50_ms,
                p90_ms: p.p90_ms,
            })
            .collect(),
        ends: ends.map(|e| EndView { lab: e.lab, reason: e.reason, count: e.count }).collect(),
    }))
}

/// How many machines there may be and are.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CapacityView {
    cap: usize,
    /// Sessions' and the cluster's machines together; null while the cluster is unknown.
    used: Option<usize>,
    /// Machines of sessions.
    sessions: usize,
    /// Machines that the cluster shows; null while it is unknown.
    cluster: Option<usize>,
}

/// The cap and what is used of it.
#[utoipa::path(get, operation_id = "admin_capacity", path = "/api/admin/capacity", tag = "admin",
    responses((status = 200, body = CapacityView), (status = "4XX", body = Problem)))]
pub(super) async fn capacity(
    State(app): State<Arc<App>>,
    _staff: Staff,
) -> Result<Json<CapacityView>, ApiError> {
    let mut tx = app.store.begin().await?;
    let own = Store::places(&mut tx).await?;
    drop(tx);
    let cluster = app.cluster.places().ok();
    Ok(Json(CapacityView {
        cap: app.settings.vm_cap,
        used: cluster.as_ref().map(|cluster| capacity::used(&own, cluster)),
        sessions: own.len(),
        cluster: cluster.as_ref().map(std::collections::HashSet::len),
    }))
}

/// An object that no session owns.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct GhostView {
    kind: &'static str,
    name: String,
    uid: String,
    session: String,
    machine: String,
    /// An operator confirmed it.
    released: bool,
}

/// What looks like ghosts.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct GhostsView {
    /// Too many: none is deleted until an administrator releases it.
    hold: bool,
    /// Machines in the list.
    machines: usize,
    ghosts: Vec<GhostView>,
}

/// Objects that no session owns.
#[utoipa::path(get, operation_id = "admin_ghosts", path = "/api/admin/ghosts", tag = "admin",
    responses((status = 200, body = GhostsView), (status = "4XX", body = Problem), (status = 503, body = Problem)))]
pub(super) async fn ghosts(State(app): State<Arc<App>>, _staff: Staff) -> Result<Json<GhostsView>, ApiError> {
    ghosts_view(&app).await.map(Json)
}

async fn ghosts_view(app: &App) -> Result<GhostsView, ApiError> {
    let look = looks::look(app).await?;
    let look = look.ok_or_else(|| {
        ApiError::new(Code::ClusterUnknown, "Just now the cluster's machines cannot be listed.")
    })?;
    let unreleased: Vec<&ObjectUid> = look.assessment.unreleased.iter().map(|s| &s.uid).collect();
    let is_ghost = |uid: &ObjectUid| unreleased.contains(&uid) || look.released.contains(uid);
    let ghosts = look.listed.objects.iter().filter(|o| o.is_ours && is_ghost(&o.uid)).map(|o| GhostView {
        kind: o.kind.as_str(),
        name: o.name.clone(),
        uid: o.uid.to_string(),
        session: o.place.0.to_string(),
        machine: o.place.1.to_string(),
        released: look.released.contains(&o.uid),
    });
    Ok(GhostsView {
        hold: look.assessment.hold,
        machines: look.assessment.machines,
        ghosts: ghosts.collect(),
    })
}

/// Which objects to release.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Release {
    /// Uids as `/api/admin/ghosts` lists them.
    uids: Vec<String>,
}

/// Confirms that these objects are ghosts: the reaper may delete them although there are many.
#[utoipa::path(post, operation_id = "admin_release_ghosts", path = "/api/admin/ghosts/release", tag = "admin", request_body = Release,
    responses((status = 200, body = GhostsView), (status = "4XX", body = Problem), (status = 503, body = Problem)))]
pub(super) async fn release(
    State(app): State<Arc<App>>,
    Admin(user): Admin,
    Strict(release): Strict<Release>,
) -> Result<Json<GhostsView>, ApiError> {
    let uids: Result<Vec<ObjectUid>, _> = release.uids.into_iter().map(ObjectUid::new).collect();
    let uids = uids.map_err(|e| ApiError::new(Code::InvalidRequest, format!("{e}.")))?;
    let look = looks::look(&app).await?;
    let look = look.ok_or_else(|| {
        ApiError::new(Code::ClusterUnknown, "Just now the cluster's machines cannot be listed.")
    })?;
    // A typing mistake must not release what nobody has looked at.
    let known = |uid: &ObjectUid| {
        look.assessment.unreleased.iter().any(|s| &s.uid == uid) || look.released.contains(uid)
    };
    if let Some(stranger) = uids.iter().find(|uid| !known(uid)) {
        return Err(ApiError::new(Code::InvalidRequest, format!("{stranger} is no ghost in the last list.")));
    }
    let by = lab_domain::UserId::of(app.publisher.installation, &user.owner);
    app.store.release(&uids, by.as_str(), app.now()).await?;
    tracing::warn!(user = %by, count = uids.len(), "an administrator released ghosts");
    ghosts_view(&app).await.map(Json)
}

/// An event of the stream. Guest text stays out.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EventView {
    /// Sequence in the stream.
    seq: u64,
    id: String,
    /// Kebab-case, for example `session-ready`.
    kind: &'static str,
    session: String,
    lab: String,
    /// Opaque.
    user: String,
    #[serde(with = "rfc3339::option")]
    at: Option<OffsetDateTime>,
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
}

impl EventView {
    pub(super) fn new(seq: u64, kind: &Kind, event: &v1::Event) -> Self {
        let (machine, reason, cause) = details(kind);
        let text = |s: &String| (!s.is_empty()).then(|| s.clone());
        Self {
            seq,
            id: event.event_id.clone(),
            kind: subjects::kind_name(kind),
            session: event.session_id.clone(),
            lab: event.lab.clone(),
            user: event.user.clone(),
            at: event.occurred_at.as_ref().and_then(convert::time),
            version: event.session_version,
            machine: machine.and_then(text),
            reason: reason.and_then(|r| convert::end_reason(r).ok()).map(EndReason::as_str),
            cause: cause.and_then(text),
        }
    }
}

type Details<'a> = (Option<&'a String>, Option<i32>, Option<&'a String>);

fn details(kind: &Kind) -> Details<'_> {
    match kind {
        Kind::ProvisioningStarted(e) => (Some(&e.machine), None, None),
        Kind::MachineProvisioned(e) => (Some(&e.machine), None, Some(&e.disk_reason)),
        Kind::ProvisionFailed(e) => (Some(&e.machine), None, Some(&e.cause)),
        Kind::MachineScheduled(e) => (Some(&e.machine), None, None),
        Kind::MachineRunning(e) => (Some(&e.machine), None, None),
        Kind::AgentReached(e) => (Some(&e.machine), None, None),
        Kind::MachineReady(e) => (Some(&e.machine), None, None),
        Kind::MachineFailed(e) => (Some(&e.machine), Some(e.reason), Some(&e.cause)),
        Kind::MachineStopped(e) => (Some(&e.machine), None, Some(&e.phase)),
        Kind::MachineLost(e) => (Some(&e.machine), None, Some(&e.cause)),
        Kind::ConsoleAttached(e) => (Some(&e.machine), None, None),
        Kind::ConsoleActive(e) => (Some(&e.machine), None, None),
        Kind::ConsoleDetached(e) => (Some(&e.machine), None, None),
        Kind::SessionEnding(e) => (None, Some(e.reason), Some(&e.cause)),
        Kind::SessionEnded(e) => (None, Some(e.reason), None),
        Kind::GhostReaped(e) => (None, None, Some(&e.name)),
        Kind::SessionRequested(_)
        | Kind::SessionReady(_)
        | Kind::SessionExtended(_)
        | Kind::CheckCompleted(_)
        | Kind::DeadlineReached(_)
        | Kind::SessionReaped(_) => (None, None, None),
    }
}
