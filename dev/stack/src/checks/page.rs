//! The page's checks.

use std::process::Command;

use super::report::{Counter, Report};
use crate::build;
use crate::paths::Paths;

/// Types, tests, and that it builds.
pub(crate) fn check(paths: &Paths, report: &mut Report) {
    let web = paths.repo.join("web");
    report.check("the page's tools are what the lock file says", || build::npm_ci(&web, &paths.logs()));
    let mut npm = |script: &str, counter| {
        let mut command = Command::new("npm");
        command.args(["run", "--silent", script]).current_dir(&web).env("NO_COLOR", "1").env("CI", "true");
        report.command(&format!("npm run {script}"), &mut command, counter);
    };
    npm("check", Counter::Whole);
    npm("test", Counter::Vitest);
    report.check("the page builds", || build::page(paths));
}
