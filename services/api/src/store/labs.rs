//! Content of labs that sessions were started with, and what operators released.

use std::collections::HashSet;

use lab_domain::{Digest, LabId, ObjectUid, SessionId};
use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use time::OffsetDateTime;

use super::{Error, Store, Tx};

/// A step as its session was started with it. The grader stays here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredStep {
    pub(crate) n: u32,
    pub(crate) check: Option<StoredCheck>,
}

/// How a step is graded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredCheck {
    pub(crate) machine: String,
    pub(crate) script: String,
    pub(crate) timeout_ms: u32,
}

impl Store {
    /// Keeps a lab's steps under its digest. The same digest is the same content.
    pub(crate) async fn keep_content(
        tx: &mut Tx,
        digest: &Digest,
        lab: &LabId,
        steps: &[StoredStep],
    ) -> Result<(), Error> {
        sqlx::query!(
            "insert into lab_content (digest, lab, steps) values ($1, $2, $3) on conflict (digest) do nothing",
            digest.as_str(),
            lab.as_str(),
            Json(steps) as _
        )
        .execute(&mut **tx)
        .await
        .map_err(Error::sql("keep a lab's content"))?;
        Ok(())
    }

    /// The steps that sessions of this digest are graded by.
    pub(crate) async fn content(&self, digest: &Digest) -> Result<Option<Vec<StoredStep>>, Error> {
        let row = sqlx::query!(
            "select steps as \"steps: Json<Vec<StoredStep>>\" from lab_content where digest = $1",
            digest.as_str()
        )
        .fetch_optional(self.pool())
        .await
        .map_err(Error::sql("read a lab's content"))?;
        Ok(row.map(|r| r.steps.0))
    }

    /// Forgets content of which no session lives. An admission that runs meanwhile holds the lock that we take.
    pub(crate) async fn forget_content(&self) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        Self::lock_admission(&mut tx).await?;
        sqlx::query!(
            "delete from lab_content c where not exists
                (select from session s where s.lab_digest = c.digest and s.state <> 'ended')"
        )
        .execute(&mut *tx)
        .await
        .map_err(Error::sql("forget a lab's content"))?;
        Self::commit(tx).await
    }

    /// Notes that a reaping is asked once more for this object; false if it was before.
    pub(crate) async fn note_again(
        tx: &mut Tx,
        uid: &ObjectUid,
        session: SessionId,
        now: OffsetDateTime,
    ) -> Result<bool, Error> {
        let done = sqlx::query!(
            "insert into reaped_again (uid, session, at) values ($1, $2, $3) on conflict (uid) do nothing",
            uid.as_str(),
            session.0,
            now
        )
        .execute(&mut **tx)
        .await
        .map_err(Error::sql("note a leftover"))?;
        Ok(done.rows_affected() == 1)
    }

    /// Objects that operators confirmed to be ghosts.
    pub(crate) async fn released(&self) -> Result<HashSet<ObjectUid>, Error> {
        let uids = sqlx::query_scalar!("select uid from ghost_release")
            .fetch_all(self.pool())
            .await
            .map_err(Error::sql("read releases"))?;
        let bad = Error::unreadable("release");
        uids.into_iter().map(|uid| ObjectUid::new(uid).map_err(|e| bad(&e))).collect()
    }

    /// Confirms that these objects are ghosts.
    pub(crate) async fn release(
        &self,
        uids: &[ObjectUid],
        by: &str,
        now: OffsetDateTime,
    ) -> Result<(), Error> {
        let uids: Vec<String> = uids.iter().map(ToString::to_string).collect();
        sqlx::query!(
            "insert into ghost_release (uid, released_by, at) select unnest($1::text[]), $2, $3
             on conflict (uid) do nothing",
            &uids,
            by,
            now
        )
        .execute(self.pool())
        .await
        .map_err(Error::sql("release ghosts"))?;
        Ok(())
    }
}
