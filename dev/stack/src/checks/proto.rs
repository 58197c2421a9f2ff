//! The contract's checks, by buf: its style, and that it only grows compatibly with what was released.

use std::process::Command;

use super::report::{Counter, Report};
use crate::build;
use crate::paths::Paths;

/// The released form that everything must stay compatible with.
const BASELINE: &str = "released/lab-v1.binpb";

pub(crate) fn check(paths: &Paths, report: &mut Report) {
    let proto = paths.repo.join("proto");
    report.check("buf is what the lock file says", || build::npm_ci(&proto, &paths.logs()));
    let mut buf = |words: &[&str]| {
        let mut command = Command::new(proto.join("node_modules/.bin/buf"));
        // It would write its cache below the home directory.
        command.args(words).current_dir(&proto).env("BUF_CACHE_DIR", paths.cache.join("buf"));
        report.command(&format!("buf {}", words.join(" ")), &mut command, Counter::Whole);
    };
    buf(&["lint"]);
    buf(&["breaking", "--against", BASELINE]);
}
