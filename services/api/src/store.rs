//! Postgres: the only place where SQL is written.
//!
//! A session is always read whole and written with a compare of its version, in one transaction with its outbox rows.
//! `pg_notify` inside the transaction tells every replica after the commit: channel `lab_session` that a session
//! changed, channel `lab_outbox` that something waits to be published.

mod checks;
mod labs;
mod outbox;
mod rows;
mod sessions;
mod stats;

use std::time::Duration;

use lab_domain::InstallationId;
use sqlx::{
    PgPool, Postgres, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
};

pub(crate) use self::{
    checks::CheckRow,
    labs::{StoredCheck, StoredStep},
    outbox::Message,
};

/// Channel that carries `<session id> <version>` after each change.
pub(crate) const SESSION_CHANNEL: &str = "lab_session";
/// Channel that carries the id of a session with something to publish.
pub(crate) const OUTBOX_CHANNEL: &str = "lab_outbox";
/// Advisory lock that every admission takes: the cap is counted under it.
const ADMISSION_LOCK: i64 = 0x6c61_622d_6164_6d74;
/// Index that keeps a student to one live session.
const ONE_LIVE: &str = "session_one_live_per_owner";
/// Connections of one replica.
const POOL: u32 = 24;

/// What failed at the database.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be reached or refused a statement.
    #[error("cannot {operation}")]
    Sql {
        /// What was tried.
        operation: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// The schema could not be brought up to date.
    #[error("cannot migrate the database")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// A row holds what this build cannot read.
    #[error("a stored {what} cannot be read: {detail}")]
    Unreadable {
        /// What.
        what: &'static str,
        /// Which rule it breaks.
        detail: String,
    },
    /// Somebody else wrote the session in between.
    #[error("the session was changed by somebody else")]
    Conflict,
    /// The student has a live session already.
    #[error("the user has a live session already")]
    LiveExists,
    /// The database is another environment's.
    #[error("this database serves environment {found:?}, not {wanted:?}")]
    OtherEnvironment {
        /// In the database.
        found: String,
        /// Ours.
        wanted: String,
    },
}

impl Error {
    pub(crate) fn sql(operation: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| match source.as_database_error().and_then(|e| e.constraint()) {
            Some(ONE_LIVE) => Self::LiveExists,
            Some(_) | None => Self::Sql { operation, source },
        }
    }

    pub(crate) fn unreadable(what: &'static str) -> impl Fn(&dyn std::fmt::Display) -> Self {
        move |error| Self::Unreadable { what, detail: error.to_string() }
    }
}

/// The database of one environment. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    pool: PgPool,
}

/// A replica whose host is gone keeps its locks until the server notices: soon, not after the kernel's two hours. The
/// relay publishes up to a pass's rows in one transaction, so an idle one is given more time than a statement.
const LIMITS: [(&str, &str); 6] = [
    ("lock_timeout", "15s"),
    ("statement_timeout", "30s"),
    ("idle_in_transaction_session_timeout", "120s"),
    ("tcp_keepalives_idle", "10"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
];

/// An open transaction.
pub(crate) type Tx = Transaction<'static, Postgres>;

impl Store {
    /// Connects; the pool opens connections as they are needed.
    ///
    /// # Errors
    /// If the URL is malformed or nobody answers.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let options: PgConnectOptions = url.parse().map_err(Error::sql("read the database URL"))?;
        let pool = PgPoolOptions::new()
            .max_connections(POOL)
            .acquire_timeout(Duration::from_secs(5))
            .connect_with(options.application_name("lab-api").options(LIMITS))
            .await
            .map_err(Error::sql("connect to the database"))?;
        Ok(Self { pool })
    }

    /// A store over a pool that exists already.
    #[must_use]
    pub const fn over(pool: PgPool) -> Self {
        Self { pool }
    }

    pub(crate) const fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Closes every connection.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// Brings the schema up to date, and makes the database this environment's for ever.
    ///
    /// # Errors
    /// If the database is another environment's or cannot be migrated.
    pub async fn migrate(&self, environment: &str) -> Result<InstallationId, Error> {
        sqlx::migrate!().run(&self.pool).await.map_err(Error::Migrate)?;
        sqlx::query!("update installation set environment = $1 where environment is null", environment)
            .execute(&self.pool)
            .await
            .map_err(Error::sql("claim the database"))?;
        self.installation(environment).await
    }

    /// The installation that the first migration wrote.
    ///
    /// # Errors
    /// If the database was never set up or is another environment's.
    pub async fn installation(&self, environment: &str) -> Result<InstallationId, Error> {
        let row = sqlx::query!("select id, environment from installation")
            .fetch_one(&self.pool)
            .await
            .map_err(Error::sql("read the installation"))?;
        let found = row.environment.unwrap_or_default();
        if found == environment {
            Ok(InstallationId(row.id))
        } else {
            Err(Error::OtherEnvironment { found, wanted: environment.to_owned() })
        }
    }

    /// Whether the database answers at this moment.
    pub async fn is_alive(&self) -> bool {
        sqlx::query_scalar!("select 1 as \"one!\"").fetch_one(&self.pool).await.is_ok()
    }

    pub(crate) async fn begin(&self) -> Result<Tx, Error> {
        self.pool.begin().await.map_err(Error::sql("begin a transaction"))
    }

    pub(crate) async fn commit(tx: Tx) -> Result<(), Error> {
        tx.commit().await.map_err(Error::sql("commit a transaction"))
    }

    /// From here to the end of the transaction this is the only admission of the environment.
    pub(crate) async fn lock_admission(tx: &mut Tx) -> Result<(), Error> {
        sqlx::query!("select pg_advisory_xact_lock($1)", ADMISSION_LOCK)
            .execute(&mut **tx)
            .await
            .map_err(Error::sql("take the admission lock"))?;
        Ok(())
    }
}
