//! `.sqlx`: what PostgreSQL says about every checked query, so that building needs no database.
//!
//! It is made by compiling the api against a database with all migrations. The check makes it anew elsewhere and
//! compares.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use super::database::TestDatabase;
use crate::paths::{Paths, make_dir};
use crate::ui;

/// Where the api's build looks for it.
const COMMITTED: &str = "services/api/.sqlx";

/// `./lab sqlx-prepare`.
pub(crate) fn prepare() -> Result<ExitCode> {
    let paths = Paths::discover()?;
    let database = TestDatabase::start()?;
    let made = make(&paths, &database)?;
    let target = paths.repo.join(COMMITTED);
    let _ = fs::remove_dir_all(&target);
    make_dir(&target, 0o755)?;
    let files = read(made.path())?;
    for (name, content) in &files {
        fs::write(target.join(name), content).with_context(|| format!("cannot write {COMMITTED}/{name}"))?;
    }
    ui::say(format_args!("{} queries in {COMMITTED}: commit them", files.len()));
    Ok(ExitCode::SUCCESS)
}

/// Whether the committed files are what would be made now.
pub(crate) fn check(paths: &Paths, database: Option<&TestDatabase>) -> Result<()> {
    let database = database.context("there is no PostgreSQL")?;
    let made = make(paths, database)?;
    let (fresh, committed) = (read(made.path())?, read(&paths.repo.join(COMMITTED))?);
    let missing: Vec<&String> =
        fresh.keys().filter(|name| fresh.get(*name) != committed.get(*name)).collect();
    let stale: Vec<&String> = committed.keys().filter(|name| !fresh.contains_key(*name)).collect();
    if !missing.is_empty() || !stale.is_empty() {
        bail!(
            "{COMMITTED} is not what the queries say ({} missing or different, {} without a query): run ./lab sqlx-prepare and commit",
            missing.len(),
            stale.len()
        );
    }
    Ok(())
}

fn make(paths: &Paths, database: &TestDatabase) -> Result<tempfile::TempDir> {
    let name = "sqlx_prepare";
    let server = database.server();
    server.query(&format!("drop database if exists {name}"))?;
    server.ensure_database(name)?;
    for migration in migrations(&paths.repo.join("services/api/migrations"))? {
        server.run_file(name, &migration)?;
    }
    let made = tempfile::tempdir().context("cannot make a temporary directory")?;
    make_dir(&paths.logs(), 0o700)?;
    let root = Touched::touch(&paths.repo.join("services/api/src/lib.rs"))?;
    let mut cargo = Command::new("cargo");
    cargo
        .args(["check", "-p", "lab-api", "--all-targets"])
        .current_dir(&paths.repo)
        .env("SQLX_OFFLINE", "false")
        .env("SQLX_OFFLINE_DIR", made.path())
        .env("DATABASE_URL", server.url(name));
    ui::step("asking PostgreSQL about every query", &mut cargo, &paths.logs().join("sqlx.log"))?;
    drop(root);
    server.query(&format!("drop database {name}"))?;
    Ok(made)
}

fn migrations(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir)
        .with_context(|| format!("cannot read {}", dir.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension().is_some_and(|ext| ext == "sql") && !path.to_string_lossy().ends_with(".down.sql")
        })
        .collect();
    files.sort();
    Ok(files)
}

fn read(dir: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("query-") {
            let content = fs::read(entry.path()).with_context(|| format!("cannot read {name}"))?;
            files.insert(name, content);
        }
    }
    Ok(files)
}

/// A source file that looks changed, so that its crate is compiled again; it gets its time back, so that the next
/// build does not have to.
struct Touched {
    file: PathBuf,
    modified: std::time::SystemTime,
}

impl Touched {
    fn touch(file: &Path) -> Result<Self> {
        let meta = fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?;
        let modified = meta.modified().context("this file system keeps no times")?;
        let status = Command::new("touch").arg(file).status().context("cannot run touch")?;
        if !status.success() {
            bail!("cannot touch {}", file.display());
        }
        Ok(Self { file: file.to_path_buf(), modified })
    }
}

impl Drop for Touched {
    fn drop(&mut self) {
        if let Ok(file) = fs::File::options().write(true).open(&self.file) {
            let _ = file.set_modified(self.modified);
        }
    }
}
