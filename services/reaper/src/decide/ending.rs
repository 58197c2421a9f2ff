//! An ending session: what is deleted, and when it may be called gone.
//!
//! Invariant (create and end may cross): the last look begins 20 s after we first learned of the end, because a create that the
//! api permitted before the end may still arrive until then. Only where every machine had been reported made long before the
//! end can nothing arrive any more, and the first look that shows nothing is the last.

use std::time::Duration;

use lab_domain::State;

use super::{Object, deletions};
use crate::known::Known;

/// A permitted create arrives within this time: 10 s until it is sent, 5 s for the request, and a margin.
pub(crate) const CROSSING: Duration = Duration::from_secs(20);

/// One look at everything of one session.
#[derive(Debug)]
pub(crate) struct Look<'a> {
    /// What it showed.
    pub(crate) objects: Vec<&'a Object>,
    /// Every kind that the cluster serves answered: an error or a 403 is not "gone".
    pub(crate) is_complete: bool,
    /// How long we knew of the end when the look began.
    pub(crate) heard_for: Duration,
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decision<'a> {
    /// To be deleted now.
    pub(crate) delete: Vec<&'a Object>,
    /// What follows.
    pub(crate) then: Then,
}

/// What follows the deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Everything is gone and nothing can come any more.
    Reaped,
    /// Something is there, or could not be seen.
    LookAgain,
    /// Everything is gone, but something may still come: look again no earlier than after this time.
    LookAfter(Duration),
}

/// Decides.
pub(crate) fn decide<'a>(known: &Known, look: &Look<'a>) -> Decision<'a> {
    let delete = deletions(&look.objects);
    let then = if !look.is_complete || !look.objects.is_empty() {
        Then::LookAgain
    } else if look.heard_for >= CROSSING || is_settled(known) {
        Then::Reaped
    } else {
        Then::LookAfter(CROSSING - look.heard_for)
    };
    Decision { delete, then }
}

/// Whether every machine had been reported made more than 20 s before the end.
fn is_settled(known: &Known) -> bool {
    let Some(end) = known.ending_at else { return false };
    let settled = |at: time::OffsetDateTime| end - at > CROSSING;
    !known.machines.is_empty() && known.machines.iter().all(|m| m.provisioned_at.is_some_and(settled))
}

/// Whether the session is to be deleted; `again` where the api said so once more after it had ended.
pub(crate) fn is_due(known: Option<&Known>, again: bool) -> bool {
    match known.map(|k| k.state) {
        Some(State::Ending) => true,
        Some(State::Ended) => again,
        Some(
            State::Queued
            | State::Requested
            | State::Provisioning
            | State::Booting
            | State::Preparing
            | State::Ready,
        )
        // Objects of a session that nobody knows are ghosts, with their own guards.
        | None => false,
    }
}

/// Until the next look, growing: most machines go within their 5 s of grace, some only when a host comes back.
pub(crate) fn pause(looks: u32) -> Duration {
    const FIRST: Duration = Duration::from_millis(300);
    const LAST: Duration = Duration::from_secs(30);
    FIRST.mul_f64(1.4_f64.powi(looks.min(20).cast_signed())).min(LAST)
}

#[cfg(test)]
mod tests {
    use lab_domain::SessionId;
    use lab_kubevirt::kinds::Kind;
    use lab_proto::{convert, v1};
    use time::{OffsetDateTime, macros::datetime};

    use super::{super::tests::object, *};

    const END: OffsetDateTime = datetime!(2026-12-01 12:00 UTC);

    fn known(provisioned_before: &[Option<u64>]) -> Known {
        let machine = |(n, before): (usize, &Option<u64>)| v1::Machine {
            name: format!("m{n}"),
            facts: before
                .map(|s| v1::ProjectedFact {
                    kind: "machine-provisioned".to_owned(),
                    at: Some(convert::timestamp(END - Duration::from_secs(s))),
                })
                .into_iter()
                .collect(),
            ..Default::default()
        };
        Known::read(&v1::Session {
            session_id: SessionId::generate().to_string(),
            state: convert::state_number(State::Ending),
            machines: provisioned_before.iter().enumerate().map(machine).collect(),
            ending_at: Some(convert::timestamp(END)),
            ..Default::default()
        })
        .unwrap()
    }

    fn empty(heard_for: u64) -> Look<'static> {
        Look { objects: vec![], is_complete: true, heard_for: Duration::from_secs(heard_for) }
    }

    #[test]
    fn the_last_look_waits_for_what_may_still_cross() {
        let table = [
            // No machine was ever reported, or not all, or too shortly before the end.
            (&[None][..], 0, Then::LookAfter(Duration::from_secs(20))),
            (&[None], 19, Then::LookAfter(Duration::from_secs(1))),
            (&[None], 20, Then::Reaped),
            (&[Some(20)], 0, Then::LookAfter(Duration::from_secs(20))),
            (&[Some(3600), None], 5, Then::LookAfter(Duration::from_secs(15))),
            (&[Some(3600), Some(20)], 0, Then::LookAfter(Duration::from_secs(20))),
            // Every machine long before: the first empty look is the last.
            (&[Some(21)], 0, Then::Reaped),
            (&[Some(3600), Some(21)], 0, Then::Reaped),
            (&[], 0, Then::LookAfter(Duration::from_secs(20))),
        ];
        for (machines, heard_for, expected) in table {
            let decision = decide(&known(machines), &empty(heard_for));
            assert_eq!(decision.then, expected, "{machines:?} after {heard_for} s");
        }
    }

    #[test]
    fn anything_that_is_there_or_unseen_means_another_look() {
        let session = SessionId::generate();
        for kind in Kind::ALL {
            for is_leaving in [false, true] {
                let one = Object { is_leaving, ..object(kind, session, "u1") };
                let look = Look { objects: vec![&one], ..empty(3600) };
                let decision = decide(&known(&[Some(3600)]), &look);
                assert_eq!(decision.then, Then::LookAgain, "{one:?}");
                assert_eq!(decision.delete.len(), usize::from(!is_leaving), "{one:?}");
            }
        }
        let unseen = Look { is_complete: false, ..empty(3600) };
        assert_eq!(decide(&known(&[Some(3600)]), &unseen).then, Then::LookAgain);
    }

    #[test]
    fn only_what_the_api_calls_ending_is_deleted() {
        for state in State::ALL {
            let known = Known { state: *state, ..known(&[]) };
            assert_eq!(is_due(Some(&known), false), *state == State::Ending, "{state}");
            assert_eq!(is_due(Some(&known), true), !state.is_live(), "{state} again");
        }
        assert!(!is_due(None, true));
    }

    #[test]
    fn looks_become_rarer_up_to_half_a_minute() {
        assert_eq!(pause(0), Duration::from_millis(300));
        assert!((1..30).all(|n| pause(n) >= pause(n - 1)));
        assert_eq!(pause(u32::MAX), Duration::from_secs(30));
    }
}
