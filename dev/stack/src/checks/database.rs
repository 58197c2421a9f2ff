//! One PostgreSQL server for a whole test run.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::paths::make_dir;
use crate::postgres::Postgres;
use crate::process::ident::Ident;
use crate::process::keeper::Keeper;
use crate::ui;

/// A server with its data in a temporary directory; ended and removed when dropped.
pub(crate) struct TestDatabase {
    server: Postgres,
    ident: Ident,
    _keeper: Keeper,
    _dir: tempfile::TempDir,
}

impl TestDatabase {
    pub(crate) fn start() -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("ttlab-test-")
            .tempdir()
            .context("cannot make a temporary directory")?;
        make_dir(dir.path(), 0o711)?;
        let server = Postgres::prepare(dir.path(), "test")?.careless();
        let (keeper, _) = Keeper::start()?;
        let log = dir.path().join("postgres.log");
        let ident = keeper.launch_blocking(server.launch(log.clone()))?;
        let started = Self { server, ident, _keeper: keeper, _dir: dir };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !started.server.accepts() {
            if !started.ident.is_alive() || Instant::now() > deadline {
                bail!("PostgreSQL for the tests does not start:\n{}", ui::tail(&log, 15));
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        Ok(started)
    }

    pub(crate) fn server(&self) -> &Postgres {
        &self.server
    }

    pub(crate) fn url(&self) -> String {
        self.server.url("postgres")
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        self.ident.end(Signal::SIGINT, Duration::from_secs(10));
    }
}
