//! What a fired timer means.

use std::time::Duration;

use lab_domain::{Deadline, State};
use time::OffsetDateTime;

use crate::known::Known;

/// What to do with a fired timer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// It means nothing any more.
    Forget,
    /// The deadline still stands: again after this time.
    Rest(Duration),
    /// It is due.
    Reached { deadline: Deadline, value: OffsetDateTime },
}

/// Decides; `known` is `None` for a session that the api does not know.
pub(crate) fn timeout(known: Option<&Known>, now: OffsetDateTime) -> Timeout {
    let Some(known) = known else { return Timeout::Forget };
    match known.state {
        State::Ending | State::Ended => return Timeout::Forget,
        State::Queued
        | State::Requested
        | State::Provisioning
        | State::Booting
        | State::Preparing
        | State::Ready => {}
    }
    match known.deadlines.first() {
        // A queued session has none; its timer is set when it leaves the line.
        None => Timeout::Forget,
        Some((deadline, value)) if *value <= now => Timeout::Reached { deadline: *deadline, value: *value },
        Some((_, value)) => Timeout::Rest((*value - now).try_into().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use lab_domain::SessionId;
    use lab_proto::{convert, v1};
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-12-01 12:00 UTC);

    fn known(state: State, deadlines: [Option<i64>; 3]) -> Known {
        let at = |seconds: Option<i64>| seconds.map(|s| convert::timestamp(NOW + time::Duration::seconds(s)));
        let [start, expiry, idle] = deadlines;
        Known::read(&v1::Session {
            session_id: SessionId::generate().to_string(),
            state: convert::state_number(state),
            start_deadline: at(start),
            expires_at: at(expiry),
            idle_at: at(idle),
            ..Default::default()
        })
        .unwrap()
    }

    fn reached(deadline: Deadline, seconds: i64) -> Timeout {
        Timeout::Reached { deadline, value: NOW + time::Duration::seconds(seconds) }
    }

    #[test]
    fn every_row() {
        let ready = |expiry, idle| known(State::Ready, [None, Some(expiry), Some(idle)]);
        let table = [
            (None, Timeout::Forget),
            (Some(known(State::Ending, [None, Some(-5), None])), Timeout::Forget),
            (Some(known(State::Ended, [None, Some(-5), None])), Timeout::Forget),
            (Some(known(State::Queued, [None; 3])), Timeout::Forget),
            (Some(known(State::Booting, [Some(0), None, None])), reached(Deadline::Start, 0)),
            (Some(known(State::Booting, [Some(7), None, None])), Timeout::Rest(Duration::from_secs(7))),
            (Some(ready(-1, 60)), reached(Deadline::Expiry, -1)),
            (Some(ready(60, -1)), reached(Deadline::Idle, -1)),
            (Some(ready(-1, -9)), reached(Deadline::Idle, -9)),
            // Extended meanwhile: the timer that was set for the old value is put back.
            (Some(ready(900, 300)), Timeout::Rest(Duration::from_secs(300))),
        ];
        for (known, expected) in table {
            assert_eq!(timeout(known.as_ref(), NOW), expected, "{known:?}");
        }
    }
}
