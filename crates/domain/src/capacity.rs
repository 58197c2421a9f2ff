//! How many machines an environment has, and whether one more session fits.
//!
//! A machine counts if a session that is neither queued nor ended should have it, or if the cluster shows anything of
//! it: a VM, a VMI or a launcher pod. Counting pairs makes the two views one set, so nothing is counted twice and a
//! machine that only one side knows still takes its place.

use std::collections::HashSet;

use time::OffsetDateTime;

use crate::{
    Deadline, MachineName, SessionId, State,
    deadline::earliest,
    session::{Phase, Session},
};

/// One place: a machine of a session.
pub type Place = (SessionId, MachineName);

/// No place is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{used} of {cap} machines are in use and {wanted} more are wanted")]
pub struct Full {
    /// Places taken.
    pub used: usize,
    /// Places there are.
    pub cap: usize,
    /// Places asked for.
    pub wanted: usize,
}

/// True for a state whose machines take places.
#[must_use]
pub const fn takes_place(state: State) -> bool {
    match state {
        State::Queued | State::Ended => false,
        State::Requested
        | State::Provisioning
        | State::Booting
        | State::Preparing
        | State::Ready
        | State::Ending => true,
    }
}

/// Distinct places of the sessions and of the cluster together.
#[must_use]
pub fn used<'a>(
    sessions: impl IntoIterator<Item = &'a Place>,
    cluster: impl IntoIterator<Item = &'a Place>,
) -> usize {
    sessions.into_iter().chain(cluster).collect::<HashSet<_>>().len()
}

/// Admits `wanted` more machines.
///
/// # Errors
/// If they do not fit under the cap.
pub const fn admit(used: usize, wanted: usize, cap: usize) -> Result<(), Full> {
    if used.saturating_add(wanted) <= cap { Ok(()) } else { Err(Full { used, cap, wanted }) }
}

/// When `wanted` places are expected to be free, by the deadlines that stand; `None` if they never suffice.
#[must_use]
pub fn expected_at(sessions: &[Session], full: Full, now: OffsetDateTime) -> Option<OffsetDateTime> {
    let mut frees: Vec<(OffsetDateTime, usize)> = sessions
        .iter()
        .filter(|s| takes_place(s.state()))
        .filter_map(|s| Some((frees_at(s, now)?, s.machines.len())))
        .collect();
    frees.sort_by_key(|(at, _)| *at);
    let mut missing = full.used.saturating_add(full.wanted).saturating_sub(full.cap);
    for (at, places) in frees {
        missing = missing.saturating_sub(places);
        if missing == 0 {
            return Some(at.max(now));
        }
    }
    None
}

fn frees_at(session: &Session, now: OffsetDateTime) -> Option<OffsetDateTime> {
    match &session.phase {
        Phase::Ending(_) => Some(now),
        // A start that succeeds keeps its place for its whole life; the backstop would promise too much.
        Phase::Starting { deadline, .. } => Some(*deadline + session.terms.life),
        Phase::Ready(_) => earliest(session).map(|(deadline, at)| match deadline {
            // Who works does not idle: the expiry is the honest promise.
            Deadline::Idle => session.working().map_or(at, |w| w.expires_at),
            Deadline::Start | Deadline::Expiry => at,
        }),
        Phase::Queued | Phase::Ended { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(n: u128, machine: &str) -> Place {
        (SessionId(uuid::Uuid::from_u128(n)), MachineName::new(machine).unwrap())
    }

    #[test]
    fn a_machine_that_both_sides_know_counts_once() {
        let sessions = [place(1, "main"), place(2, "main"), place(2, "worker")];
        let cluster = [place(2, "main"), place(2, "main"), place(3, "main")];
        assert_eq!(used(&sessions, &cluster), 4);
        assert_eq!(used(&[], &cluster), 2);
        assert_eq!(used(&sessions, &[]), 3);
    }

    #[test]
    fn the_cap_is_reached_but_never_passed() {
        assert_eq!(admit(7, 1, 8), Ok(()));
        assert_eq!(admit(8, 1, 8), Err(Full { used: 8, cap: 8, wanted: 1 }));
        assert_eq!(admit(7, 3, 8), Err(Full { used: 7, cap: 8, wanted: 3 }));
        assert_eq!(admit(0, 1, 0), Err(Full { used: 0, cap: 0, wanted: 1 }));
    }

    #[test]
    fn queued_and_ended_sessions_take_no_place() {
        let free: Vec<_> = State::ALL.iter().copied().filter(|s| !takes_place(*s)).collect();
        assert_eq!(free, [State::Queued, State::Ended]);
    }
}
