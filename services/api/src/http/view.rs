//! A session as the page sees it.

use lab_domain::{
    deadline,
    session::{Entry, Phase, Session, plain_words},
};
use serde::Serialize;
use time::{OffsetDateTime, serde::rfc3339};
use utoipa::ToSchema;

use crate::store::CheckRow;

/// A session.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct SessionView {
    id: String,
    lab: String,
    runtime: &'static str,
    /// `queued`, `requested`, `provisioning`, `booting`, `preparing`, `ready`, `ending` or `ended`.
    state: &'static str,
    /// Why it ends, once it does.
    reason: Option<&'static str>,
    /// Machine-readable detail of the reason.
    cause: Option<String>,
    /// Plain words: what happened and what to do next.
    message: Option<&'static str>,
    /// Tail of the prepare log, where that failed.
    log_tail: Option<String>,
    machines: Vec<MachineView>,
    timeline: Vec<EntryView>,
    #[serde(with = "rfc3339")]
    created_at: OffsetDateTime,
    #[serde(with = "rfc3339::option")]
    ready_at: Option<OffsetDateTime>,
    #[serde(with = "rfc3339::option")]
    start_deadline: Option<OffsetDateTime>,
    #[serde(with = "rfc3339::option")]
    expires_at: Option<OffsetDateTime>,
    #[serde(with = "rfc3339::option")]
    idle_at: Option<OffsetDateTime>,
    /// The latest `expires_at` that extending can reach.
    #[serde(with = "rfc3339::option")]
    extend_until: Option<OffsetDateTime>,
    extend_step_s: u64,
    console_url: String,
    /// The latest result of each step.
    checks: Vec<CheckView>,
    version: u64,
    /// The server's time, so that a page with a wrong clock counts right.
    #[serde(with = "rfc3339")]
    now: OffsetDateTime,
}

/// A machine.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct MachineView {
    name: String,
    state: &'static str,
    /// `golden`, `container` or `datavolume`, once it is known.
    disk: Option<&'static str>,
    disk_reason: Option<String>,
}

/// The first time of a phase.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct EntryView {
    /// `requested`, `provisioning`, `provisioned`, `scheduled`, `running`, `agent`, `ready`, `failed`, `stopped`,
    /// `lost`, `ending` or `ended`.
    phase: &'static str,
    machine: Option<String>,
    #[serde(with = "rfc3339")]
    at: OffsetDateTime,
    /// An outcome that came after another one had won.
    late: bool,
}

/// What a check said.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct CheckView {
    step: u32,
    /// `passed`, `failed` or `error`.
    outcome: &'static str,
    #[serde(with = "rfc3339")]
    at: OffsetDateTime,
    output: String,
    exit_code: Option<i32>,
    truncated: bool,
    /// Machine-readable where the outcome is `error`.
    cause: Option<String>,
    auto: bool,
}

impl From<CheckRow> for CheckView {
    fn from(row: CheckRow) -> Self {
        Self {
            step: row.step,
            outcome: row.outcome.as_str(),
            at: row.at,
            output: row.output,
            exit_code: row.exit_code,
            truncated: row.truncated,
            cause: row.cause,
            auto: row.auto,
        }
    }
}

impl SessionView {
    pub(super) fn new(session: &Session, checks: Vec<CheckRow>, now: OffsetDateTime) -> Self {
        let (working, end) = (session.working(), session.end_of());
        let start_deadline = match &session.phase {
            Phase::Starting { deadline, .. } => Some(*deadline),
            Phase::Queued | Phase::Ready(_) | Phase::Ending(_) | Phase::Ended { .. } => None,
        };
        // By step and not by time: KubeVirt keeps whole seconds, so times of neighbouring steps may cross.
        let mut entries: Vec<&Entry> = session.timeline.entries().iter().collect();
        entries.sort_by_key(|e| (e.step, e.machine.is_none(), e.at));
        let timeline = entries
            .into_iter()
            .map(|e| EntryView {
                phase: e.step.as_str(),
                machine: e.machine.as_ref().map(ToString::to_string),
                at: e.at,
                late: e.late,
            })
            .collect();
        Self {
            id: session.id.to_string(),
            lab: session.lab.to_string(),
            runtime: session.runtime.as_str(),
            state: session.state().as_str(),
            reason: end.map(|e| e.reason.as_str()),
            cause: end.and_then(|e| e.cause.clone()),
            message: end.map(|e| plain_words(e.reason, e.cause.as_deref())),
            log_tail: end.and_then(|e| e.log_tail.clone()),
            machines: session
                .machines
                .iter()
                .map(|m| MachineView {
                    name: m.name.to_string(),
                    state: m.progress.state().as_str(),
                    disk: m.disk.map(|d| d.as_str()),
                    disk_reason: m.disk_reason.clone(),
                })
                .collect(),
            timeline,
            created_at: session.created_at,
            ready_at: working.map(|w| w.ready_at),
            start_deadline,
            expires_at: working.map(|w| w.expires_at),
            idle_at: working.map(|w| w.idle_at),
            extend_until: working.map(|w| deadline::extend_until(w.ready_at, &session.terms)),
            extend_step_s: session.terms.extend_step.as_secs(),
            console_url: format!("/api/sessions/{}/console", session.id),
            checks: checks.into_iter().map(CheckView::from).collect(),
            version: session.version,
            now,
        }
    }
}
