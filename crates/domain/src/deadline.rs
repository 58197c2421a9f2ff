//! When a session must end, and what moves those moments.
//!
//! A queued session has none; a starting one has the backstop of its start; a ready one has its expiry and its idle
//! deadline. All are absolute times in the session itself, so a late look decides the same as a punctual one.

use std::time::Duration;

use time::OffsetDateTime;

use crate::{
    Deadline, EndReason,
    session::{Phase, Progress, Session, Terms, Working},
};

/// How long before the idle end the page warns.
pub const IDLE_WARNING: Duration = Duration::from_secs(300);

/// The deadlines that stand, earliest first.
#[must_use]
pub fn standing(session: &Session) -> Vec<(Deadline, OffsetDateTime)> {
    let mut all = match &session.phase {
        Phase::Starting { deadline, .. } => vec![(Deadline::Start, *deadline)],
        Phase::Ready(w) => vec![(Deadline::Expiry, w.expires_at), (Deadline::Idle, w.idle_at)],
        Phase::Queued | Phase::Ending(_) | Phase::Ended { .. } => vec![],
    };
    all.sort_by_key(|(_, at)| *at);
    all
}

/// The earliest deadline: what the session's timer is set to.
#[must_use]
pub fn earliest(session: &Session) -> Option<(Deadline, OffsetDateTime)> {
    standing(session).into_iter().next()
}

/// The deadlines that are due, earliest first.
#[must_use]
pub fn due(session: &Session, now: OffsetDateTime) -> Vec<Deadline> {
    standing(session).into_iter().filter(|(_, at)| *at <= now).map(|(d, _)| d).collect()
}

/// The idle deadline after activity at `at`.
#[must_use]
pub fn idle_after(at: OffsetDateTime, terms: &Terms) -> OffsetDateTime {
    at + terms.idle
}

/// When the page begins to warn.
#[must_use]
pub fn idle_warning_at(working: &Working) -> OffsetDateTime {
    (working.idle_at - IDLE_WARNING).max(working.ready_at)
}

/// The latest expiry that extending can reach.
#[must_use]
pub fn extend_until(ready_at: OffsetDateTime, terms: &Terms) -> OffsetDateTime {
    ready_at + terms.life + terms.extend_max
}

/// The expiry after one more extension, or `None` if there is none left. The last step may be shorter.
#[must_use]
pub fn extended(working: &Working, terms: &Terms) -> Option<OffsetDateTime> {
    let next = (working.expires_at + terms.extend_step).min(extend_until(working.ready_at, terms));
    (next > working.expires_at).then_some(next)
}

/// What a start that ran into the backstop is called, by how far its slowest machine came.
#[must_use]
pub const fn start_reason(least: Progress) -> (EndReason, Option<&'static str>) {
    match least {
        Progress::None | Progress::Started => (EndReason::ProvisionFailed, Some("not_provisioned")),
        Progress::Provisioned => (EndReason::DiskTimeout, None),
        Progress::Scheduled => (EndReason::BootTimeout, None),
        Progress::Running => (EndReason::AgentUnreachable, None),
        Progress::Agent | Progress::Ready => (EndReason::PrepareTimeout, None),
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const TERMS: Terms = Terms {
        life: Duration::from_secs(3600),
        idle: Duration::from_secs(1800),
        extend_step: Duration::from_secs(900),
        extend_max: Duration::from_secs(3600),
    };

    fn working() -> Working {
        let ready_at = datetime!(2026-12-01 10:00 UTC);
        Working { ready_at, expires_at: ready_at + TERMS.life, idle_at: ready_at + TERMS.idle }
    }

    #[test]
    fn four_extensions_of_a_quarter_reach_the_limit() {
        let mut w = working();
        let mut count = 0;
        while let Some(next) = extended(&w, &TERMS) {
            w.expires_at = next;
            count += 1;
        }
        assert_eq!((count, w.expires_at), (4, datetime!(2026-12-01 12:00 UTC)));
    }

    #[test]
    fn the_last_extension_is_cut_to_the_limit() {
        let terms = Terms { extend_max: Duration::from_secs(1000), ..TERMS };
        let mut w = working();
        w.expires_at = extended(&w, &terms).unwrap();
        w.expires_at = extended(&w, &terms).unwrap();
        assert_eq!(w.expires_at, extend_until(w.ready_at, &terms));
        assert_eq!(extended(&w, &terms), None);
    }

    #[test]
    fn a_lab_without_extension_never_extends() {
        assert_eq!(extended(&working(), &Terms { extend_max: Duration::ZERO, ..TERMS }), None);
        assert_eq!(extended(&working(), &Terms { extend_step: Duration::ZERO, ..TERMS }), None);
    }

    #[test]
    fn the_warning_comes_five_minutes_before_but_not_before_ready() {
        assert_eq!(idle_warning_at(&working()), datetime!(2026-12-01 10:25 UTC));
        let short = Working { idle_at: datetime!(2026-12-01 10:02 UTC), ..working() };
        assert_eq!(idle_warning_at(&short), short.ready_at);
    }
}
