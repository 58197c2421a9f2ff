//! Admission: one transaction that no other admission runs beside.
//!
//! ```text
//!  lock ─▶ the student's own sessions ─▶ places in the database ∪ places in the cluster ─▶ cap ─▶ session + outbox
//! ```
//!
//! A thousand requests at once, over several replicas, are admitted one after the other; the partial unique index on
//! the owner stands behind the lock.

use std::time::Duration;

use lab_catalog::Lab;
use lab_domain::{
    OwnerName, SessionId,
    capacity::{self, Full},
    session::{Fresh, Session, Terms},
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{
    app::App,
    error::{ApiError, Code},
    metrics::Admission,
    store::{self, Store, StoredCheck, StoredStep, Tx},
};

/// A message that waits longer than this says that the bus is away.
const OUTBOX_LIMIT: Duration = Duration::from_secs(10);
/// Sessions of one student that may be ending while another starts.
const MAX_ENDING: usize = 2;

/// Why a session is not started.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The student has this one.
    Exists(Box<Session>),
    /// Anything else.
    Problem(ApiError),
}

impl<E: Into<ApiError>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self::Problem(error.into())
    }
}

/// Starts `lab` for `owner`.
pub(crate) async fn admit(app: &App, owner: &OwnerName, lab: &Lab) -> Result<Session, Refused> {
    let result = try_admit(app, owner, lab).await;
    app.metrics.admission(match &result {
        Ok(_) => Admission::Admitted,
        Err(Refused::Exists(_)) => Admission::Exists,
        Err(Refused::Problem(problem)) => match problem.code() {
            Code::Capacity => Admission::Full,
            Code::SessionEnding => Admission::Ending,
            Code::UnknownLab
            | Code::LabUnsupported
            | Code::SessionExists
            | Code::ClusterUnknown
            | Code::BusUnreachable
            | Code::NoSession
            | Code::NotFound
            | Code::NotReady
            | Code::ExtendLimit
            | Code::UnknownStep
            | Code::InvalidRequest
            | Code::PayloadTooLarge
            | Code::MethodNotAllowed
            | Code::Unauthorized
            | Code::Forbidden
            | Code::Origin
            | Code::NotServing
            | Code::Unavailable
            | Code::Internal => Admission::Unavailable,
        },
    });
    result
}

async fn try_admit(app: &App, owner: &OwnerName, lab: &Lab) -> Result<Session, Refused> {
    if let Some(why) = &lab.unsupported {
        return Err(ApiError::new(Code::LabUnsupported, why.clone()).into());
    }
    if !app.gate.allowed() {
        let detail = "The environment's database, broker and cluster have not been compared yet.";
        return Err(ApiError::new(Code::NotServing, detail).into());
    }
    let now = app.now();
    if app.store.oldest_waiting().await?.is_some_and(|at| now - at > OUTBOX_LIMIT) {
        return Err(ApiError::new(Code::BusUnreachable, "Messages to the other services are stuck.").into());
    }
    match locked(app, owner, lab).await {
        Ok(Locked::Admitted(session)) => {
            tracing::info!(session.id = %session.id, lab = %session.lab, "session requested");
            Ok(*session)
        }
        Ok(Locked::Exists(id)) => exists(app, owner, Some(id)).await,
        Ok(Locked::Full(full)) => Err(full_problem(app, full, now).await?.into()),
        // The index refused it: somebody else came between.
        Err(Refused::Problem(problem)) => Err(Refused::Problem(problem)),
        Err(exists @ Refused::Exists(_)) => Err(exists),
    }
}

enum Locked {
    Admitted(Box<Session>),
    Exists(SessionId),
    Full(Full),
}

async fn locked(app: &App, owner: &OwnerName, lab: &Lab) -> Result<Locked, Refused> {
    // A look without the lock first: of a thousand at once nearly all are refused, and need not wait for their turn.
    let mut tx = app.store.begin().await?;
    if let Some(refused) = refuse(app, &mut tx, owner, lab).await? {
        return Ok(refused);
    }
    drop(tx);
    // Only one can be served at a time: those who wait do so without a connection, or a thousand of them would leave
    // none for anything else.
    let gone = |_| ApiError::new(Code::NotServing, "The service is stopping.");
    let _turn = app.admissions.acquire().await.map_err(gone)?;
    let mut tx = app.store.begin().await?;
    Store::lock_admission(&mut tx).await?;
    if let Some(refused) = refuse(app, &mut tx, owner, lab).await? {
        return Ok(refused);
    }
    // Read under the lock, so that the order of creation is the order of admission.
    let now = app.now();
    let made = Session::queued(fresh(app, owner, lab, now)).leave_queue(now);
    Store::keep_content(&mut tx, &lab.digest, &lab.id, &steps(lab)).await?;
    match app.publisher.insert(&mut tx, &made, now).await {
        Ok(()) => {}
        Err(store::Error::LiveExists) => {
            drop(tx);
            return exists(app, owner, None).await.map(|s| Locked::Admitted(Box::new(s)));
        }
        Err(error) => return Err(error.into()),
    }
    Store::commit(tx).await?;
    Ok(Locked::Admitted(Box::new(made.next)))
}

/// Why `owner` cannot start `lab`, by what the transaction sees; `None`: they can.
async fn refuse(app: &App, tx: &mut Tx, owner: &OwnerName, lab: &Lab) -> Result<Option<Locked>, Refused> {
    let (live, ending) = Store::of_owner(tx, owner).await?;
    if let Some(id) = live {
        return Ok(Some(Locked::Exists(id)));
    }
    if ending >= MAX_ENDING {
        let detail = format!("{ending} of your sessions are still being cleared away.");
        return Err(ApiError::new(Code::SessionEnding, detail).into());
    }
    let cluster = app
        .cluster
        .places()
        .map_err(|unknown| ApiError::new(Code::ClusterUnknown, format!("Just now {unknown}.")))?;
    let own = Store::places(tx).await?;
    let used = capacity::used(&own, &cluster);
    app.metrics.places(used);
    Ok(capacity::admit(used, lab.machines.len(), app.settings.vm_cap).err().map(Locked::Full))
}

/// Always an error: the session that is in the way.
async fn exists(app: &App, owner: &OwnerName, id: Option<SessionId>) -> Result<Session, Refused> {
    let session = match id {
        Some(id) => app.store.session(id).await?,
        None => app.store.current(owner, app.now()).await?,
    };
    match session {
        Some(session) => Err(Refused::Exists(Box::new(session))),
        None => Err(ApiError::new(Code::Unavailable, "Your session changed in this moment.").into()),
    }
}

async fn full_problem(app: &App, full: Full, now: OffsetDateTime) -> Result<ApiError, store::Error> {
    let sessions = app.store.open_sessions(None, 1000).await?;
    let expected_at = capacity::expected_at(&sessions, full, now).and_then(|at| at.format(&Rfc3339).ok());
    let detail = format!("{} of {} machines are in use.", full.used, full.cap);
    Ok(ApiError::new(Code::Capacity, detail)
        .with("used", full.used)
        .with("cap", full.cap)
        .with("expected_at", expected_at))
}

fn fresh(app: &App, owner: &OwnerName, lab: &Lab, now: OffsetDateTime) -> Fresh {
    Fresh {
        id: SessionId::generate(),
        owner: owner.clone(),
        lab: lab.id.clone(),
        lab_digest: lab.digest.clone(),
        runtime: lab.runtime,
        limits: lab.limits.stretched(app.settings.time_factor),
        terms: Terms {
            life: lab.life,
            idle: lab.idle,
            extend_step: lab.extend.step,
            extend_max: lab.extend.max,
        },
        machines: lab.machines.iter().map(|m| m.name.clone()).collect(),
        created_at: now,
    }
}

fn steps(lab: &Lab) -> Vec<StoredStep> {
    let steps = lab.steps.iter().map(|step| StoredStep {
        n: step.n,
        check: step.check.as_ref().map(|check| StoredCheck {
            machine: check.machine.to_string(),
            script: check.script.clone(),
            timeout_ms: u32::try_from(check.timeout.as_millis()).unwrap_or(u32::MAX),
        }),
    });
    steps.collect()
}
