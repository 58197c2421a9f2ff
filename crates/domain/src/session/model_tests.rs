//! Random histories against a small reference model.
//!
//! The model knows nothing of phases: it keeps, per machine, the set of facts seen and the order of outcomes, and says
//! from that alone what the session must look like.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use proptest::prelude::*;
use time::OffsetDateTime;

use super::{
    table_tests::{T0, name, queued, uid},
    *,
};

const MACHINES: [&str; 2] = ["one", "two"];

#[derive(Debug, Clone)]
enum Input {
    Start(usize, usize, u64),
    Failed(usize, u64),
    ProvisionFailed(usize, u64),
    Lost(usize, u64),
    Foreign(usize),
    Active(u64),
    End,
    Reaped,
}

fn at(seconds: u64) -> OffsetDateTime {
    T0 + Duration::from_secs(seconds)
}

fn start_fact(machine: usize, rank: usize, seconds: u64, uid_text: &str) -> Fact {
    let (machine, at, uid) = (name(MACHINES[machine]), at(seconds), uid(uid_text));
    match rank {
        0 => Fact::ProvisioningStarted { machine, at },
        1 => {
            Fact::MachineProvisioned { machine, disk: Some(DiskKind::Container), disk_reason: "x".into(), at }
        }
        2 => Fact::MachineScheduled { machine, uid, at },
        3 => Fact::MachineRunning { machine, uid, at },
        4 => Fact::AgentReached { machine, uid, at },
        _ => Fact::MachineReady { machine, uid, at },
    }
}

const RANKS: [(Progress, Step); 6] = [
    (Progress::Started, Step::Provisioning),
    (Progress::Provisioned, Step::Provisioned),
    (Progress::Scheduled, Step::Scheduled),
    (Progress::Running, Step::Running),
    (Progress::Agent, Step::Agent),
    (Progress::Ready, Step::Ready),
];

fn fact_of(input: &Input, session: &Session) -> Option<Fact> {
    Some(match input {
        Input::Start(m, rank, s) => start_fact(*m, *rank, *s, MACHINES[*m]),
        Input::Foreign(m) => start_fact(*m, 5, 1, "stranger"),
        Input::Failed(m, s) => Fact::MachineFailed {
            machine: name(MACHINES[*m]),
            uid: None,
            reason: EndReason::PrepareFailed,
            cause: "exit_status".into(),
            log_tail: String::new(),
            at: at(*s),
        },
        Input::ProvisionFailed(m, s) => {
            Fact::ProvisionFailed { machine: name(MACHINES[*m]), cause: "x".into(), at: at(*s) }
        }
        Input::Lost(m, s) => Fact::MachineLost {
            machine: name(MACHINES[*m]),
            uid: uid(MACHINES[*m]),
            cause: "deleted".into(),
            at: at(*s),
        },
        Input::Active(s) => Fact::ConsoleActive { at: at(*s) },
        Input::Reaped => {
            Fact::SessionReaped { ending_version: session.end_of().map_or(0, |e| e.version), at: at(50) }
        }
        Input::End => return None,
    })
}

#[derive(Default)]
struct Model {
    best: HashMap<usize, Progress>,
    times: BTreeMap<(Step, usize), u64>,
    reason: Option<EndReason>,
    was_ready: bool,
    ended: bool,
}

impl Model {
    fn see(&mut self, input: &Input) {
        let note = |times: &mut BTreeMap<_, u64>, key, s: u64| {
            times.entry(key).and_modify(|t| *t = (*t).min(s)).or_insert(s);
        };
        match input {
            Input::Start(m, rank, s) => {
                let (progress, step) = RANKS[*rank];
                let best = self.best.entry(*m).or_insert(Progress::None);
                *best = (*best).max(progress);
                note(&mut self.times, (step, *m), *s);
                if self.reason.is_none() && self.best.len() == 2 {
                    self.was_ready |= self.best.values().all(|p| *p == Progress::Ready);
                }
            }
            Input::Failed(m, s) | Input::ProvisionFailed(m, s) => {
                note(&mut self.times, (Step::Failed, *m), *s);
                let (limit, reason) = if matches!(input, Input::Failed(..)) {
                    (Progress::Ready, EndReason::PrepareFailed)
                } else {
                    (Progress::Provisioned, EndReason::ProvisionFailed)
                };
                if self.best.get(m).is_none_or(|p| *p < limit) {
                    self.reason.get_or_insert(reason);
                }
            }
            Input::Lost(m, s) => {
                note(&mut self.times, (Step::Lost, *m), *s);
                self.reason.get_or_insert(EndReason::VmLost);
            }
            Input::End => {
                self.reason.get_or_insert(EndReason::User);
            }
            Input::Reaped => self.ended |= self.reason.is_some(),
            Input::Foreign(_) | Input::Active(_) => {}
        }
    }

    fn state(&self) -> State {
        match (self.ended, self.reason) {
            (true, _) => State::Ended,
            (false, Some(_)) => State::Ending,
            (false, None) => {
                let of = |m| self.best.get(&m).copied().unwrap_or(Progress::None);
                of(0).min(of(1)).state()
            }
        }
    }
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        12 => (0..2usize, 0..6usize, 0..40u64).prop_map(|(m, r, s)| Input::Start(m, r, s)),
        1 => (0..2usize, 0..40u64).prop_map(|(m, s)| Input::Failed(m, s)),
        1 => (0..2usize, 0..40u64).prop_map(|(m, s)| Input::ProvisionFailed(m, s)),
        1 => (0..2usize, 0..40u64).prop_map(|(m, s)| Input::Lost(m, s)),
        1 => (0..2usize).prop_map(Input::Foreign),
        1 => (0..40u64).prop_map(Input::Active),
        1 => Just(Input::End),
        1 => Just(Input::Reaped),
    ]
}

/// Both machines pinned first, so that a foreign uid is foreign in every order.
fn pinned() -> Session {
    let start = queued(&MACHINES).leave_queue(T0).next;
    (0..2).fold(start, |s, m| s.project(&start_fact(m, 2, 40, MACHINES[m]), at(100)).unwrap().next)
}

fn apply(session: &Session, input: &Input) -> Projection {
    let now = at(100);
    match fact_of(input, session) {
        None => session.end(EndReason::User, now),
        Some(fact) => {
            session.project(&fact, now).unwrap_or(Projection { next: session.clone(), decisions: vec![] })
        }
    }
}

proptest! {
    #[test]
    fn any_history_agrees_with_the_model(inputs in prop::collection::vec(input(), 0..60)) {
        let mut session = pinned();
        let mut model = Model::default();
        for m in 0..2 {
            model.see(&Input::Start(m, 2, 40));
        }
        for input in &inputs {
            let before = session.clone();
            let Projection { next, decisions } = apply(&before, input);
            model.see(input);
            prop_assert!(next.state() >= before.state(), "a state went back");
            prop_assert_eq!(next.version, before.version + u64::from(next != before), "one change, one version");
            prop_assert!(decisions.is_empty() || next.version > before.version);
            if let Some(end) = before.end_of() {
                prop_assert_eq!(next.end_of(), Some(end), "the end is fixed once");
            }
            let twice = apply(&next, input);
            prop_assert_eq!(&twice.next, &next, "a repeat changed something");
            prop_assert_eq!(twice.decisions.len(), 0);
            session = next;
        }
        prop_assert_eq!(session.state(), model.state());
        prop_assert_eq!(session.end_of().map(|e| e.reason), model.reason);
        prop_assert_eq!(session.working().is_some(), model.was_ready);
        for ((step, m), seconds) in &model.times {
            let entry = session.timeline.get(*step, Some(&name(MACHINES[*m])));
            prop_assert_eq!(entry.map(|e| e.at), Some(at(*seconds)), "smallest time of {}", step);
        }
    }

    #[test]
    fn facts_of_a_good_start_converge_in_any_order(
        facts in Just((0..2usize).flat_map(|m| (0..6usize).map(move |r| (m, r))).collect::<Vec<_>>()).prop_shuffle(),
        repeats in prop::collection::vec((0..2usize, 0..6usize, 20..30u64), 0..20),
    ) {
        let sorted = (0..12).map(|n| Input::Start(n / 6, n % 6, 10));
        let shuffled = repeats.into_iter().map(|(m, r, s)| Input::Start(m, r, s))
            .chain(facts.into_iter().map(|(m, r)| Input::Start(m, r, 10)));
        let outline = |session: Session| {
            let mut lines: Vec<_> = session.timeline.entries().iter()
                .map(|e| (e.step, e.machine.clone(), e.at, e.late)).collect();
            lines.sort();
            (session.state(), session.machines, lines)
        };
        let one = sorted.fold(pinned(), |s, i| apply(&s, &i).next);
        let other = shuffled.fold(pinned(), |s, i| apply(&s, &i).next);
        prop_assert_eq!(outline(one), outline(other));
    }
}
