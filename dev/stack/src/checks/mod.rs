//! What `./lab test` and `./lab lint` check, part by part. Every part can be run alone; CI runs nothing else.
//!
//! Everything is built before anything runs. Guest tests come first and alone, because emulated machines need the
//! processor; then the rest. A failed part does not stop the others.

mod counts;
mod database;
mod deny;
mod licence;
mod page;
mod proto;
mod report;
mod rust;
pub(crate) mod sqlx;

use std::process::{Command, ExitCode};

use anyhow::Result;

use self::database::TestDatabase;
use self::report::{Counter, Report};
use crate::cli::TestArgs;
use crate::packages::{self, Need};
use crate::paths::{Paths, make_dir};
use crate::{build, images, nats, settings, ui};

/// A part of the tests that can be run alone.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Real virtual machines: both labs from start to end, the agent, the emulator
    Guest,
    /// Crates and services against real PostgreSQL, NATS and the cluster on `sim`
    Unit,
    /// The page: types and tests
    Web,
    /// The guest's Python
    Python,
    /// The contract: style, and compatibility with its released form
    Proto,
    /// Formatting, clippy, licences and sources of dependencies
    Lint,
    /// Whether .sqlx is what queries and migrations say
    Sqlx,
    /// The whole stack on `sim`, through the public HTTP and WebSocket
    E2e,
    /// One lab in a real browser
    Browser,
}

impl Part {
    /// In the order in which they run.
    const ALL: [Self; 9] = [
        Self::Guest,
        Self::Unit,
        Self::Web,
        Self::Python,
        Self::Proto,
        Self::Lint,
        Self::Sqlx,
        Self::E2e,
        Self::Browser,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::Unit => "unit",
            Self::Web => "web",
            Self::Python => "python",
            Self::Proto => "proto",
            Self::Lint => "lint",
            Self::Sqlx => "sqlx",
            Self::E2e => "e2e",
            Self::Browser => "browser",
        }
    }

    fn is_slow(self) -> bool {
        matches!(self, Self::Guest | Self::Browser)
    }

    /// Runs compiled tests.
    fn is_rust(self) -> bool {
        matches!(self, Self::Guest | Self::Unit | Self::E2e | Self::Browser)
    }

    fn needs(self) -> &'static [Need] {
        match self {
            Self::Guest => &[Need::Stack, Need::Guests, Need::Image],
            Self::Unit | Self::E2e | Self::Sqlx => &[Need::Stack],
            Self::Web | Self::Proto => &[Need::Node],
            Self::Browser => &[Need::Stack, Need::Guests, Need::Image, Need::Node, Need::Browser],
            Self::Python | Self::Lint => &[],
        }
    }
}

/// `./lab test`.
pub(crate) fn test(args: &TestArgs) -> Result<ExitCode> {
    let parts: Vec<Part> = Part::ALL
        .into_iter()
        .filter(|part| if args.parts.is_empty() { true } else { args.parts.contains(part) })
        .filter(|part| !(args.quick && part.is_slow()))
        .collect();
    run(&parts)
}

/// `./lab lint`.
pub(crate) fn lint() -> Result<ExitCode> {
    run(&[Part::Lint, Part::Proto])
}

fn run(parts: &[Part]) -> Result<ExitCode> {
    let paths = Paths::discover()?;
    make_dir(&paths.state, 0o711)?;
    make_dir(&paths.logs(), 0o700)?;
    let mut report = Report::default();
    let ready = report.prepare("build", || make_ready(parts, &paths));
    if !ready {
        return Ok(report.close());
    }
    // One server for the whole run; each test makes a database of its own in it.
    let mut database = None;
    for part in parts {
        if (part.is_rust() || *part == Part::Sqlx) && database.is_none() {
            database = report.attempt("PostgreSQL for the tests", TestDatabase::start);
        }
        report.begin(part.name());
        check(*part, &paths, database.as_ref(), &mut report);
        report.end();
    }
    Ok(report.close())
}

/// Installs, fetches and builds everything that the parts use, so that no test waits for a compiler.
fn make_ready(parts: &[Part], paths: &Paths) -> Result<()> {
    let mut needs: Vec<Need> = parts.iter().flat_map(|part| part.needs()).copied().collect();
    needs.dedup();
    packages::ensure(&needs, &paths.cache)?;
    let needs = |need: Need| needs.contains(&need);
    if needs(Need::Stack) {
        nats::find_server(&paths.cache)?;
    }
    if parts.iter().any(|part| part.is_rust()) {
        build::programs(paths, false)?;
        let mut tests = rust::build_tests(paths);
        ui::step("building the tests", &mut tests, &paths.logs().join("build-tests.log"))?;
    }
    if parts.contains(&Part::Browser) || parts.contains(&Part::Guest) {
        if settings::find_program("npm").is_some() {
            build::page(paths)?;
        }
        match settings::path("LAB_GUEST_IMAGE") {
            Some(file) => images::import(&file, &paths.cache)?,
            None => images::ensure_built(&paths.repo, &paths.cache)?,
        };
    }
    Ok(())
}

fn check(part: Part, paths: &Paths, database: Option<&TestDatabase>, report: &mut Report) {
    match part {
        Part::Guest => rust::tests(paths, database, rust::Selection::Guest, report),
        Part::Unit => rust::tests(paths, database, rust::Selection::Unit, report),
        Part::E2e => rust::tests(paths, database, rust::Selection::Sim, report),
        Part::Browser => rust::tests(paths, database, rust::Selection::Browser, report),
        Part::Web => page::check(paths, report),
        Part::Python => python(paths, report),
        Part::Proto => proto::check(paths, report),
        Part::Lint => {
            rust::lint(paths, report);
            report.check("dependencies", || deny::check(paths));
        }
        Part::Sqlx => report.check(".sqlx is what the queries say", || sqlx::check(paths, database)),
    }
}

fn python(paths: &Paths, report: &mut Report) {
    let mut tests = Command::new("python3");
    tests
        .args(["-B", "-m", "unittest", "discover", "-s", "guest/tests", "-p", "*_test.py"])
        .current_dir(&paths.repo);
    report.command("guest/tests", &mut tests, Counter::Unittest);
}
