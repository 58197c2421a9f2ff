//! `./lab down`: ends everything that `up` started.

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::paths::Paths;
use crate::process::sweep;
use crate::record::Record;
use crate::stack::clear_leftovers;
use crate::ui;

/// Longer than all stages of an orderly stop together.
const LIMIT: Duration = Duration::from_secs(60);

/// Ends everything; with `forget` removes the state too.
pub(crate) fn down(forget: bool) -> Result<ExitCode> {
    let paths = Paths::discover()?;
    let record = Record::read(&paths.record());
    let running = record.as_ref().is_some_and(Record::is_current);
    if let Some(record) = record.as_ref().filter(|_| running) {
        let begun = Instant::now();
        ui::say("· ending the services, the machines and their stores");
        record.supervisor.signal(Signal::SIGTERM);
        while !record.supervisor.wait_gone(Duration::from_secs(5)) {
            ui::say(format_args!("    {:>4} s  still ending", begun.elapsed().as_secs()));
            if begun.elapsed() > LIMIT {
                record.supervisor.signal(Signal::SIGKILL);
            }
            if begun.elapsed() > LIMIT * 2 {
                bail!("the supervisor (pid {}) cannot be ended", record.supervisor.pid);
            }
        }
    }
    // What a killed supervisor may have left.
    clear_leftovers(&paths.state);
    let left = sweep::guests(&paths.state);
    if !left.is_empty() {
        bail!("{} guests could not be ended: {:?}", left.len(), left);
    }
    if forget && paths.state.exists() {
        fs::remove_dir_all(&paths.state)
            .with_context(|| format!("cannot remove {}", paths.state.display()))?;
        ui::say("all state of this clone is forgotten; caches stay");
    }
    ui::say(if running { "TT Lab is down." } else { "TT Lab was not running." });
    Ok(ExitCode::SUCCESS)
}
