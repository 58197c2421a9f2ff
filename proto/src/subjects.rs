//! Every subject, stream and queue-group name. Nowhere else is one built.

use lab_domain::{Environment, SessionId};

use crate::v1::event::Event as Kind;

/// Names of one environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subjects {
    env: Environment,
}

/// Queue group of the api's answers.
pub const API_QUEUE: &str = "api";
/// Queue group of readiness' answers.
pub const READINESS_QUEUE: &str = "readiness";

impl Subjects {
    /// The names of `env`.
    #[must_use]
    pub fn new(env: Environment) -> Self {
        Self { env }
    }

    /// The environment.
    #[must_use]
    pub fn environment(&self) -> &Environment {
        &self.env
    }

    /// Stream of all facts and decisions.
    #[must_use]
    pub fn events_stream(&self) -> String {
        format!("LAB_{}", self.env.as_str().to_uppercase())
    }

    /// Stream of schedules and fired timeouts.
    #[must_use]
    pub fn timers_stream(&self) -> String {
        format!("{}_TIMERS", self.events_stream())
    }

    /// Mirror for outside subscribers.
    #[must_use]
    pub fn public_stream(&self) -> String {
        format!("{}_PUB", self.events_stream())
    }

    /// Where an event of this kind of this session goes.
    #[must_use]
    pub fn event(&self, session: SessionId, kind: &Kind) -> String {
        format!("lab.v1.{}.session.{session}.{}", self.env, kind_name(kind))
    }

    /// Filter: one kind of event of every session, for example `"session-ready"`.
    #[must_use]
    pub fn every(&self, kind: &str) -> String {
        format!("lab.v1.{}.session.*.{kind}", self.env)
    }

    /// Filter: everything of every session.
    #[must_use]
    pub fn all_events(&self) -> String {
        format!("lab.v1.{}.session.>", self.env)
    }

    /// Filter: everything of one session.
    #[must_use]
    pub fn session(&self, session: SessionId) -> String {
        format!("lab.v1.{}.session.{session}.>", self.env)
    }

    /// Where `consumer` puts what it could not handle.
    #[must_use]
    pub fn dead_letter(&self, consumer: &str) -> String {
        format!("lab.v1.{}.dead-letter.{consumer}", self.env)
    }

    /// Filter: all dead letters.
    #[must_use]
    pub fn all_dead_letters(&self) -> String {
        format!("lab.v1.{}.dead-letter.>", self.env)
    }

    /// Where a session's schedule is published.
    #[must_use]
    pub fn timer(&self, session: SessionId) -> String {
        format!("lab.v1.{}.timer.{session}", self.env)
    }

    /// Filter: all schedules.
    #[must_use]
    pub fn all_timers(&self) -> String {
        format!("lab.v1.{}.timer.*", self.env)
    }

    /// Where a session's schedule fires.
    #[must_use]
    pub fn timeout(&self, session: SessionId) -> String {
        format!("lab.v1.{}.timeout.{session}", self.env)
    }

    /// Filter: all fired timeouts.
    #[must_use]
    pub fn all_timeouts(&self) -> String {
        format!("lab.v1.{}.timeout.*", self.env)
    }

    /// The session of a `timeout` or `timer` subject of this environment.
    #[must_use]
    pub fn timed_session(&self, subject: &str) -> Option<SessionId> {
        let rest = subject.strip_prefix("lab.v1.")?.strip_prefix(self.env.as_str())?;
        rest.strip_prefix(".timeout.").or_else(|| rest.strip_prefix(".timer."))?.parse().ok()
    }

    /// A question, for example `"get-session"`.
    #[must_use]
    pub fn ask(&self, question: &str) -> String {
        format!("lab.v1.{}.ask.{question}", self.env)
    }
}

/// Question: [`crate::v1::GetSessionRequest`].
pub const GET_SESSION: &str = "get-session";
/// Question: [`crate::v1::ListSessionsRequest`].
pub const LIST_SESSIONS: &str = "list-sessions";
/// Question: [`crate::v1::ClassifyObjectRequest`].
pub const CLASSIFY_OBJECT: &str = "classify-object";
/// Question: [`crate::v1::GradeRequest`].
pub const GRADE: &str = "grade";
/// Question: [`crate::v1::ResizeRequest`].
pub const RESIZE: &str = "resize";

/// Every kind of event, in the order of its number.
pub const KINDS: &[&str] = &[
    "session-requested",
    "provisioning-started",
    "machine-provisioned",
    "provision-failed",
    "machine-scheduled",
    "machine-running",
    "agent-reached",
    "machine-ready",
    "machine-failed",
    "machine-stopped",
    "machine-lost",
    "session-ready",
    "session-extended",
    "check-completed",
    "console-attached",
    "console-active",
    "console-detached",
    "deadline-reached",
    "session-ending",
    "session-reaped",
    "session-ended",
    "ghost-reaped",
];

/// What each identity may publish as an event; a test holds that the lists are disjoint and complete.
pub mod publishes {
    /// Decisions.
    pub const API: &[&str] = &[
        "session-requested",
        "session-ready",
        "session-extended",
        "check-completed",
        "session-ending",
        "session-ended",
    ];
    /// Facts of the provisioner.
    pub const PROVISIONER: &[&str] = &["provisioning-started", "machine-provisioned", "provision-failed"];
    /// Facts of readiness.
    pub const READINESS: &[&str] = &[
        "machine-scheduled",
        "machine-running",
        "agent-reached",
        "machine-ready",
        "machine-failed",
        "machine-stopped",
        "machine-lost",
    ];
    /// Facts of the reaper.
    pub const REAPER: &[&str] = &["deadline-reached", "session-reaped", "ghost-reaped"];
    /// Facts of console-gw.
    pub const CONSOLE_GW: &[&str] = &["console-attached", "console-active", "console-detached"];
}

/// The last token of an event's subject.
#[must_use]
pub fn kind_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::SessionRequested(_) => "session-requested",
        Kind::ProvisioningStarted(_) => "provisioning-started",
        Kind::MachineProvisioned(_) => "machine-provisioned",
        Kind::ProvisionFailed(_) => "provision-failed",
        Kind::MachineScheduled(_) => "machine-scheduled",
        Kind::MachineRunning(_) => "machine-running",
        Kind::AgentReached(_) => "agent-reached",
        Kind::MachineReady(_) => "machine-ready",
        Kind::MachineFailed(_) => "machine-failed",
        Kind::MachineStopped(_) => "machine-stopped",
        Kind::MachineLost(_) => "machine-lost",
        Kind::SessionReady(_) => "session-ready",
        Kind::SessionExtended(_) => "session-extended",
        Kind::CheckCompleted(_) => "check-completed",
        Kind::ConsoleAttached(_) => "console-attached",
        Kind::ConsoleActive(_) => "console-active",
        Kind::ConsoleDetached(_) => "console-detached",
        Kind::DeadlineReached(_) => "deadline-reached",
        Kind::SessionEnding(_) => "session-ending",
        Kind::SessionReaped(_) => "session-reaped",
        Kind::SessionEnded(_) => "session-ended",
        Kind::GhostReaped(_) => "ghost-reaped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1;

    fn dev() -> Subjects {
        Subjects::new(Environment::new("dev").unwrap())
    }

    #[test]
    fn each_kind_is_published_by_exactly_one_identity() {
        let mut all: Vec<_> = [
            publishes::API,
            publishes::PROVISIONER,
            publishes::READINESS,
            publishes::REAPER,
            publishes::CONSOLE_GW,
        ]
        .concat();
        let mut kinds = KINDS.to_vec();
        all.sort_unstable();
        kinds.sort_unstable();
        assert_eq!(all, kinds);
    }

    #[test]
    fn an_event_lies_on_its_session_and_its_kind() {
        let session: SessionId = "0198f6c4-7b1c-7c3e-8f00-000000000001".parse().unwrap();
        let subject = dev().event(session, &Kind::SessionReady(v1::SessionReady::default()));
        assert_eq!(subject, "lab.v1.dev.session.0198f6c4-7b1c-7c3e-8f00-000000000001.session-ready");
    }

    #[test]
    fn a_timeout_tells_its_session_only_in_its_own_environment() {
        let session = SessionId::generate();
        assert_eq!(dev().timed_session(&dev().timeout(session)), Some(session));
        assert_eq!(dev().timed_session(&dev().timer(session)), Some(session));
        let other = Subjects::new(Environment::new("dev2").unwrap());
        assert_eq!(dev().timed_session(&other.timeout(session)), None);
        assert_eq!(dev().timed_session("lab.v1.dev.timeout.x"), None);
    }
}
