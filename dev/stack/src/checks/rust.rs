//! Rust's own checks: tests by selection, formatting, clippy.
//!
//! cargo-nextest where it is installed, else `cargo test`. Selections are by test binary: `guest` and `browser` need a
//! machine and a browser, the rest of the package lab-e2e runs the whole stack on `sim`.

use std::process::Command;

use super::database::TestDatabase;
use super::report::{Counter, Report};
use crate::paths::Paths;
use crate::{nats, settings};

/// Which tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    Guest,
    Unit,
    Sim,
    Browser,
}

fn has_nextest() -> bool {
    settings::find_program("cargo-nextest").is_some()
        || Command::new("cargo")
            .args(["nextest", "--version"])
            .output()
            .is_ok_and(|output| output.status.success())
}

fn cargo(paths: &Paths) -> Command {
    let mut cargo = Command::new("cargo");
    // Queries are checked against .sqlx while tests are built; the part `sqlx` checks .sqlx itself.
    cargo.current_dir(&paths.repo).env("SQLX_OFFLINE", "true").env("CARGO_TERM_COLOR", "never");
    cargo
}

/// Builds all test programs without running any.
pub(crate) fn build_tests(paths: &Paths) -> Command {
    let mut build = cargo(paths);
    if has_nextest() {
        build.args(["nextest", "run", "--no-run", "--workspace"]);
    } else {
        build.args(["test", "--no-run", "--workspace"]);
    }
    build
}

/// Runs the selected tests.
pub(crate) fn tests(
    paths: &Paths,
    database: Option<&TestDatabase>,
    selection: Selection,
    report: &mut Report,
) {
    let nextest = has_nextest();
    let mut command = cargo(paths);
    if nextest {
        let filter = match selection {
            Selection::Guest => "binary(guest)",
            Selection::Unit => "not (binary(guest) | binary(browser) | package(lab-e2e))",
            Selection::Sim => "package(lab-e2e) & not (binary(guest) | binary(browser))",
            Selection::Browser => "binary(browser)",
        };
        command.args(["nextest", "run", "--workspace", "--no-tests", "pass", "-E", filter]);
    } else {
        match selection {
            Selection::Guest => {
                command.args(["test", "--workspace", "--test", "guest", "--", "--test-threads", "1"])
            }
            Selection::Unit => command.args([
                "test",
                "--workspace",
                "--exclude",
                "lab-e2e",
                "--lib",
                "--bins",
                "--test",
                "it",
            ]),
            Selection::Sim => {
                command.args(["test", "-p", "lab-e2e", "--lib", "--test", "sim", "--", "--test-threads", "1"])
            }
            Selection::Browser => {
                command.args(["test", "-p", "lab-e2e", "--test", "browser", "--", "--test-threads", "1"])
            }
        };
    }
    if let Some(database) = database {
        command.env("LAB_TEST_DATABASE_URL", database.url()).env("DATABASE_URL", database.url());
    }
    if let Ok(server) = nats::find_server(&paths.cache) {
        command.env("LAB_NATS_SERVER", server);
    }
    let what = if nextest { "cargo nextest run" } else { "cargo test" };
    report.command(what, &mut command, if nextest { Counter::Nextest } else { Counter::CargoTest });
}

/// Formatting and clippy, which takes every warning for an error.
pub(crate) fn lint(paths: &Paths, report: &mut Report) {
    report.command("cargo fmt --check", cargo(paths).args(["fmt", "--all", "--check"]), Counter::Whole);
    let mut clippy = cargo(paths);
    clippy.args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    report.command("cargo clippy -D warnings", &mut clippy, Counter::Whole);
}
