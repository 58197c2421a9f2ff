//! What people and the api itself ask of a session.

use time::OffsetDateTime;

use super::{Decision, End, Phase, Projection, Session, Step, Timeline};
use crate::{CheckOutcome, EndReason, State, deadline};

/// Why a command is not carried out. Nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Only a ready session can do this.
    #[error("the session is {state}, not ready")]
    NotReady {
        /// The state that it is in.
        state: State,
    },
    /// All extensions are used up.
    #[error("the session cannot be extended beyond {until}")]
    ExtendLimit {
        /// The latest possible expiry.
        until: OffsetDateTime,
    },
}

impl Session {
    /// Leaves the waiting line, or is admitted at once: from now the start limit counts.
    #[must_use]
    pub fn leave_queue(&self, now: OffsetDateTime) -> Projection {
        match &self.phase {
            Phase::Queued => {
                let mut next = self.clone();
                next.version += 1;
                next.timeline.note(Step::Requested, None, now, now, false);
                next.phase = Phase::Starting { requested_at: now, deadline: now + self.limits.start() };
                Projection { next, decisions: vec![Decision::Requested] }
            }
            Phase::Starting { .. } | Phase::Ready(_) | Phase::Ending(_) | Phase::Ended { .. } => {
                self.unchanged()
            }
        }
    }

    /// Ends the session for a person. Repeating it changes nothing.
    #[must_use]
    pub fn end(&self, reason: EndReason, now: OffsetDateTime) -> Projection {
        self.ending(reason, None, None, now)
    }

    /// Grants one more step of life.
    ///
    /// # Errors
    /// If it is not ready, or has had all extensions.
    pub fn extend(&self, now: OffsetDateTime) -> Result<Projection, Refused> {
        let Phase::Ready(working) = &self.phase else {
            return Err(Refused::NotReady { state: self.state() });
        };
        let until = deadline::extend_until(working.ready_at, &self.terms);
        let Some(expires_at) = deadline::extended(working, &self.terms) else {
            return Err(Refused::ExtendLimit { until });
        };
        let mut next = self.active(now).next;
        next.version = self.version + 1;
        if let Phase::Ready(working) = &mut next.phase {
            working.expires_at = expires_at;
        }
        Ok(Projection { next, decisions: vec![Decision::Extended { expires_at }] })
    }

    /// Notes that a step was checked; `auto` is no activity.
    ///
    /// # Errors
    /// If it is not ready (it may have begun to end while the grader ran).
    pub fn checked(
        &self,
        step: u32,
        outcome: CheckOutcome,
        auto: bool,
        now: OffsetDateTime,
    ) -> Result<Projection, Refused> {
        if self.state() != State::Ready {
            return Err(Refused::NotReady { state: self.state() });
        }
        let mut next = if auto { self.clone() } else { self.active(now).next };
        next.version = self.version + 1;
        Ok(Projection { next, decisions: vec![Decision::Checked { step, outcome, auto }] })
    }

    /// A machine of this ended session was found: the reaper is to look once more. The state stays `ended`.
    #[must_use]
    pub fn again(&self) -> Projection {
        match &self.phase {
            Phase::Ended { .. } => self.clone().with_again(vec![]),
            Phase::Queued | Phase::Starting { .. } | Phase::Ready(_) | Phase::Ending(_) => self.unchanged(),
        }
    }

    pub(super) fn with_again(mut self, mut decisions: Vec<Decision>) -> Projection {
        if let Some(end) = self.end_of().cloned() {
            self.version += 1;
            decisions.push(Decision::Ending { reason: end.reason, cause: end.cause, again: true });
        }
        Projection { next: self, decisions }
    }

    /// The one way into `ending`: the reason is fixed by the first who comes.
    pub(super) fn ending(
        &self,
        reason: EndReason,
        cause: Option<String>,
        log_tail: Option<String>,
        now: OffsetDateTime,
    ) -> Projection {
        let worked = match &self.phase {
            Phase::Queued | Phase::Starting { .. } => None,
            Phase::Ready(working) => Some(*working),
            Phase::Ending(_) | Phase::Ended { .. } => return self.unchanged(),
        };
        let mut next = self.clone();
        next.version += 1;
        let end = End { reason, cause: cause.clone(), log_tail, at: now, version: next.version, worked };
        next.timeline.note(Step::Ending, None, now, now, false);
        let decision = if matches!(self.phase, Phase::Queued) {
            // Nothing was ever asked for, so there is nothing to reap.
            next.timeline.note(Step::Ended, None, now, now, false);
            next.phase = Phase::Ended { end, at: now };
            Decision::Ended { reason }
        } else {
            next.phase = Phase::Ending(end);
            Decision::Ending { reason, cause, again: false }
        };
        Projection { next, decisions: vec![decision] }
    }

    /// A session in the waiting line, version 0. The caller admits it with [`Session::leave_queue`].
    #[must_use]
    pub fn queued(fresh: Fresh) -> Self {
        let Fresh { id, owner, lab, lab_digest, runtime, limits, terms, machines, created_at } = fresh;
        Self {
            id,
            owner,
            lab,
            lab_digest,
            runtime,
            limits,
            terms,
            version: 0,
            phase: Phase::Queued,
            machines: machines.into_iter().map(super::Machine::new).collect(),
            timeline: Timeline::default(),
            created_at,
        }
    }
}

/// What a new session is made of.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of `Session`, documented there")]
pub struct Fresh {
    pub id: crate::SessionId,
    pub owner: crate::OwnerName,
    pub lab: crate::LabId,
    pub lab_digest: crate::Digest,
    pub runtime: crate::Runtime,
    pub limits: crate::StartLimits,
    pub terms: super::Terms,
    pub machines: Vec<crate::MachineName>,
    pub created_at: OffsetDateTime,
}
