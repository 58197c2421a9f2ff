//! What is to become of an object that carries our labels.
//!
//! An object is a ghost if no live or ending session owns it. Because a wrong answer deletes a student's machine, too
//! many ghosts at once are held until an operator confirms: a restored database or a wrong environment looks like that.

use std::collections::{HashMap, HashSet};

use crate::{MachineName, ObjectUid, SessionId, State, Verdict};

/// This many ghosts are always believed.
pub const ALWAYS_BELIEVED: usize = 3;

/// One machine as the api's own fresh list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Seen {
    /// `ttlab.io/session`.
    pub session: SessionId,
    /// `ttlab.io/machine`.
    pub machine: MachineName,
    /// The object's uid.
    pub uid: ObjectUid,
}

/// What the fresh list says about ghosts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assessment {
    /// Distinct machines in the list.
    pub machines: usize,
    /// Objects that no session owns and no operator released.
    pub unreleased: Vec<Seen>,
    /// Too many of them to be believed.
    pub hold: bool,
}

/// What a session's state means for its objects; `None` is a session that the api does not know.
#[must_use]
pub const fn of_state(state: Option<State>) -> Verdict {
    match state {
        Some(
            State::Queued
            | State::Requested
            | State::Provisioning
            | State::Booting
            | State::Preparing
            | State::Ready,
        ) => Verdict::Wanted,
        Some(State::Ending) => Verdict::Ending,
        Some(State::Ended) | None => Verdict::Unwanted,
    }
}

/// More than max(3, 20 %) of the machines.
#[must_use]
pub const fn is_too_many(ghosts: usize, machines: usize) -> bool {
    ghosts > ALWAYS_BELIEVED && ghosts * 5 > machines
}

/// Looks over a whole list. `states` holds every session of the list that the api knows.
#[must_use]
pub fn assess(
    list: &[Seen],
    states: &HashMap<SessionId, State>,
    released: &HashSet<ObjectUid>,
) -> Assessment {
    let machines: HashSet<_> = list.iter().map(|s| (s.session, &s.machine)).collect();
    let unreleased: Vec<Seen> = list
        .iter()
        .filter(|s| of_state(states.get(&s.session).copied()) == Verdict::Unwanted)
        .filter(|s| !released.contains(&s.uid))
        .cloned()
        .collect();
    let ghosts: HashSet<_> = unreleased.iter().map(|s| (s.session, &s.machine)).collect();
    let hold = is_too_many(ghosts.len(), machines.len());
    Assessment { machines: machines.len(), unreleased, hold }
}

/// The answer for one object: a ghost is held while there are too many, unless it was released by name.
#[must_use]
pub fn classify(state: Option<State>, is_released: bool, assessment: &Assessment) -> Verdict {
    match of_state(state) {
        Verdict::Unwanted if assessment.hold && !is_released => Verdict::Hold,
        verdict @ (Verdict::Wanted | Verdict::Ending | Verdict::Unwanted | Verdict::Hold) => verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(n: usize) -> Seen {
        Seen {
            session: SessionId(uuid::Uuid::from_u128(n as u128)),
            machine: MachineName::new("main").unwrap(),
            uid: ObjectUid::new(format!("uid-{n}")).unwrap(),
        }
    }

    #[test]
    fn every_state_has_its_verdict() {
        for state in State::ALL {
            let expected = match (state.is_live(), state) {
                (true, _) => Verdict::Wanted,
                (false, State::Ending) => Verdict::Ending,
                (false, _) => Verdict::Unwanted,
            };
            assert_eq!(of_state(Some(*state)), expected);
        }
        assert_eq!(of_state(None), Verdict::Unwanted);
    }

    #[test]
    fn three_ghosts_are_always_believed_and_a_fifth_is_the_limit() {
        for (ghosts, machines, too_many) in
            [(3, 3, false), (4, 4, true), (4, 19, true), (4, 20, false), (20, 100, false), (21, 100, true)]
        {
            assert_eq!(is_too_many(ghosts, machines), too_many, "{ghosts} of {machines}");
        }
    }

    #[test]
    fn an_operator_releases_by_uid() {
        let list: Vec<_> = (0..10).map(seen).collect();
        let states = HashMap::new();
        let held = assess(&list, &states, &HashSet::new());
        assert!(held.hold);
        assert_eq!(classify(None, false, &held), Verdict::Hold);
        assert_eq!(classify(None, true, &held), Verdict::Unwanted);
        assert_eq!(classify(Some(State::Ending), false, &held), Verdict::Ending);
        assert_eq!(classify(Some(State::Ready), false, &held), Verdict::Wanted);

        let released = list[..8].iter().map(|s| s.uid.clone()).collect();
        let rest = assess(&list, &states, &released);
        assert_eq!((rest.unreleased.len(), rest.hold), (2, false));
    }

    #[test]
    fn ending_machines_never_count_for_the_hold() {
        let list: Vec<_> = (0..10).map(seen).collect();
        let states = list.iter().map(|s| (s.session, State::Ending)).collect();
        assert_eq!(assess(&list, &states, &HashSet::new()).unreleased, []);
    }
}
