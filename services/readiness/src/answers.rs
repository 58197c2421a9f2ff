//! Questions that readiness answers: run a grader, tell the terminal its size.
//!
//! The asker's deadline bounds everything. The machine is looked at before and after the call, like every dial.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use lab_bus::Refusal;
use lab_domain::{CheckOutcome, MachineName, SessionId, State};
use lab_kit::Shutdown;
use lab_kubevirt::Phase;
use lab_proto::{
    convert,
    subjects::{GRADE, READINESS_QUEUE, RESIZE},
    v1,
};

use crate::{agent, apply::Deps, decide::Machine, events, metrics::CallKind};

/// Kept from the asker's time, so that the answer arrives inside it.
const RETURN: Duration = Duration::from_millis(300);
/// No deadline is taken further than this.
const LONGEST: Duration = Duration::from_secs(660);
/// A terminal of a size that no window has is refused.
const MAX_ROWS: u32 = 500;
const MAX_COLS: u32 = 1000;

/// Why there is no verdict; the word in the answer.
type Trouble = &'static str;

/// Answers until the process stops.
pub fn spawn(deps: &Arc<Deps>, shutdown: &Shutdown) {
    let shared = Arc::clone(deps);
    let grade = move |request| {
        let deps = Arc::clone(&shared);
        async move { grade(&deps, request).await }
    };
    shutdown.spawn(deps.bus.answer(GRADE, READINESS_QUEUE, grade, shutdown.token.clone()));
    let shared = Arc::clone(deps);
    let resize = move |request| {
        let deps = Arc::clone(&shared);
        async move { resize(&deps, request).await }
    };
    shutdown.spawn(deps.bus.answer(RESIZE, READINESS_QUEUE, resize, shutdown.token.clone()));
}

async fn grade(deps: &Deps, request: v1::GradeRequest) -> Result<v1::GradeResponse, Refusal> {
    let target = Target::read(deps, &request.session_id, &request.machine, request.deadline.as_ref())?;
    let script = std::str::from_utf8(&request.script).map_err(|_| Refusal("malformed"))?;
    if request.check_id.is_empty() || request.check_id.len() > 128 {
        return Err(Refusal("malformed"));
    }
    let run = async {
        let socket = target.find(deps).await?;
        let left = target.left(deps).ok_or("timed_out")?;
        let timeout = Duration::from_millis(request.timeout_ms.into()).min(left);
        let token = deps.token(target.session, &target.machine);
        let graded = agent::exec(socket, &token, &request.check_id, script, timeout, left).await;
        deps.metrics.called(CallKind::Exec, graded.is_ok());
        let graded = graded.map_err(|error| match error {
            agent::Error::Busy => "busy",
            agent::Error::TimedOut => "timed_out",
            agent::Error::Connect(_)
            | agent::Error::Protocol(_)
            | agent::Error::Body(_)
            | agent::Error::Unauthorized
            | agent::Error::Status(_)
            | agent::Error::Malformed(_) => "agent_unreachable",
        })?;
        target.confirm(deps, socket).await?;
        Ok::<_, Trouble>(graded)
    };
    let graded =
        tokio::time::timeout(target.left(deps).unwrap_or_default(), run).await.unwrap_or(Err("timed_out"));
    Ok(verdict(graded))
}

/// The verdict of a grader, or why there is none.
fn verdict(graded: Result<agent::Graded, Trouble>) -> v1::GradeResponse {
    match graded {
        Ok(agent::Graded { exit_code, output, truncated, timed_out }) => {
            let (outcome, cause) = match (timed_out, exit_code) {
                (true, _) => (CheckOutcome::Error, "timed_out"),
                (false, 0) => (CheckOutcome::Passed, ""),
                (false, _) => (CheckOutcome::Failed, ""),
            };
            v1::GradeResponse {
                outcome: convert::check_outcome_number(outcome),
                exit_code,
                output,
                truncated,
                cause: cause.to_owned(),
            }
        }
        Err(trouble) => v1::GradeResponse {
            outcome: convert::check_outcome_number(CheckOutcome::Error),
            cause: trouble.to_owned(),
            ..Default::default()
        },
    }
}

async fn resize(deps: &Deps, request: v1::ResizeRequest) -> Result<v1::ResizeResponse, Refusal> {
    let v1::ResizeRequest { rows, cols, .. } = request;
    if !(1..=MAX_ROWS).contains(&rows) || !(1..=MAX_COLS).contains(&cols) {
        return Err(Refusal("malformed"));
    }
    let target = Target::read(deps, &request.session_id, &request.machine, request.deadline.as_ref())?;
    let run = async {
        let socket = target.find(deps).await?;
        let left = target.left(deps).ok_or("timed_out")?;
        let token = deps.token(target.session, &target.machine);
        let told = agent::tty(socket, &token, rows, cols, left).await;
        deps.metrics.called(CallKind::Tty, told.is_ok());
        told.map_err(|error| error.word())?;
        target.confirm(deps, socket).await
    };
    let told =
        tokio::time::timeout(target.left(deps).unwrap_or_default(), run).await.unwrap_or(Err("timed_out"));
    Ok(v1::ResizeResponse { applied: told.is_ok(), cause: told.err().unwrap_or_default().to_owned() })
}

/// The machine that a question is about.
struct Target {
    session: SessionId,
    machine: MachineName,
    deadline: time::OffsetDateTime,
}

impl Target {
    fn read(
        deps: &Deps,
        session: &str,
        machine: &str,
        deadline: Option<&prost_types::Timestamp>,
    ) -> Result<Self, Refusal> {
        let malformed = Refusal("malformed");
        let session = session.parse().map_err(|_| malformed.clone())?;
        let machine = MachineName::new(machine).map_err(|_| malformed.clone())?;
        let deadline = deadline.and_then(convert::time).ok_or(malformed)?;
        let target = Self { session, machine, deadline: deadline.min(deps.clock.now() + LONGEST) };
        match target.left(deps) {
            Some(_) => Ok(target),
            None => Err(Refusal("too_late")),
        }
    }

    /// What is left of the asker's time.
    fn left(&self, deps: &Deps) -> Option<Duration> {
        let left = Duration::try_from(self.deadline - deps.clock.now()).ok()?;
        left.checked_sub(RETURN).filter(|left| !left.is_zero())
    }

    /// Where the agent of the pinned machine listens.
    async fn find(&self, deps: &Deps) -> Result<SocketAddr, Trouble> {
        let machine = self.pinned(deps).await?;
        let uid = machine.pinned.ok_or("not_running")?;
        let (look, launcher) =
            tokio::join!(deps.cluster.look(self.session, &self.machine), deps.cluster.launcher(&uid));
        let (seen, _) = look.map_err(|_| "cluster_unknown")?;
        let runs = seen.is_some_and(|s| s.uid == uid && s.phase == Phase::Running && !s.is_terminating);
        if !runs {
            return Err("not_running");
        }
        let address = launcher.map_err(|_| "cluster_unknown")?.ok_or("not_running")?;
        Ok(SocketAddr::new(address, deps.agent_port))
    }

    /// Whether it was the pinned machine that answered.
    async fn confirm(&self, deps: &Deps, dialled: SocketAddr) -> Result<(), Trouble> {
        if self.find(deps).await? == dialled { Ok(()) } else { Err("not_running") }
    }

    async fn pinned(&self, deps: &Deps) -> Result<Machine, Trouble> {
        let session = events::session(&deps.bus, self.session).await.map_err(|_| "api_unreachable")?;
        let session = session.filter(|s| s.state == State::Ready).ok_or("not_running")?;
        session.machine(&self.machine).cloned().ok_or("not_running")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_an_exit_code() {
        let graded = |exit_code, timed_out| {
            Ok(agent::Graded { exit_code, output: "o".into(), truncated: false, timed_out })
        };
        for (graded, outcome, cause) in [
            (graded(0, false), CheckOutcome::Passed, ""),
            (graded(1, false), CheckOutcome::Failed, ""),
            (graded(137, true), CheckOutcome::Error, "timed_out"),
            (graded(0, true), CheckOutcome::Error, "timed_out"),
            (Err("busy"), CheckOutcome::Error, "busy"),
        ] {
            let answer = verdict(graded);
            assert_eq!(convert::check_outcome(answer.outcome), Ok(outcome));
            assert_eq!(answer.cause, cause);
        }
    }
}
