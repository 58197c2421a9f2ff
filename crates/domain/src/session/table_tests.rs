//! Every (phase, event) pair, in one table.

use std::time::Duration;

use time::{OffsetDateTime, macros::datetime};
use uuid::Uuid;

use super::*;
use crate::deadline;

pub(super) const T0: OffsetDateTime = datetime!(2026-12-01 10:00 UTC);

pub(super) fn name(s: &str) -> MachineName {
    MachineName::new(s).unwrap()
}

pub(super) fn uid(s: &str) -> ObjectUid {
    ObjectUid::new(s).unwrap()
}

pub(super) fn queued(machines: &[&str]) -> Session {
    Session::queued(Fresh {
        id: SessionId(Uuid::from_u128(7)),
        owner: OwnerName::new("alice").unwrap(),
        lab: LabId::new("systemd-repair").unwrap(),
        lab_digest: Digest::new("0".repeat(64)).unwrap(),
        runtime: Runtime::Vm,
        limits: StartLimits::default(),
        terms: Terms {
            life: Duration::from_secs(3600),
            idle: Duration::from_secs(1800),
            extend_step: Duration::from_secs(900),
            extend_max: Duration::from_secs(3600),
        },
        machines: machines.iter().map(|m| name(m)).collect(),
        created_at: T0,
    })
}

/// A session of one machine in each state, reached the way it is reached in life.
fn in_state(state: State) -> Session {
    let start = || queued(&["main"]).leave_queue(T0).next;
    let with = |facts: &[Fact]| {
        facts.iter().fold(start(), |s, f| s.project(f, T0).expect("the path to the state is legal").next)
    };
    match state {
        State::Queued => queued(&["main"]),
        State::Requested => start(),
        State::Provisioning => with(&[started(), provisioned()]),
        State::Booting => with(&[started(), provisioned(), scheduled(), running()]),
        State::Preparing => with(&[started(), provisioned(), scheduled(), running(), agent()]),
        State::Ready => with(&[started(), provisioned(), scheduled(), running(), agent(), ready()]),
        State::Ending => in_state(State::Ready).end(EndReason::User, T0).next,
        State::Ended => {
            let ending = in_state(State::Ending);
            let ending_version = ending.end_of().unwrap().version;
            ending.project(&Fact::SessionReaped { ending_version, at: T0 }, T0).unwrap().next
        }
    }
}

fn started() -> Fact {
    Fact::ProvisioningStarted { machine: name("main"), at: T0 }
}
fn provisioned() -> Fact {
    Fact::MachineProvisioned {
        machine: name("main"),
        disk: Some(DiskKind::Golden),
        disk_reason: "golden".into(),
        at: T0,
    }
}
fn provision_failed() -> Fact {
    Fact::ProvisionFailed { machine: name("main"), cause: "lab_changed".into(), at: T0 }
}
fn scheduled() -> Fact {
    Fact::MachineScheduled { machine: name("main"), uid: uid("u1"), at: T0 }
}
fn running() -> Fact {
    Fact::MachineRunning { machine: name("main"), uid: uid("u1"), at: T0 }
}
fn agent() -> Fact {
    Fact::AgentReached { machine: name("main"), uid: uid("u1"), at: T0 }
}
fn ready() -> Fact {
    Fact::MachineReady { machine: name("main"), uid: uid("u1"), at: T0 }
}
fn failed() -> Fact {
    Fact::MachineFailed {
        machine: name("main"),
        uid: Some(uid("u1")),
        reason: EndReason::PrepareFailed,
        cause: "exit_status".into(),
        log_tail: "boom".into(),
        at: T0,
    }
}
fn stopped() -> Fact {
    Fact::MachineStopped { machine: name("main"), uid: uid("u1"), phase: "Succeeded".into(), at: T0 }
}
fn lost() -> Fact {
    Fact::MachineLost { machine: name("main"), uid: uid("u1"), cause: "deleted".into(), at: T0 }
}

/// What a pair gives: a state and decisions, or a rejection.
#[derive(Debug, PartialEq, Eq, Clone)]
enum Gives {
    Stays,
    Moves(State),
    Decides(State, &'static str),
    Rejects,
}
use Gives::{Decides, Moves, Rejects, Stays};

fn gives(before: &Session, result: Result<Projection, Rejected>) -> Gives {
    let Ok(made) = result else { return Rejects };
    let state = made.next.state();
    assert!(state >= before.state(), "a state never goes back");
    match made.decisions.as_slice() {
        [] if state == before.state() => Stays,
        [] => Moves(state),
        [one] => Decides(
            state,
            match one {
                Decision::Requested => "requested",
                Decision::Ready(_) => "ready",
                Decision::Extended { .. } => "extended",
                Decision::Checked { .. } => "checked",
                Decision::Ending { again: false, .. } => "ending",
                Decision::Ending { again: true, .. } => "again",
                Decision::Ended { .. } => "ended",
            },
        ),
        many => panic!("one event decides one thing, not {many:?}"),
    }
}

#[test]
fn every_fact_in_every_state() {
    use State::{Booting, Ended, Ending, Preparing, Provisioning, Ready};
    let ends = || Decides(Ending, "ending");
    let late = 10_000; // Seconds after T0 at which every deadline has passed.
    #[rustfmt::skip]
    // Columns:                  queued   requested            provisioning         booting              preparing            ready    ending   ended
    let table: Vec<(Fact, i64, [Gives; 8])> = vec![
        (started(),          1, [Rejects, Moves(Provisioning), Stays,               Stays,               Stays,               Stays,   Stays,   Stays]),
        (provisioned(),      1, [Rejects, Moves(Provisioning), Stays,               Stays,               Stays,               Stays,   Stays,   Stays]),
        (provision_failed(), 1, [Rejects, ends(),              Stays,               Stays,               Stays,               Stays,   Stays,   Stays]),
        (scheduled(),        1, [Rejects, Moves(Booting),      Moves(Booting),      Stays,               Stays,               Stays,   Stays,   Stays]),
        (running(),          1, [Rejects, Moves(Booting),      Moves(Booting),      Stays,               Stays,               Stays,   Stays,   Stays]),
        (agent(),            1, [Rejects, Moves(Preparing),    Moves(Preparing),    Moves(Preparing),    Stays,               Stays,   Stays,   Stays]),
        (ready(),            1, [Rejects, Decides(Ready, "ready"), Decides(Ready, "ready"), Decides(Ready, "ready"), Decides(Ready, "ready"), Stays, Stays, Stays]),
        (failed(),           1, [Rejects, ends(),              ends(),              ends(),              ends(),              Stays,   Stays,   Stays]),
        (stopped(),          1, [Rejects, ends(),              ends(),              ends(),              ends(),              ends(),  Stays,   Stays]),
        (lost(),             1, [Rejects, ends(),              ends(),              ends(),              ends(),              ends(),  Stays,   Stays]),
        (Fact::ConsoleAttached, 1, [Stays, Stays, Stays, Stays, Stays, Stays, Stays, Stays]),
        (Fact::ConsoleActive { at: T0 }, 1, [Stays, Stays, Stays, Stays, Stays, Stays, Stays, Stays]),
        (Fact::ConsoleDetached, 1, [Stays, Stays, Stays, Stays, Stays, Stays, Stays, Stays]),
        (Fact::GhostReaped,  1, [Stays, Stays, Stays, Stays, Stays, Stays, Stays, Stays]),
        (Fact::DeadlineReached { deadline: Deadline::Start },  1,    [Rejects, Rejects, Rejects, Rejects, Rejects, Rejects, Stays, Stays]),
        (Fact::DeadlineReached { deadline: Deadline::Expiry }, 1,    [Rejects, Rejects, Rejects, Rejects, Rejects, Rejects, Stays, Stays]),
        (Fact::DeadlineReached { deadline: Deadline::Idle },   1,    [Rejects, Rejects, Rejects, Rejects, Rejects, Rejects, Stays, Stays]),
        (Fact::DeadlineReached { deadline: Deadline::Start },  late, [Rejects, ends(),  ends(),  ends(),  ends(),  Rejects, Stays, Stays]),
        (Fact::DeadlineReached { deadline: Deadline::Expiry }, late, [Rejects, Rejects, Rejects, Rejects, Rejects, ends(),  Stays, Stays]),
        (Fact::DeadlineReached { deadline: Deadline::Idle },   late, [Rejects, Rejects, Rejects, Rejects, Rejects, ends(),  Stays, Stays]),
        (Fact::SessionReaped { ending_version: 8, at: T0 },    1,    [Rejects, Rejects, Rejects, Rejects, Rejects, Rejects, Decides(Ended, "ended"), Stays]),
        (Fact::SessionReaped { ending_version: 3, at: T0 },    1,    [Rejects, Rejects, Rejects, Rejects, Rejects, Rejects, Rejects, Stays]),
    ];
    for (fact, after, row) in table {
        for (state, expected) in State::ALL.iter().zip(row) {
            let before = in_state(*state);
            let now = T0 + Duration::from_secs(after.unsigned_abs());
            let got = before.project(&fact, now);
            if let Ok(made) = &got {
                let again = made.next.project(&fact, now + Duration::from_secs(1)).unwrap();
                assert_eq!(again.next, made.next, "{fact:?} twice in {state}");
                assert_eq!(again.decisions, [], "{fact:?} twice in {state}");
            }
            assert_eq!(gives(&before, got), expected, "{fact:?} in {state}");
        }
    }
}

#[test]
fn every_command_in_every_state() {
    for state in State::ALL {
        let before = in_state(*state);
        let ready = *state == State::Ready;
        let end = gives(&before, Ok(before.end(EndReason::User, T0)));
        let expected_end = match state {
            State::Queued => Decides(State::Ended, "ended"),
            State::Ending | State::Ended => Stays,
            State::Requested | State::Provisioning | State::Booting | State::Preparing | State::Ready => {
                Decides(State::Ending, "ending")
            }
        };
        assert_eq!(end, expected_end, "end in {state}");
        assert_eq!(before.extend(T0).is_ok(), ready, "extend in {state}");
        assert_eq!(before.checked(1, CheckOutcome::Passed, false, T0).is_ok(), ready, "check in {state}");
        let left = gives(&before, Ok(before.leave_queue(T0)));
        let expected = if *state == State::Queued { Decides(State::Requested, "requested") } else { Stays };
        assert_eq!(left, expected, "leave_queue in {state}");
        let again = gives(&before, Ok(before.again()));
        let expected = if *state == State::Ended { Decides(State::Ended, "again") } else { Stays };
        assert_eq!(again, expected, "again in {state}");
    }
}

#[test]
fn a_deadline_names_the_phase_that_it_finds() {
    let path = [started(), provisioned(), scheduled(), running(), agent()];
    let reasons = [
        (0, EndReason::ProvisionFailed, Some("not_provisioned")),
        (1, EndReason::ProvisionFailed, Some("not_provisioned")),
        (2, EndReason::DiskTimeout, None),
        (3, EndReason::BootTimeout, None),
        (4, EndReason::AgentUnreachable, None),
        (5, EndReason::PrepareTimeout, None),
    ];
    for (facts, reason, cause) in reasons {
        let session = path[..facts]
            .iter()
            .fold(queued(&["main"]).leave_queue(T0).next, |s, f| s.project(f, T0).unwrap().next);
        let now = T0 + session.limits.start();
        let ended = session.reach(Deadline::Start, now).unwrap().next;
        let end = ended.end_of().unwrap();
        assert_eq!((end.reason, end.cause.as_deref()), (reason, cause), "after {facts} facts");
    }
}

#[test]
fn the_slowest_machine_gives_the_state_and_one_failed_machine_fails_the_session() {
    let of = |m: &str, f: fn(MachineName) -> Fact| f(name(m));
    let ready = |machine: MachineName| Fact::MachineReady { uid: uid(machine.as_str()), machine, at: T0 };
    let start = queued(&["one", "two"]).leave_queue(T0).next;
    let one = start.project(&of("one", ready), T0).unwrap().next;
    assert_eq!(one.state(), State::Requested);
    let both = one.project(&of("two", ready), T0).unwrap();
    assert_eq!(both.next.state(), State::Ready);
    let fails = |machine: MachineName| Fact::MachineFailed {
        machine,
        uid: None,
        reason: EndReason::BootTimeout,
        cause: String::new(),
        log_tail: String::new(),
        at: T0,
    };
    assert_eq!(one.project(&of("two", fails), T0).unwrap().next.state(), State::Ending);
    let ignored = one.project(&of("one", fails), T0).unwrap().next;
    assert_eq!(ignored.state(), State::Requested, "a machine that was ready cannot fail its start");
    assert!(ignored.timeline.get(Step::Failed, Some(&name("one"))).unwrap().late);
}

#[test]
fn another_uid_is_no_fact_about_this_session() {
    let session = in_state(State::Ready);
    let stranger =
        Fact::MachineLost { machine: name("main"), uid: uid("u2"), cause: "deleted".into(), at: T0 };
    assert!(matches!(session.project(&stranger, T0), Err(Rejected::ForeignUid { .. })));
    let unknown = Fact::ProvisioningStarted { machine: name("other"), at: T0 };
    assert!(matches!(session.project(&unknown, T0), Err(Rejected::UnknownMachine { .. })));
}

#[test]
fn the_loser_of_two_outcomes_is_kept_as_late() {
    let failed_first = in_state(State::Preparing).project(&failed(), T0).unwrap().next;
    assert_eq!(failed_first.end_of().unwrap().log_tail.as_deref(), Some("boom"));
    let then_ready = failed_first.project(&ready(), T0).unwrap().next;
    assert_eq!(then_ready.end_of(), failed_first.end_of());
    assert!(then_ready.timeline.get(Step::Ready, Some(&name("main"))).unwrap().late);
    assert!(!then_ready.timeline.get(Step::Failed, Some(&name("main"))).unwrap().late);
}

#[test]
fn a_machine_made_after_the_end_is_reaped_again() {
    let start = queued(&["main"]).leave_queue(T0).next;
    let ending = start.end(EndReason::User, T0).next;
    let reaped = Fact::SessionReaped { ending_version: ending.version, at: T0 };
    let ended = ending.project(&reaped, T0).unwrap().next;
    let made = ended.project(&provisioned(), T0).unwrap();
    assert_eq!(made.next.state(), State::Ended);
    assert_eq!(made.next.version, ended.version + 1);
    assert_eq!(made.decisions, [Decision::Ending { reason: EndReason::User, cause: None, again: true }]);
    assert_eq!(made.next.project(&provisioned(), T0).unwrap().decisions, []);
}

#[test]
fn activity_moves_the_idle_deadline_but_never_back() {
    let session = in_state(State::Ready);
    let minutes = |m: u64| T0 + Duration::from_secs(60 * m);
    let active = |at| Fact::ConsoleActive { at };
    let later = session.project(&active(minutes(5)), minutes(6)).unwrap().next;
    assert_eq!(later.working().unwrap().idle_at, minutes(35));
    let older = later.project(&active(minutes(2)), minutes(7)).unwrap();
    assert_eq!(older.next, later);
    let ahead = later.project(&active(minutes(600)), minutes(8)).unwrap().next;
    assert_eq!(ahead.working().unwrap().idle_at, minutes(38), "a clock that runs ahead buys no time");
    let auto = later.checked(1, CheckOutcome::Passed, true, minutes(9)).unwrap().next;
    assert_eq!(auto.working().unwrap().idle_at, minutes(35), "an automatic check is no activity");
    let manual = later.checked(1, CheckOutcome::Passed, false, minutes(9)).unwrap().next;
    assert_eq!(manual.working().unwrap().idle_at, minutes(39));
}

#[test]
fn an_extension_wins_over_a_deadline_that_fired_before_it() {
    let session = in_state(State::Ready);
    let after = session.working().unwrap().expires_at + Duration::from_secs(1);
    let extended = session.extend(after).unwrap().next;
    assert!(matches!(extended.reach(Deadline::Expiry, after), Err(Rejected::NotDue { .. })));
    assert_eq!(deadline::due(&extended, after), [], "extending is activity");
}

#[test]
fn extending_ends_at_the_limit() {
    let mut session = in_state(State::Ready);
    for _ in 0..4 {
        session = session.extend(T0).unwrap().next;
    }
    assert_eq!(session.extend(T0), Err(Refused::ExtendLimit { until: T0 + Duration::from_secs(7200) }));
}

#[test]
fn a_time_that_has_not_come_is_cut_to_now() {
    let fact =
        Fact::MachineScheduled { machine: name("main"), uid: uid("u1"), at: T0 + Duration::from_secs(99) };
    let next = queued(&["main"]).leave_queue(T0).next.project(&fact, T0).unwrap().next;
    assert_eq!(next.timeline.get(Step::Scheduled, Some(&name("main"))).unwrap().at, T0);
}

#[test]
fn every_end_has_plain_words() {
    for reason in EndReason::ALL {
        assert!(plain_words(*reason, None).len() > 20, "{reason}");
    }
}

#[test]
fn a_time_cut_to_whole_seconds_does_not_lie_before_the_request() {
    let requested = T0 + Duration::from_millis(700);
    let fact = Fact::MachineScheduled { machine: name("main"), uid: uid("u1"), at: T0 };
    let next = queued(&["main"]).leave_queue(requested).next.project(&fact, requested).unwrap().next;
    assert_eq!(next.timeline.get(Step::Scheduled, Some(&name("main"))).unwrap().at, requested);
}
