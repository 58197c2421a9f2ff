//! A database of the test's own.
//!
//! `LAB_TEST_DATABASE_URL` names a server that the runner started; without it the test starts one for itself, on a
//! unix socket only. PostgreSQL refuses root, so root starts it as the user `postgres`.

use std::{
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tempfile::TempDir;

use crate::child::{self, Process};

/// One empty database; dropped with its value where the server is shared.
#[derive(Debug)]
pub struct Postgres {
    url: String,
    server: Option<(Process, TempDir)>,
    cleanup: Option<(String, String)>,
}

impl Postgres {
    /// An empty database.
    ///
    /// # Errors
    /// If there is no PostgreSQL, or it does not start.
    pub async fn start() -> Result<Self> {
        if let Some(server) = child::env("LAB_TEST_DATABASE_URL") {
            let name = format!("t_{}", uuid::Uuid::now_v7().simple());
            create(&server, &name).await?;
            let mut url = url::Url::parse(&server).context("LAB_TEST_DATABASE_URL is no URL")?;
            url.set_path(&name);
            return Ok(Self { url: url.into(), server: None, cleanup: Some((server, name)) });
        }
        let (process, dir, admin) = launch().await?;
        create(&admin, "test").await?;
        let url = admin.replace("/postgres?", "/test?");
        Ok(Self { url, server: Some((process, dir)), cleanup: None })
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops the server (only where it is the test's own) at once, as in a crash.
    pub fn kill(&mut self) {
        if let Some((process, _)) = &mut self.server {
            process.kill();
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some((process, _)) = &mut self.server {
            // At once, but not KILL: it takes its own children along and leaves no shared memory behind.
            process.stop(Signal::SIGQUIT);
        }
        // The server of a whole run: what is not dropped here goes when the runner removes its folder.
        if let Some((server, name)) = self.cleanup.take() {
            let drop_it = Command::new("psql")
                .args([server.as_str(), "-qc"])
                .arg(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
                .output();
            drop(drop_it);
        }
    }
}

async fn create(server: &str, name: &str) -> Result<()> {
    let mut connection = PgConnection::connect(server).await.context("connect to PostgreSQL")?;
    // The name is made here, of letters and digits.
    connection.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await?;
    connection.close().await?;
    Ok(())
}

async fn launch() -> Result<(Process, TempDir, String)> {
    let bin = programs()?;
    // Under /tmp, not TMPDIR: the server's own user must reach it, and a socket path is at most 107 bytes.
    let dir = tempfile::Builder::new().prefix("lab-pg-").tempdir_in("/tmp")?;
    let owner = owner()?;
    if let Some(user) = &owner {
        std::os::unix::fs::chown(dir.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    let data = dir.path().join("data");
    let mut initdb = Command::new(bin.join("initdb"));
    initdb.args(["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D"]).arg(&data);
    initdb.current_dir("/");
    if let Some(user) = &owner {
        initdb.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    let made = initdb.output().context("run initdb")?;
    if !made.status.success() {
        bail!("initdb: {}", String::from_utf8_lossy(&made.stderr));
    }
    let mut server = Command::new("setpriv");
    // INT, not KILL: the server then stops its own children and removes its shared memory.
    server.args(["--pdeathsig", "INT"]);
    if owner.is_some() {
        server.args(["--reuid", "postgres", "--regid", "postgres", "--init-groups"]);
    }
    server.arg("--").arg(bin.join("postgres")).arg("-D").arg(&data).arg("-k").arg(dir.path());
    server.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "full_page_writes=off"]);
    server.args(["-c", "max_connections=200"]).current_dir("/").stdin(std::process::Stdio::null());
    let mut process = Process::spawn("postgres", server, dir.path().join("log"))?;
    let socket = dir.path().display().to_string();
    let url = format!("postgres://postgres@localhost/postgres?host={socket}");
    let probe = |path: &Path| path.join(".s.PGSQL.5432").exists().then_some(());
    process.ready(Duration::from_secs(30), || probe(dir.path())).await?;
    for _ in 0..500 {
        if let Ok(connection) = PgConnection::connect(&url).await {
            connection.close().await?;
            return Ok((process, dir, url));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("PostgreSQL takes no connection:\n{}", process.output())
}

/// The user that the server runs as, where we are root.
fn owner() -> Result<Option<nix::unistd::User>> {
    if !nix::unistd::Uid::effective().is_root() {
        return Ok(None);
    }
    let user = nix::unistd::User::from_name("postgres")?;
    Ok(Some(user.context("PostgreSQL does not run as root, and there is no user postgres")?))
}

/// The newest installed server.
fn programs() -> Result<PathBuf> {
    if let Some(initdb) = child::find("LAB_INITDB", "initdb", &[]) {
        return initdb.parent().map(Path::to_owned).context("initdb has no folder");
    }
    let root = Path::new("/usr/lib/postgresql");
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir(root)
        .with_context(|| format!("no PostgreSQL under {}", root.display()))?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin")))
        })
        .filter(|(_, bin)| bin.join("initdb").is_file())
        .collect();
    versions.sort();
    versions.pop().map(|(_, bin)| bin).context("no PostgreSQL server is installed")
}
