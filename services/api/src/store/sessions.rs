//! Sessions, whole.

use std::collections::HashMap;

use lab_domain::{
    MachineName, OwnerName, SessionId, State,
    capacity::Place,
    session::{Session, Timeline},
};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    Error, SESSION_CHANNEL, Store, Tx,
    rows::{self, EntryRow, MachineRow, PhaseColumns, SessionRow},
};

impl Store {
    /// A session, locked until the end of the transaction.
    pub(crate) async fn lock_session(tx: &mut Tx, id: SessionId) -> Result<Option<Session>, Error> {
        let row = sqlx::query_as!(SessionRow, "select * from session where id = $1 for update", id.0)
            .fetch_optional(&mut **tx)
            .await
            .map_err(Error::sql("read a session"))?;
        let Some(row) = row else { return Ok(None) };
        let machines = sqlx::query_as!(
            MachineRow,
            "select session, name, progress, disk, disk_reason, pinned_uid from machine
             where session = $1 order by ordinal",
            id.0
        )
        .fetch_all(&mut **tx)
        .await
        .map_err(Error::sql("read machines"))?;
        let entries = sqlx::query_as!(
            EntryRow,
            "select session, step, machine, at, projected_at, late from timeline
             where session = $1 order by projected_at, at",
            id.0
        )
        .fetch_all(&mut **tx)
        .await
        .map_err(Error::sql("read a timeline"))?;
        rows::session(row, machines, entries).map(Some)
    }

    /// A session as it stands.
    pub(crate) async fn session(&self, id: SessionId) -> Result<Option<Session>, Error> {
        let row = sqlx::query_as!(SessionRow, "select * from session where id = $1", id.0)
            .fetch_all(self.pool())
            .await
            .map_err(Error::sql("read a session"))?;
        Ok(self.whole(row).await?.pop())
    }

    /// What the student sees as theirs: the live session, else the youngest that ends or ended after `since`.
    pub(crate) async fn current(
        &self,
        owner: &OwnerName,
        since: OffsetDateTime,
    ) -> Result<Option<Session>, Error> {
        let row = sqlx::query_as!(
            SessionRow,
            "select * from session where owner = $1 and (ended_at is null or ended_at > $2)
             order by (state in ('ending', 'ended')), id desc limit 1",
            owner.as_str(),
            since
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::sql("read the current session"))?;
        Ok(self.whole(row).await?.pop())
    }

    /// Live and ending sessions in order of id, after `after`.
    pub(crate) async fn open_sessions(
        &self,
        after: Option<SessionId>,
        limit: i64,
    ) -> Result<Vec<Session>, Error> {
        let rows = sqlx::query_as!(
            SessionRow,
            "select * from session where state <> 'ended' and id > $1 order by id limit $2",
            after.map_or(Uuid::nil(), |id| id.0),
            limit
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::sql("list open sessions"))?;
        self.whole(rows).await
    }

    /// The youngest sessions, ended ones too.
    pub(crate) async fn recent_sessions(&self, limit: i64) -> Result<Vec<Session>, Error> {
        let rows = sqlx::query_as!(
            SessionRow,
            "select * from session order by (state = 'ended'), id desc limit $1",
            limit
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::sql("list sessions"))?;
        self.whole(rows).await
    }

    /// Sessions with a deadline that has passed.
    pub(crate) async fn due_sessions(&self, now: OffsetDateTime) -> Result<Vec<SessionId>, Error> {
        let ids = sqlx::query_scalar!(
            "select id from session
             where (state in ('requested', 'provisioning', 'booting', 'preparing') and start_deadline <= $1)
                or (state = 'ready' and (expires_at <= $1 or idle_at <= $1))
             order by id",
            now
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::sql("look for due deadlines"))?;
        Ok(ids.into_iter().map(SessionId).collect())
    }

    /// States of the sessions among `ids` that exist, and since when they have ended.
    pub(crate) async fn states(
        &self,
        ids: &[SessionId],
    ) -> Result<HashMap<SessionId, (State, Option<OffsetDateTime>)>, Error> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let rows = sqlx::query!("select id, state, ended_at from session where id = any($1)", &ids)
            .fetch_all(self.pool())
            .await
            .map_err(Error::sql("read states"))?;
        let bad = Error::unreadable("session");
        rows.into_iter()
            .map(|r| Ok((SessionId(r.id), (r.state.parse().map_err(|e| bad(&e))?, r.ended_at))))
            .collect()
    }

    /// Every place that a session takes, read inside the admission's transaction.
    pub(crate) async fn places(tx: &mut Tx) -> Result<Vec<Place>, Error> {
        let rows = sqlx::query!(
            "select m.session, m.name from machine m join session s on s.id = m.session
             where s.state not in ('queued', 'ended')"
        )
        .fetch_all(&mut **tx)
        .await
        .map_err(Error::sql("count places"))?;
        let bad = Error::unreadable("machine");
        rows.into_iter()
            .map(|r| Ok((SessionId(r.session), MachineName::new(r.name).map_err(|e| bad(&e))?)))
            .collect()
    }

    /// The owner's live session and how many of theirs are ending.
    pub(crate) async fn of_owner(
        tx: &mut Tx,
        owner: &OwnerName,
    ) -> Result<(Option<SessionId>, usize), Error> {
        let rows = sqlx::query!(
            "select id, state from session where owner = $1 and state <> 'ended'",
            owner.as_str()
        )
        .fetch_all(&mut **tx)
        .await
        .map_err(Error::sql("read a user's sessions"))?;
        let ending = rows.iter().filter(|r| r.state == State::Ending.as_str()).count();
        let live = rows.iter().find(|r| r.state != State::Ending.as_str()).map(|r| SessionId(r.id));
        Ok((live, ending))
    }

    /// Writes a new session, version and all.
    pub(crate) async fn insert_session(tx: &mut Tx, session: &Session) -> Result<(), Error> {
        let (limits, terms) = (&session.limits, &session.terms);
        sqlx::query!(
            "insert into session (id, owner, lab, lab_digest, runtime, state, version, disk_ms, boot_ms, agent_ms,
                prepare_ms, life_ms, idle_ms, extend_step_ms, extend_max_ms, created_at)
             values ($1, $2, $3, $4, $5, 'queued', 1, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
            session.id.0,
            session.owner.as_str(),
            session.lab.as_str(),
            session.lab_digest.as_str(),
            session.runtime.as_str(),
            rows::ms(limits.disk),
            rows::ms(limits.boot),
            rows::ms(limits.agent),
            rows::ms(limits.prepare),
            rows::ms(terms.life),
            rows::ms(terms.idle),
            rows::ms(terms.extend_step),
            rows::ms(terms.extend_max),
            session.created_at
        )
        .execute(&mut **tx)
        .await
        .map_err(Error::sql("write a session"))?;
        for (ordinal, machine) in session.machines.iter().enumerate() {
            sqlx::query!(
                "insert into machine (session, ordinal, name, progress) values ($1, $2, $3, 'none')",
                session.id.0,
                i16::try_from(ordinal).unwrap_or(i16::MAX),
                machine.name.as_str()
            )
            .execute(&mut **tx)
            .await
            .map_err(Error::sql("write a machine"))?;
        }
        let mut stored = session.clone();
        stored.version = 1;
        stored.timeline = Timeline::default();
        Self::update_session(tx, &stored, session).await
    }

    /// Writes what differs between `before`, as it was read, and `next`.
    pub(crate) async fn update_session(tx: &mut Tx, before: &Session, next: &Session) -> Result<(), Error> {
        let columns = PhaseColumns::of(&next.phase);
        let (working, end) = (columns.working, columns.end);
        let done = sqlx::query!(
            "update session set state = $3, version = $4,
                requested_at = coalesce($5, requested_at), start_deadline = coalesce($6, start_deadline),
                ready_at = $7, expires_at = $8, idle_at = $9, reason = $10, cause = $11, log_tail = $12,
                ending_at = $13, ending_version = $14, ended_at = $15
             where id = $1 and version = $2",
            next.id.0,
            rows::version(before.version),
            next.state().as_str(),
            rows::version(next.version),
            columns.requested_at,
            columns.start_deadline,
            working.map(|w| w.ready_at),
            working.map(|w| w.expires_at),
            working.map(|w| w.idle_at),
            end.as_ref().map(|e| e.reason.as_str()),
            end.as_ref().and_then(|e| e.cause.as_deref()),
            end.as_ref().and_then(|e| e.log_tail.as_deref()),
            end.as_ref().map(|e| e.at),
            end.as_ref().map(|e| rows::version(e.version)),
            columns.ended_at
        )
        .execute(&mut **tx)
        .await
        .map_err(Error::sql("write a session"))?;
        if done.rows_affected() != 1 {
            return Err(Error::Conflict);
        }
        for (old, new) in before.machines.iter().zip(&next.machines).filter(|(old, new)| old != new) {
            sqlx::query!(
                "update machine set progress = $3, disk = $4, disk_reason = $5, pinned_uid = $6
                 where session = $1 and name = $2",
                next.id.0,
                old.name.as_str(),
                rows::progress_word(new.progress),
                new.disk.map(|d| d.as_str()),
                new.disk_reason.as_deref(),
                new.pinned.as_ref().map(|uid| uid.as_str())
            )
            .execute(&mut **tx)
            .await
            .map_err(Error::sql("write a machine"))?;
        }
        for entry in next.timeline.entries().iter().filter(|e| !before.timeline.entries().contains(e)) {
            sqlx::query!(
                "insert into timeline (session, step, machine, at, projected_at, late)
                 values ($1, $2, $3, $4, $5, $6)
                 on conflict (session, step, machine) do update set at = least(timeline.at, excluded.at)",
                next.id.0,
                entry.step.as_str(),
                entry.machine.as_ref().map_or("", |m| m.as_str()),
                entry.at,
                entry.projected_at,
                entry.late
            )
            .execute(&mut **tx)
            .await
            .map_err(Error::sql("write a timeline entry"))?;
        }
        Self::notify(tx, SESSION_CHANNEL, &format!("{} {}", next.id, next.version)).await
    }

    pub(super) async fn notify(tx: &mut Tx, channel: &str, payload: &str) -> Result<(), Error> {
        sqlx::query!("select pg_notify($1, $2)", channel, payload)
            .execute(&mut **tx)
            .await
            .map_err(Error::sql("notify"))?;
        Ok(())
    }

    async fn whole(&self, sessions: Vec<SessionRow>) -> Result<Vec<Session>, Error> {
        if sessions.is_empty() {
            return Ok(vec![]);
        }
        let ids: Vec<Uuid> = sessions.iter().map(|s| s.id).collect();
        let machines = sqlx::query_as!(
            MachineRow,
            "select session, name, progress, disk, disk_reason, pinned_uid from machine
             where session = any($1) order by ordinal",
            &ids
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::sql("read machines"))?;
        let entries = sqlx::query_as!(
            EntryRow,
            "select session, step, machine, at, projected_at, late from timeline
             where session = any($1) order by projected_at, at",
            &ids
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::sql("read timelines"))?;
        let mut machines_of: HashMap<Uuid, Vec<MachineRow>> = HashMap::new();
        for row in machines {
            machines_of.entry(row.session).or_default().push(row);
        }
        let mut entries_of: HashMap<Uuid, Vec<EntryRow>> = HashMap::new();
        for row in entries {
            entries_of.entry(row.session).or_default().push(row);
        }
        sessions
            .into_iter()
            .map(|row| {
                let id = row.id;
                let of = (machines_of.remove(&id), entries_of.remove(&id));
                rows::session(row, of.0.unwrap_or_default(), of.1.unwrap_or_default())
            })
            .collect()
    }
}
