//! Between rows and the aggregate.

use std::time::Duration;

use lab_domain::{
    Digest, LabId, MachineName, ObjectUid, OwnerName, SessionId, StartLimits,
    session::{End, Entry, Machine, Phase, Progress, Session, Terms, Timeline, Working},
};
use time::OffsetDateTime;
use uuid::Uuid;

use super::Error;

/// A row of `session`.
pub(super) struct SessionRow {
    pub(super) id: Uuid,
    pub(super) owner: String,
    pub(super) lab: String,
    pub(super) lab_digest: String,
    pub(super) runtime: String,
    pub(super) state: String,
    pub(super) version: i64,
    pub(super) disk_ms: i64,
    pub(super) boot_ms: i64,
    pub(super) agent_ms: i64,
    pub(super) prepare_ms: i64,
    pub(super) life_ms: i64,
    pub(super) idle_ms: i64,
    pub(super) extend_step_ms: i64,
    pub(super) extend_max_ms: i64,
    pub(super) created_at: OffsetDateTime,
    pub(super) requested_at: Option<OffsetDateTime>,
    pub(super) start_deadline: Option<OffsetDateTime>,
    pub(super) ready_at: Option<OffsetDateTime>,
    pub(super) expires_at: Option<OffsetDateTime>,
    pub(super) idle_at: Option<OffsetDateTime>,
    pub(super) reason: Option<String>,
    pub(super) cause: Option<String>,
    pub(super) log_tail: Option<String>,
    pub(super) ending_at: Option<OffsetDateTime>,
    pub(super) ending_version: Option<i64>,
    pub(super) ended_at: Option<OffsetDateTime>,
}

/// A row of `machine`.
pub(super) struct MachineRow {
    pub(super) session: Uuid,
    pub(super) name: String,
    pub(super) progress: String,
    pub(super) disk: Option<String>,
    pub(super) disk_reason: Option<String>,
    pub(super) pinned_uid: Option<String>,
}

/// A row of `timeline`.
pub(super) struct EntryRow {
    pub(super) session: Uuid,
    pub(super) step: String,
    pub(super) machine: String,
    pub(super) at: OffsetDateTime,
    pub(super) projected_at: OffsetDateTime,
    pub(super) late: bool,
}

const PROGRESS: [(Progress, &str); 7] = [
    (Progress::None, "none"),
    (Progress::Started, "started"),
    (Progress::Provisioned, "provisioned"),
    (Progress::Scheduled, "scheduled"),
    (Progress::Running, "running"),
    (Progress::Agent, "agent"),
    (Progress::Ready, "ready"),
];

pub(super) const fn progress_word(progress: Progress) -> &'static str {
    match progress {
        Progress::None => "none",
        Progress::Started => "started",
        Progress::Provisioned => "provisioned",
        Progress::Scheduled => "scheduled",
        Progress::Running => "running",
        Progress::Agent => "agent",
        Progress::Ready => "ready",
    }
}

pub(super) fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn duration(ms: i64) -> Duration {
    Duration::from_millis(ms.unsigned_abs())
}

/// Versions start at 0 and are raised by one; the column is checked to be positive.
pub(super) fn version(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl MachineRow {
    fn machine(self) -> Result<Machine, Error> {
        let bad = Error::unreadable("machine");
        let progress = PROGRESS.iter().find(|(_, word)| *word == self.progress);
        Ok(Machine {
            name: MachineName::new(self.name).map_err(|e| bad(&e))?,
            progress: progress.map(|(p, _)| *p).ok_or_else(|| bad(&"unknown progress"))?,
            disk: self.disk.map(|d| d.parse()).transpose().map_err(|e| bad(&e))?,
            disk_reason: self.disk_reason,
            pinned: self.pinned_uid.map(ObjectUid::new).transpose().map_err(|e| bad(&e))?,
        })
    }
}

impl EntryRow {
    fn entry(self) -> Result<Entry, Error> {
        let bad = Error::unreadable("timeline entry");
        let machine = (!self.machine.is_empty()).then(|| MachineName::new(self.machine)).transpose();
        Ok(Entry {
            step: self.step.parse().map_err(|e| bad(&e))?,
            machine: machine.map_err(|e| bad(&e))?,
            at: self.at,
            projected_at: self.projected_at,
            late: self.late,
        })
    }
}

/// Puts an aggregate together again.
pub(super) fn session(
    row: SessionRow,
    machines: Vec<MachineRow>,
    entries: Vec<EntryRow>,
) -> Result<Session, Error> {
    let bad = Error::unreadable("session");
    let phase = phase(&row)?;
    Ok(Session {
        id: SessionId(row.id),
        owner: OwnerName::new(row.owner).map_err(|e| bad(&e))?,
        lab: LabId::new(row.lab).map_err(|e| bad(&e))?,
        lab_digest: Digest::new(row.lab_digest).map_err(|e| bad(&e))?,
        runtime: row.runtime.parse().map_err(|e| bad(&e))?,
        limits: StartLimits {
            disk: duration(row.disk_ms),
            boot: duration(row.boot_ms),
            agent: duration(row.agent_ms),
            prepare: duration(row.prepare_ms),
        },
        terms: Terms {
            life: duration(row.life_ms),
            idle: duration(row.idle_ms),
            extend_step: duration(row.extend_step_ms),
            extend_max: duration(row.extend_max_ms),
        },
        version: row.version.unsigned_abs(),
        phase,
        machines: machines.into_iter().map(MachineRow::machine).collect::<Result<_, _>>()?,
        timeline: Timeline::from_entries(entries.into_iter().map(EntryRow::entry).collect::<Result<_, _>>()?),
        created_at: row.created_at,
    })
}

fn phase(row: &SessionRow) -> Result<Phase, Error> {
    use lab_domain::State;
    let bad = Error::unreadable("session");
    let lacks = |what: &'static str| move || Error::unreadable("session")(&format!("it lacks {what}"));
    let worked = match (row.ready_at, row.expires_at, row.idle_at) {
        (Some(ready_at), Some(expires_at), Some(idle_at)) => Some(Working { ready_at, expires_at, idle_at }),
        (Some(_) | None, _, _) => None,
    };
    let end = || {
        let reason = row.reason.as_deref().ok_or_else(lacks("a reason"))?;
        Ok::<_, Error>(End {
            reason: reason.parse().map_err(|e| bad(&e))?,
            cause: row.cause.clone(),
            log_tail: row.log_tail.clone(),
            at: row.ending_at.ok_or_else(lacks("the time of its end"))?,
            version: row.ending_version.ok_or_else(lacks("the version of its end"))?.unsigned_abs(),
            worked,
        })
    };
    Ok(match row.state.parse::<State>().map_err(|e| bad(&e))? {
        State::Queued => Phase::Queued,
        State::Requested | State::Provisioning | State::Booting | State::Preparing => Phase::Starting {
            requested_at: row.requested_at.ok_or_else(lacks("the time of its request"))?,
            deadline: row.start_deadline.ok_or_else(lacks("a start deadline"))?,
        },
        State::Ready => Phase::Ready(worked.ok_or_else(lacks("its times"))?),
        State::Ending => Phase::Ending(end()?),
        State::Ended => {
            Phase::Ended { end: end()?, at: row.ended_at.ok_or_else(lacks("the time it ended"))? }
        }
    })
}

/// The columns of a phase, in the order of the update statement.
#[derive(Default)]
pub(super) struct PhaseColumns {
    pub(super) requested_at: Option<OffsetDateTime>,
    pub(super) start_deadline: Option<OffsetDateTime>,
    pub(super) working: Option<Working>,
    pub(super) end: Option<End>,
    pub(super) ended_at: Option<OffsetDateTime>,
}

impl PhaseColumns {
    pub(super) fn of(phase: &Phase) -> Self {
        match phase {
            Phase::Queued => Self::default(),
            Phase::Starting { requested_at, deadline } => {
                Self { requested_at: Some(*requested_at), start_deadline: Some(*deadline), ..Self::default() }
            }
            Phase::Ready(working) => Self { working: Some(*working), ..Self::default() },
            Phase::Ending(end) => Self { working: end.worked, end: Some(end.clone()), ..Self::default() },
            Phase::Ended { end, at } => {
                Self { working: end.worked, end: Some(end.clone()), ended_at: Some(*at), ..Self::default() }
            }
        }
    }
}
