//! `lab-stack warden`: notices that its stack's runner is gone, and ends what the runner could not.
//!
//! It waits for the end of its standard input, a pipe that only the runner holds open. The runner's children then
//! have their parent-death signals; guests have none, because they are to survive a restart of the cluster.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::process::sweep;
use crate::record::Record;
use crate::stack::clear_leftovers;

/// Waits, then cleans up. After a stop in good order there is nothing left to do.
pub(crate) fn warden(state: &Path, remove: bool) -> Result<ExitCode> {
    let mut sink = [0; 64];
    let mut stdin = std::io::stdin().lock();
    while matches!(stdin.read(&mut sink), Ok(n) if n > 0) {}
    if let Some(record) = Record::read(&state.join("state.json")) {
        for process in &record.processes {
            process.ident.wait_gone(Duration::from_secs(3));
        }
        // The cluster must be gone before its guests are ended: it would start them again.
        if !record.is_current() {
            clear_leftovers(state);
        }
    }
    sweep::end_guests(state);
    if remove {
        let _ = std::fs::remove_dir_all(state);
    }
    Ok(ExitCode::SUCCESS)
}
