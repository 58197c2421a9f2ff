//! The QEMU process: made so that it outlives us, found again by its pid file, shot only when it is the right one.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::command::PID;
use crate::driver::Error;

/// How long a process may take to go after SIGKILL.
const GONE: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Runs a program to its end in a machine's directory.
pub(super) async fn run(
    uid: &str,
    directory: &Path,
    program: &'static str,
    arguments: &[OsString],
) -> Result<(), Error> {
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // A terminal's Ctrl-C is for us, not for the guests.
        .process_group(0)
        .kill_on_drop(false)
        .output()
        .await
        .map_err(|source| Error::Run { uid: uid.to_owned(), program, source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: String = said.trim().chars().rev().take(500).collect::<String>().chars().rev().collect();
    Err(Error::Failed { uid: uid.to_owned(), program, said })
}

/// The process of a machine, if it runs: the pid file names it and its command line names the machine.
pub(super) fn find(directory: &Path, uid: &str) -> Option<Pid> {
    let text = std::fs::read_to_string(directory.join(PID)).ok()?;
    let pid: i32 = text.trim().parse().ok()?;
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let is_ours = line.split(|byte| *byte == 0).any(|argument| argument == uid.as_bytes());
    // A zombie has an empty command line: it is not ours any more, and holds nothing.
    is_ours.then(|| Pid::from_raw(pid))
}

/// Shoots the process of a machine, if it runs, and waits until it is gone.
pub(super) async fn shoot(directory: &Path, uid: &str) -> bool {
    let until = tokio::time::Instant::now() + GONE;
    while let Some(pid) = find(directory, uid) {
        // It may be gone between the look and the shot.
        let _gone = kill(pid, Signal::SIGKILL).is_err();
        if tokio::time::Instant::now() >= until {
            return false;
        }
        tokio::time::sleep(LOOK).await;
    }
    true
}

/// Waits until the process of a machine is gone by itself.
pub(super) async fn gone(directory: &Path, uid: &str, patience: Duration) -> bool {
    let until = tokio::time::Instant::now() + patience;
    while find(directory, uid).is_some() {
        if tokio::time::Instant::now() >= until {
            return false;
        }
        tokio::time::sleep(LOOK).await;
    }
    true
}
