//! Projecting facts, by rank.

use time::OffsetDateTime;

use super::{Decision, Fact, Phase, Progress, Projection, Rejected, Session, Step};
use crate::{
    Deadline, EndReason, MachineName, ObjectUid,
    deadline::{idle_after, start_reason},
};

/// How a fact that names a machine bears on it.
enum Effect {
    /// The start came this far.
    Progress(Progress),
    /// The start failed; ignored from `immune` on.
    Failed { immune: Progress, reason: EndReason, cause: String, log_tail: String },
    /// A machine that had been there is gone; nothing is immune.
    Gone { reason: EndReason, cause: String },
}

impl Session {
    /// Takes in one fact.
    ///
    /// # Errors
    /// If the fact is not about this session as it stands; see [`Rejected`].
    pub fn project(&self, fact: &Fact, now: OffsetDateTime) -> Result<Projection, Rejected> {
        match fact {
            Fact::ProvisioningStarted { machine, at } => self.of_machine(
                machine,
                None,
                Step::Provisioning,
                *at,
                now,
                Effect::Progress(Progress::Started),
            ),
            Fact::MachineProvisioned { machine, disk, disk_reason, at } => {
                let first = self.timeline.get(Step::Provisioned, Some(machine)).is_none();
                let effect = Effect::Progress(Progress::Provisioned);
                let mut made = self.of_machine(machine, None, Step::Provisioned, *at, now, effect)?;
                // Only the first report counts: a later one of other content would be about objects that were not made.
                if first && let Some(m) = made.next.machines.iter_mut().find(|m| &m.name == machine) {
                    m.disk = *disk;
                    m.disk_reason = Some(disk_reason.clone());
                }
                match (&self.phase, first) {
                    (Phase::Ended { .. }, true) => {
                        made.next.version = self.version;
                        Ok(made.next.with_again(made.decisions))
                    }
                    (Phase::Ended { .. }, false)
                    | (Phase::Queued | Phase::Starting { .. } | Phase::Ready(_) | Phase::Ending(_), _) => {
                        Ok(made)
                    }
                }
            }
            Fact::ProvisionFailed { machine, cause, at } => {
                let effect = Effect::Failed {
                    immune: Progress::Provisioned,
                    reason: EndReason::ProvisionFailed,
                    cause: cause.clone(),
                    log_tail: String::new(),
                };
                self.of_machine(machine, None, Step::Failed, *at, now, effect)
            }
            Fact::MachineScheduled { machine, uid, at } => self.of_machine(
                machine,
                Some(uid),
                Step::Scheduled,
                *at,
                now,
                Effect::Progress(Progress::Scheduled),
            ),
            Fact::MachineRunning { machine, uid, at } => self.of_machine(
                machine,
                Some(uid),
                Step::Running,
                *at,
                now,
                Effect::Progress(Progress::Running),
            ),
            Fact::AgentReached { machine, uid, at } => {
                self.of_machine(machine, Some(uid), Step::Agent, *at, now, Effect::Progress(Progress::Agent))
            }
            Fact::MachineReady { machine, uid, at } => {
                self.of_machine(machine, Some(uid), Step::Ready, *at, now, Effect::Progress(Progress::Ready))
            }
            Fact::MachineFailed { machine, uid, reason, cause, log_tail, at } => {
                let effect = Effect::Failed {
                    immune: Progress::Ready,
                    reason: *reason,
                    cause: cause.clone(),
                    log_tail: log_tail.clone(),
                };
                self.of_machine(machine, uid.as_ref(), Step::Failed, *at, now, effect)
            }
            Fact::MachineStopped { machine, uid, phase, at } => {
                let effect = Effect::Gone { reason: EndReason::VmStopped, cause: phase.clone() };
                self.of_machine(machine, Some(uid), Step::Stopped, *at, now, effect)
            }
            Fact::MachineLost { machine, uid, cause, at } => {
                let effect = Effect::Gone { reason: EndReason::VmLost, cause: cause.clone() };
                self.of_machine(machine, Some(uid), Step::Lost, *at, now, effect)
            }
            Fact::ConsoleActive { at } => Ok(self.active((*at).min(now))),
            Fact::ConsoleAttached | Fact::ConsoleDetached | Fact::GhostReaped => Ok(self.unchanged()),
            Fact::DeadlineReached { deadline } => self.reach(*deadline, now),
            Fact::SessionReaped { ending_version, at } => self.reaped(*ending_version, *at, now),
        }
    }

    /// Ends the session if the named deadline in it is due; used for the reaper's fact and for the api's own scan.
    ///
    /// # Errors
    /// If it has no such deadline or the deadline lies in the future.
    pub fn reach(&self, deadline: Deadline, now: OffsetDateTime) -> Result<Projection, Rejected> {
        let due = |at: OffsetDateTime| at <= now;
        match (&self.phase, deadline) {
            (Phase::Starting { deadline: at, .. }, Deadline::Start) if due(*at) => {
                let (reason, cause) = start_reason(self.least());
                Ok(self.ending(reason, cause.map(str::to_owned), None, now))
            }
            (Phase::Ready(w), Deadline::Expiry) if due(w.expires_at) => {
                Ok(self.ending(EndReason::Expired, None, None, now))
            }
            (Phase::Ready(w), Deadline::Idle) if due(w.idle_at) => {
                Ok(self.ending(EndReason::Idle, None, None, now))
            }
            // A repeat of the deadline that ended it.
            (Phase::Ending(_) | Phase::Ended { .. }, _) => Ok(self.unchanged()),
            (Phase::Queued | Phase::Starting { .. } | Phase::Ready(_), _) => {
                Err(Rejected::NotDue { deadline })
            }
        }
    }

    /// Notes activity: the idle deadline moves, never back.
    pub(super) fn active(&self, at: OffsetDateTime) -> Projection {
        let mut next = self.clone();
        match &mut next.phase {
            Phase::Ready(working) => {
                let idle_at = idle_after(at, &self.terms);
                if idle_at > working.idle_at {
                    working.idle_at = idle_at;
                    next.version += 1;
                }
            }
            Phase::Queued | Phase::Starting { .. } | Phase::Ending(_) | Phase::Ended { .. } => {}
        }
        Projection { next, decisions: vec![] }
    }

    pub(super) fn unchanged(&self) -> Projection {
        Projection { next: self.clone(), decisions: vec![] }
    }

    fn reaped(
        &self,
        ending_version: u64,
        at: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<Projection, Rejected> {
        match &self.phase {
            Phase::Ending(end) if end.version == ending_version => {
                let mut next = self.clone();
                next.version += 1;
                next.timeline.note(Step::Ended, None, at, now, false);
                next.phase = Phase::Ended { end: end.clone(), at: now };
                Ok(Projection { next, decisions: vec![Decision::Ended { reason: end.reason }] })
            }
            Phase::Ended { .. } => Ok(self.unchanged()),
            Phase::Queued | Phase::Starting { .. } | Phase::Ready(_) | Phase::Ending(_) => {
                Err(Rejected::NotEnding { ending_version })
            }
        }
    }

    fn of_machine(
        &self,
        name: &MachineName,
        uid: Option<&ObjectUid>,
        step: Step,
        at: OffsetDateTime,
        now: OffsetDateTime,
        effect: Effect,
    ) -> Result<Projection, Rejected> {
        let mut next = self.clone();
        let Some(machine) = next.machines.iter_mut().find(|m| &m.name == name) else {
            return Err(Rejected::UnknownMachine { machine: name.clone() });
        };
        if matches!(self.phase, Phase::Queued) {
            return Err(Rejected::NotRequested);
        }
        let mut changed = false;
        match (&machine.pinned, uid) {
            (Some(pinned), Some(uid)) if pinned != uid => {
                return Err(Rejected::ForeignUid {
                    machine: name.clone(),
                    pinned: pinned.clone(),
                    reported: uid.clone(),
                });
            }
            (None, Some(uid)) => {
                machine.pinned = Some(uid.clone());
                changed = true;
            }
            (Some(_), Some(_) | None) | (None, None) => {}
        }

        let live = matches!(self.phase, Phase::Starting { .. } | Phase::Ready(_));
        let (late, fails) = match effect {
            Effect::Progress(progress) => {
                if progress > machine.progress {
                    machine.progress = progress;
                    changed = true;
                }
                // Only `ready` is an outcome: the steps before it contradict nothing, whenever they are told.
                (progress == Progress::Ready && !live, None)
            }
            Effect::Failed { immune, reason, cause, log_tail } => {
                let ignored = !live || machine.progress >= immune;
                (ignored, (!ignored).then_some((reason, cause, log_tail)))
            }
            Effect::Gone { reason, cause } => (!live, live.then_some((reason, cause, String::new()))),
        };
        // KubeVirt keeps whole seconds: cut off, a time can lie before the request that it answers.
        let at = at.max(self.requested_at());
        changed |= next.timeline.note(step, Some(name), at, now, late);
        if let Some((reason, cause, log_tail)) = fails {
            let text = |s: String| (!s.is_empty()).then_some(s);
            return Ok(next.ending(reason, text(cause), text(log_tail), now));
        }
        if matches!(self.phase, Phase::Starting { .. }) && next.least() == Progress::Ready {
            return Ok(next.become_ready(now));
        }
        next.version += u64::from(changed);
        Ok(Projection { next, decisions: vec![] })
    }

    fn requested_at(&self) -> OffsetDateTime {
        self.timeline.get(Step::Requested, None).map_or(self.created_at, |entry| entry.at)
    }

    fn become_ready(mut self, now: OffsetDateTime) -> Projection {
        let working = super::Working {
            ready_at: now,
            expires_at: now + self.terms.life,
            idle_at: idle_after(now, &self.terms),
        };
        self.version += 1;
        // Counted from now and not from the last machine's own time: before this moment nobody could open the console.
        self.timeline.note(Step::Ready, None, now, now, false);
        self.phase = Phase::Ready(working);
        Projection { next: self, decisions: vec![Decision::Ready(working)] }
    }
}
