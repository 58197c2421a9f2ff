//! Ghosts: objects of ours that no live or ending session owns.
//!
//! An object is asked about only when two fresh lists, a grace apart on our own monotonic clock, both showed it without an
//! owner. A list of objects is begun before the list of sessions, so an object's session is in that list if it lives.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use lab_domain::{ObjectUid, SessionId, State};
use tokio::time::Instant;

use super::Object;

/// Since when each suspect has been seen without an owner.
pub(crate) type Suspects = HashMap<ObjectUid, Instant>;

/// What one sweep says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sweep<'a> {
    /// Suspects of this sweep; one that was not seen again is none any more.
    pub(crate) suspects: Suspects,
    /// Seen twice, a grace apart: to be asked about.
    pub(crate) ripe: Vec<&'a Object>,
    /// Sessions that are ending and of which something is there.
    pub(crate) ending: HashSet<SessionId>,
}

/// Compares a list of objects, begun at `began`, with the sessions that live or end.
pub(crate) fn sweep<'a>(
    before: &Suspects,
    objects: &'a [Object],
    sessions: &HashMap<SessionId, State>,
    began: Instant,
    grace: Duration,
) -> Sweep<'a> {
    let mut sweep = Sweep { suspects: Suspects::new(), ripe: Vec::new(), ending: HashSet::new() };
    for object in objects {
        // Nobody can be asked about an object whose session cannot be read: it stays.
        let Some(session) = object.session() else { continue };
        match sessions.get(&session) {
            Some(state) if state.is_live() => {}
            Some(State::Ending) => _ = sweep.ending.insert(session),
            Some(_) | None => {
                let since = before.get(&object.uid).copied().unwrap_or(began);
                sweep.suspects.insert(object.uid.clone(), since);
                if began.saturating_duration_since(since) >= grace {
                    sweep.ripe.push(object);
                }
            }
        }
    }
    sweep
}

#[cfg(test)]
mod tests {
    use lab_kubevirt::kinds::Kind;

    use super::{super::tests::object, *};

    const GRACE: Duration = Duration::from_secs(120);

    #[test]
    fn a_ghost_is_ripe_after_two_sightings_a_grace_apart() {
        let ghost = [object(Kind::VirtualMachine, SessionId::generate(), "u1")];
        let (start, none) = (Instant::now(), HashMap::new());
        let first = sweep(&Suspects::new(), &ghost, &none, start, GRACE);
        assert_eq!((first.suspects.len(), first.ripe.len()), (1, 0));
        let early = sweep(&first.suspects, &ghost, &none, start + GRACE - Duration::from_millis(1), GRACE);
        assert_eq!(early.ripe.len(), 0);
        let late = sweep(&early.suspects, &ghost, &none, start + GRACE, GRACE);
        assert_eq!(late.ripe.len(), 1);
    }

    #[test]
    fn one_that_was_owned_or_away_between_starts_anew() {
        let session = SessionId::generate();
        let seen = [object(Kind::Pod, session, "u1")];
        let (start, none) = (Instant::now(), HashMap::new());
        let first = sweep(&Suspects::new(), &seen, &none, start, GRACE);
        for (objects, sessions) in
            [(&[][..], none.clone()), (&seen[..], HashMap::from([(session, State::Ready)]))]
        {
            let between = sweep(&first.suspects, objects, &sessions, start + GRACE / 2, GRACE);
            assert_eq!(between.suspects.len(), 0);
            let again = sweep(&between.suspects, &seen, &none, start + GRACE, GRACE);
            assert_eq!(again.ripe.len(), 0, "the clock starts again");
        }
    }

    #[test]
    fn the_same_name_with_another_uid_is_another_suspect() {
        let session = SessionId::generate();
        let (start, none) = (Instant::now(), HashMap::new());
        let first =
            sweep(&Suspects::new(), &[object(Kind::Secret, session, "u1")], &none, start, GRACE).suspects;
        let replaced = [object(Kind::Secret, session, "u2")];
        assert_eq!(sweep(&first, &replaced, &none, start + GRACE, GRACE).ripe.len(), 0);
    }

    #[test]
    fn owned_objects_are_no_suspects_and_ending_ones_are_told() {
        let session = SessionId::generate();
        let seen = [object(Kind::VirtualMachine, session, "u1")];
        for state in State::ALL {
            let sessions = HashMap::from([(session, *state)]);
            let found = sweep(&Suspects::new(), &seen, &sessions, Instant::now(), Duration::ZERO);
            let is_ghost = *state == State::Ended;
            assert_eq!(found.ripe.len(), usize::from(is_ghost), "{state}");
            assert_eq!(found.ending.contains(&session), *state == State::Ending, "{state}");
        }
        let unreadable = [Object { identity: None, ..seen[0].clone() }];
        let found = sweep(&Suspects::new(), &unreadable, &HashMap::new(), Instant::now(), Duration::ZERO);
        assert_eq!((found.ripe.len(), found.suspects.len()), (0, 0));
    }
}
