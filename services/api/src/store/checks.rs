//! Results of checks.

use lab_domain::{CheckOutcome, SessionId};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Error, Store, Tx};

/// What one check said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckRow {
    pub(crate) step: u32,
    pub(crate) outcome: CheckOutcome,
    pub(crate) auto: bool,
    pub(crate) at: OffsetDateTime,
    pub(crate) exit_code: Option<i32>,
    pub(crate) output: String,
    pub(crate) truncated: bool,
    pub(crate) cause: Option<String>,
}

impl CheckRow {
    /// Whether it tells nothing that `last` did not tell: a page that asks by itself must not flood the bus.
    pub(crate) fn is_old_news(&self, last: &Self) -> bool {
        self.auto
            && (self.outcome, self.exit_code, &self.output, &self.cause)
                == (last.outcome, last.exit_code, &last.output, &last.cause)
    }
}

impl Store {
    pub(crate) async fn insert_check(
        tx: &mut Tx,
        id: Uuid,
        session: SessionId,
        row: &CheckRow,
    ) -> Result<(), Error> {
        sqlx::query!(
            "insert into check_result (id, session, step, outcome, auto, at, exit_code, output, truncated, cause)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            id,
            session.0,
            i32::try_from(row.step).unwrap_or(i32::MAX),
            row.outcome.as_str(),
            row.auto,
            row.at,
            row.exit_code,
            row.output,
            row.truncated,
            row.cause
        )
        .execute(&mut **tx)
        .await
        .map_err(Error::sql("write a check"))?;
        Ok(())
    }

    /// The latest result of each step.
    pub(crate) async fn latest_checks(&self, session: SessionId) -> Result<Vec<CheckRow>, Error> {
        let rows = sqlx::query!(
            "select distinct on (step) step, outcome, auto, at, exit_code, output, truncated, cause
             from check_result where session = $1 order by step, at desc, id desc",
            session.0
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::sql("read checks"))?;
        let bad = Error::unreadable("check");
        rows.into_iter()
            .map(|r| {
                Ok(CheckRow {
                    step: r.step.unsigned_abs(),
                    outcome: r.outcome.parse().map_err(|e| bad(&e))?,
                    auto: r.auto,
                    at: r.at,
                    exit_code: r.exit_code,
                    output: r.output,
                    truncated: r.truncated,
                    cause: r.cause,
                })
            })
            .collect()
    }
}
