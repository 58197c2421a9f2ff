#![expect(clippy::wildcard_enum_match_arm, reason = "a test names the events that it is about")]

use super::*;

const UID: &str = "uid-a";

fn t(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_764_547_200 + seconds).unwrap()
}

fn uid(text: &str) -> ObjectUid {
    ObjectUid::new(text).unwrap()
}

fn limits() -> StartLimits {
    StartLimits::default()
}

/// A machine that was provisioned at 0.
fn machine() -> Machine {
    Machine {
        name: MachineName::new("main").unwrap(),
        pinned: None,
        disk: Some(DiskKind::Golden),
        facts: Projected { provisioned: Some(t(0)), ..Projected::default() },
    }
}

fn pinned(facts: Projected) -> Machine {
    Machine { pinned: Some(uid(UID)), facts: Projected { provisioned: Some(t(0)), ..facts }, ..machine() }
}

fn running() -> Projected {
    Projected { scheduled: Some(t(5)), running: Some(t(6)), ..Projected::default() }
}

fn prepared() -> Projected {
    Projected { agent: Some(t(30)), ..running() }
}

fn ready() -> Projected {
    Projected { ready: Some(t(40)), ..prepared() }
}

fn vmi(phase: Phase) -> Seen {
    Seen {
        uid: uid(UID),
        phase,
        is_terminating: false,
        created_at: Some(t(1)),
        scheduled_at: Some(t(5)),
        running_at: Some(t(6)),
        conditions: vec![],
    }
}

fn bad(kind: &str, reason: &str, message: &str) -> Condition {
    serde_json::from_value(serde_json::json!({
        "type": kind, "status": "False", "reason": reason, "message": message, "lastTransitionTime": null,
    }))
    .unwrap()
}

fn agent(outcome: Option<Outcome>) -> Agent {
    Agent { uid: uid(UID), reached_at: Some(t(30)), outcome, trouble: None }
}

const FRESH: Look = Look::Fresh { has_vm: true };

struct Case<'a> {
    state: State,
    machine: &'a Machine,
    seen: Option<&'a Seen>,
    agent: Option<&'a Agent>,
    look: Look,
    now: i64,
}

impl Case<'_> {
    fn decide(&self) -> Decision {
        decide(self.state, &limits(), self.machine, self.seen, self.agent, self.look, t(self.now))
    }
}

/// Facts in short: their kind, and reason and cause where they have one.
fn short(decision: &Decision) -> Vec<String> {
    let one = |kind: &Kind| match kind {
        Kind::MachineFailed(f) => {
            format!("failed {} {}", convert::end_reason(f.reason).unwrap(), f.cause)
        }
        Kind::MachineStopped(f) => format!("stopped {} {}", f.phase, f.vmi_uid),
        Kind::MachineLost(f) => format!("lost {} {}", f.cause, f.vmi_uid),
        other => lab_proto::subjects::kind_name(other).to_owned(),
    };
    decision.facts.iter().map(one).collect()
}

fn at(machine: &Machine, seen: Option<&Seen>, look: Look, now: i64) -> Decision {
    Case { state: State::Booting, machine, seen, agent: None, look, now }.decide()
}

#[test]
fn phases_become_facts_with_kubevirts_own_times() {
    for (phase, want) in [
        (Phase::Unset, vec![]),
        (Phase::Pending, vec![]),
        (Phase::Scheduling, vec![]),
        (Phase::Unknown, vec![]),
        (Phase::Scheduled, vec!["machine-scheduled"]),
        (Phase::Running, vec!["machine-scheduled", "machine-running"]),
    ] {
        let decision = at(&machine(), Some(&vmi(phase)), Look::Watched, 7);
        assert_eq!(short(&decision), want, "{phase:?}");
        assert_eq!(decision.poll, None, "not pinned yet: {phase:?}");
    }
    let facts = at(&machine(), Some(&vmi(Phase::Running)), Look::Watched, 7).facts;
    assert!(matches!(&facts[0], Kind::MachineScheduled(f) if f.at == Some(convert::timestamp(t(5)))));
    assert!(matches!(&facts[1], Kind::MachineRunning(f) if f.at == Some(convert::timestamp(t(6)))));
    let untimed = Seen { scheduled_at: None, running_at: None, ..vmi(Phase::Running) };
    let facts = at(&machine(), Some(&untimed), Look::Watched, 7).facts;
    assert!(matches!(&facts[1], Kind::MachineRunning(f) if f.at == Some(convert::timestamp(t(7)))));
}

#[test]
fn what_the_api_shows_is_not_repeated() {
    let decision = at(&pinned(running()), Some(&vmi(Phase::Running)), Look::Watched, 7);
    assert!(decision.facts.is_empty());
    assert_eq!(decision.poll, Some(uid(UID)));
    assert_eq!(decision.wake_at, Some(t(6 + 150)));
}

#[test]
fn a_session_that_is_over_or_not_begun_is_left_alone() {
    let (machine, seen) = (pinned(ready()), None);
    for state in [State::Queued, State::Ending, State::Ended] {
        let case = Case { state, machine: &machine, seen, agent: None, look: FRESH, now: 9000 };
        assert_eq!(case.decide(), Decision::default());
    }
    let over = pinned(Projected { is_over: true, ..running() });
    assert_eq!(at(&over, None, FRESH, 9000), Decision::default());
}

#[test]
fn the_agents_words_become_facts() {
    let (machine, seen) = (pinned(running()), vmi(Phase::Running));
    let failed = |cause, exit_code| Outcome::Failed { cause, exit_code, log_tail: "tail".into() };
    for (outcome, want) in [
        (None, vec!["agent-reached"]),
        (Some(Outcome::Ready { at: t(40) }), vec!["agent-reached", "machine-ready"]),
        (
            Some(failed(Cause::ExitStatus, Some(3))),
            vec!["agent-reached", "failed prepare_failed exit_status"],
        ),
        (Some(failed(Cause::Timeout, None)), vec!["agent-reached", "failed prepare_timeout timeout"]),
        (Some(failed(Cause::CloudInit, None)), vec!["agent-reached", "failed prepare_failed cloud_init"]),
        (Some(failed(Cause::Signal, Some(137))), vec!["agent-reached", "failed prepare_failed signal"]),
        (Some(failed(Cause::Unknown, None)), vec!["agent-reached", "failed prepare_failed unknown"]),
    ] {
        let agent = agent(outcome.clone());
        let case = Case {
            state: State::Booting,
            machine: &machine,
            seen: Some(&seen),
            agent: Some(&agent),
            look: Look::Watched,
            now: 41,
        };
        let decision = case.decide();
        assert_eq!(short(&decision), want);
        assert_eq!(decision.poll.is_some(), outcome.is_none());
    }
    let foreign = Agent { uid: uid("uid-b"), ..agent(Some(Outcome::Ready { at: t(40) })) };
    let case = Case {
        state: State::Booting,
        machine: &machine,
        seen: Some(&seen),
        agent: Some(&foreign),
        look: FRESH,
        now: 41,
    };
    assert!(short(&case.decide()).is_empty(), "another VMI's agent");
}

#[test]
fn only_a_pinned_running_machine_that_stays_is_dialled() {
    let terminating = Seen { is_terminating: true, ..vmi(Phase::Running) };
    let other = Seen { uid: uid("uid-b"), ..vmi(Phase::Running) };
    for (machine, seen, dialled) in [
        (pinned(running()), vmi(Phase::Running), true),
        (pinned(running()), vmi(Phase::Scheduled), false),
        (pinned(running()), terminating, false),
        (pinned(running()), other, false),
        (machine(), vmi(Phase::Running), false),
        (pinned(ready()), vmi(Phase::Running), false),
    ] {
        assert_eq!(at(&machine, Some(&seen), Look::Watched, 7).poll.is_some(), dialled, "{seen:?}");
    }
}

#[test]
fn each_phase_has_its_own_limit_and_reason() {
    let over_boot = Projected { scheduled: Some(t(5)), ..Projected::default() };
    for (machine, seen, limit, want) in [
        (machine(), None, 600, "failed disk_timeout not_scheduled"),
        (machine(), Some(vmi(Phase::Scheduling)), 600, "failed disk_timeout not_scheduled"),
        (pinned(over_boot), Some(vmi(Phase::Scheduled)), 155, "failed boot_timeout not_running"),
        (pinned(running()), Some(vmi(Phase::Running)), 156, "failed agent_unreachable no_answer"),
        (pinned(prepared()), Some(vmi(Phase::Running)), 360, "failed prepare_timeout no_end"),
    ] {
        let seen = seen.as_ref();
        let before = at(&machine, seen, FRESH, limit - 1);
        assert!(short(&before).is_empty(), "{want}: {:?}", short(&before));
        assert_eq!(before.wake_at, Some(t(limit)), "{want}");
        let watched = at(&machine, seen, Look::Watched, limit);
        assert!(watched.look_afresh && watched.facts.is_empty(), "{want}: the watch may be behind");
        assert_eq!(short(&at(&machine, seen, FRESH, limit)), [want]);
    }
}

#[test]
fn a_phase_that_is_seen_and_not_projected_stops_the_limit_before_it() {
    let late = at(&machine(), Some(&vmi(Phase::Running)), FRESH, 5000);
    assert_eq!(short(&late), ["machine-scheduled", "machine-running"]);
    let unprovisioned = Machine { facts: Projected::default(), ..machine() };
    assert_eq!(at(&unprovisioned, None, FRESH, 5000), Decision::default());
}

#[test]
fn the_trouble_with_the_agent_is_the_cause_of_its_limit() {
    let (machine, seen) = (pinned(running()), vmi(Phase::Running));
    let agent = Agent { reached_at: None, trouble: Some("unauthorized"), ..agent(None) };
    let case = Case {
        state: State::Booting,
        machine: &machine,
        seen: Some(&seen),
        agent: Some(&agent),
        look: FRESH,
        now: 156,
    };
    assert_eq!(short(&case.decide()), ["failed agent_unreachable unauthorized"]);
}

#[test]
fn a_pinned_machine_that_goes_is_reported_from_a_fresh_look() {
    let terminating = Seen { is_terminating: true, ..vmi(Phase::Running) };
    let other = Seen { uid: uid("uid-b"), ..vmi(Phase::Pending) };
    for (seen, want) in [
        (None, "lost deleted uid-a"),
        (Some(other), "lost replaced uid-a"),
        (Some(terminating), "lost deleted uid-a"),
        (Some(vmi(Phase::Succeeded)), "stopped Succeeded uid-a"),
        (Some(vmi(Phase::Failed)), "stopped Failed uid-a"),
    ] {
        for facts in [running(), prepared(), ready()] {
            let (machine, seen) = (pinned(facts), seen.as_ref());
            let watched = at(&machine, seen, Look::Watched, 50);
            assert!(watched.look_afresh && watched.facts.is_empty());
            assert_eq!(short(&at(&machine, seen, FRESH, 50)), [want]);
        }
    }
    let healthy = at(&pinned(ready()), Some(&vmi(Phase::Running)), Look::Watched, 50_000);
    assert_eq!(healthy, Decision::default());
}

#[test]
fn a_machine_that_ends_before_it_had_a_host_failed() {
    let decision = at(&machine(), Some(&vmi(Phase::Failed)), FRESH, 20);
    assert_eq!(short(&decision), ["failed provision_failed vmi_failed"]);
}

#[test]
fn a_vm_that_vanished_before_its_vmi_came_is_not_waited_for() {
    assert_eq!(at(&machine(), None, Look::Watched, 3).wake_at, Some(t(15)));
    assert!(at(&machine(), None, Look::Watched, 15).look_afresh);
    let gone = Look::Fresh { has_vm: false };
    assert_eq!(short(&at(&machine(), None, gone, 15)), ["failed provision_failed machine_deleted"]);
    assert!(at(&machine(), None, FRESH, 15).facts.is_empty());
    let importing = Machine { disk: Some(DiskKind::DataVolume), ..machine() };
    assert!(!at(&importing, None, Look::Watched, 100).look_afresh);
}

#[test]
fn conditions_are_judged() {
    let quota =
        "failed to create virtual machine pod: pods \"virt-launcher-x\" is forbidden: exceeded quota: q";
    let security =
        "failed to create pod for vmi t/x, it needs a privileged namespace to run: violates PodSecurity";
    let binding =
        "failed to render launch manifest: couldn't find configuration for network binding: l2bridge";
    let claim = "failed to render launch manifest: didn't find PVC golden-1";
    let unbound = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims";
    let golden = Some(DiskKind::Golden);
    for (kind, reason, text, disk, want) in [
        ("Synchronized", "FailedCreate", quota, golden, Err("exceeded_quota")),
        ("Synchronized", "FailedCreate", security, golden, Ok(("PodSecurity", 0))),
        ("Synchronized", "FailedCreate", binding, golden, Ok(("NetworkBinding", 0))),
        ("Synchronized", "FailedCreate", claim, golden, Ok(("FailedPvcNotFound", 0))),
        ("Synchronized", "FailedCreate", "etcd is slow", golden, Ok(("FailedCreate", 45))),
        ("Synchronized", "FailedPvcNotFound", "PVC t/x does not exist", golden, Ok(("FailedPvcNotFound", 0))),
        ("Synchronized", "FailedPvcNotFound", "x", Some(DiskKind::DataVolume), Err("FailedPvcNotFound")),
        ("Synchronized", "ErrImagePull", "x", golden, Ok(("ErrImagePull", 60))),
        ("Synchronized", "ImagePullBackOff", "x", golden, Ok(("ErrImagePull", 60))),
        ("Synchronized", "SomethingNew", "x", golden, Err("SomethingNew")),
        (
            "PodScheduled",
            "Unschedulable",
            "no nodes available to schedule pods",
            golden,
            Ok(("Unschedulable", 60)),
        ),
        ("PodScheduled", "Unschedulable", unbound, golden, Err("Unschedulable")),
    ] {
        let got = fault(&[bad(kind, reason, text)], disk, Some(t(1)));
        match (got, want) {
            (Fault::Passing { cause }, Err(want)) => assert_eq!(cause, want),
            (Fault::Final { cause, since, .. }, Ok((want, after))) => {
                assert_eq!((cause.as_str(), since), (want, t(1 + after)));
            }
            (got, want) => panic!("{reason} {text}: {got:?} instead of {want:?}"),
        }
    }
    for fine in [bad("PodScheduled", "", ""), bad("Ready", "PodNotExists", ""), bad("Synchronized", "", "")] {
        assert_eq!(fault(&[fine], golden, Some(t(1))), Fault::None);
    }
}

#[test]
fn a_final_condition_ends_the_start_after_its_grace_and_names_itself() {
    let mut seen = vmi(Phase::Scheduling);
    seen.conditions = vec![bad("PodScheduled", "Unschedulable", "no nodes available to schedule pods")];
    assert_eq!(at(&machine(), Some(&seen), FRESH, 60).wake_at, Some(t(61)));
    let decision = at(&machine(), Some(&seen), FRESH, 61);
    assert_eq!(short(&decision), ["failed provision_failed Unschedulable"]);
    assert!(matches!(&decision.facts[0], Kind::MachineFailed(f) if f.message.ends_with("schedule pods")));
    assert!(at(&machine(), Some(&seen), Look::Watched, 61).look_afresh);
}

#[test]
fn a_passing_condition_is_the_cause_of_the_limit_that_ends_it() {
    let mut seen = vmi(Phase::Pending);
    seen.conditions = vec![bad("Synchronized", "FailedCreate", "exceeded quota: q")];
    assert!(at(&machine(), Some(&seen), FRESH, 599).facts.is_empty());
    assert_eq!(short(&at(&machine(), Some(&seen), FRESH, 600)), ["failed disk_timeout exceeded_quota"]);
}

#[test]
fn a_machine_that_runs_is_not_judged_by_old_conditions() {
    let mut seen = vmi(Phase::Running);
    seen.conditions = vec![bad("PodScheduled", "Unschedulable", "x")];
    assert!(at(&pinned(running()), Some(&seen), FRESH, 100).facts.is_empty());
}

/// All that a decision is made from.
type Known = (State, Machine, Option<Seen>, Option<Agent>, Look, i64);

/// Every combination of what can be known, with few values each.
fn everything() -> Vec<Known> {
    let phases = [
        Phase::Unset,
        Phase::Pending,
        Phase::Scheduling,
        Phase::Scheduled,
        Phase::Running,
        Phase::Succeeded,
        Phase::Failed,
        Phase::WaitingForSync,
        Phase::Unknown,
    ];
    let mut seen = vec![None];
    for phase in phases {
        for is_terminating in [false, true] {
            for id in [UID, "uid-b"] {
                seen.push(Some(Seen { uid: uid(id), is_terminating, ..vmi(phase) }));
            }
        }
    }
    let scheduled = Projected { scheduled: Some(t(5)), ..Projected::default() };
    let over = Projected { is_over: true, ..running() };
    let facts = [Projected::default(), scheduled, running(), prepared(), ready(), over];
    let failed = Outcome::Failed { cause: Cause::ExitStatus, exit_code: Some(1), log_tail: String::new() };
    let agents =
        [None, Some(agent(None)), Some(agent(Some(Outcome::Ready { at: t(40) }))), Some(agent(Some(failed)))];
    let looks = [Look::Watched, FRESH, Look::Fresh { has_vm: false }];
    let mut all = Vec::new();
    for state in State::ALL {
        for seen in &seen {
            for facts in facts {
                for pin in [None, Some(uid(UID))] {
                    for agent in &agents {
                        for look in looks {
                            for now in [0, 50, 300, 5000] {
                                let machine = Machine { pinned: pin.clone(), ..pinned(facts) };
                                all.push((*state, machine, seen.clone(), agent.clone(), look, now));
                            }
                        }
                    }
                }
            }
        }
    }
    all
}

#[test]
fn whatever_is_known_no_rule_is_broken() {
    for (state, machine, seen, agent, look, now) in everything() {
        let decide = || decide(state, &limits(), &machine, seen.as_ref(), agent.as_ref(), look, t(now));
        let decision = decide();
        let case = || format!("{state} {machine:?} {seen:?} {agent:?} {look:?} {now}: {decision:?}");
        assert_eq!(decide(), decision, "a decision depends on nothing else");
        let mut ends = 0;
        for kind in &decision.facts {
            let (is_end, of) = match kind {
                Kind::MachineFailed(f) => (f.log_tail.is_empty() && f.cause != "exit_status", &f.vmi_uid),
                Kind::MachineStopped(f) => (true, &f.vmi_uid),
                Kind::MachineLost(f) => (true, &f.vmi_uid),
                Kind::MachineScheduled(f) => (false, &f.vmi_uid),
                Kind::MachineRunning(f) => (false, &f.vmi_uid),
                Kind::AgentReached(f) => (false, &f.vmi_uid),
                Kind::MachineReady(f) => (false, &f.vmi_uid),
                other => panic!("not readiness' to say: {other:?}"),
            };
            ends += usize::from(is_end);
            assert!(!is_end || look != Look::Watched, "an end from the watch: {}", case());
            let is_pinned = machine.pinned.as_ref().is_none_or(|pin| of == pin.as_str());
            assert!(is_pinned, "another uid than the pinned one: {}", case());
        }
        assert!(ends <= 1, "two ends: {}", case());
        let is_dialable = seen.as_ref().is_some_and(|s| {
            s.phase == Phase::Running && !s.is_terminating && machine.pinned.as_ref() == Some(&s.uid)
        });
        assert!(decision.poll.is_none() || is_dialable, "{}", case());
        let is_live = state.is_live() && state != State::Queued && !machine.facts.is_over;
        assert!(is_live || decision == Decision::default(), "{}", case());
    }
}
