use super::*;

#[test]
fn what_nobody_understands_rests_nine_times_and_then_is_given_up() {
    for attempt in 1..MAX_DELIVERIES {
        assert_eq!(not_understood(attempt, "x"), Disposition::Nak(UNKNOWN_DELAY));
    }
    assert_eq!(not_understood(MAX_DELIVERIES, "x"), Disposition::Term("x".into()));
}

#[test]
fn the_backoff_grows_to_a_minute_and_never_overflows() {
    assert!(backoff(1) < Duration::from_millis(1201));
    for attempt in [7, 100, u64::MAX, 0] {
        assert!(backoff(attempt) <= Duration::from_secs(72), "{attempt}");
    }
}

#[test]
fn a_backlog_is_past_what_it_has_acked() {
    let backlog = Backlog { pending: 3, unacked: 1, ack_floor: 10 };
    assert!(backlog.is_past(10) && !backlog.is_past(11));
    assert!(Backlog { pending: 0, unacked: 0, ack_floor: 2 }.is_past(11));
}
