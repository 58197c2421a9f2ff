//! A process, named so that a number that the kernel gave to somebody else is never signalled.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// A pid together with its start time and the boot it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ident {
    pub(crate) pid: i32,
    /// Clock ticks after boot, field 22 of `/proc/<pid>/stat`.
    pub(crate) start: u64,
    pub(crate) boot: String,
}

impl Ident {
    /// The process that has this pid now.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let (_, start) = stat(pid)?;
        Some(Self { pid, start, boot: boot_id() })
    }

    /// This very process.
    pub(crate) fn own() -> Option<Self> {
        Self::of(nix::unistd::getpid().as_raw())
    }

    /// True while the process that was meant runs (a zombie does not).
    pub(crate) fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|(state, start)| state != 'Z' && start == self.start)
            && self.boot == boot_id()
    }

    /// Signals it, if it is still the one that was meant.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        self.is_alive() && kill(Pid::from_raw(self.pid), signal).is_ok()
    }

    /// Waits until it is gone; false if it is still there at the deadline.
    pub(crate) fn wait_gone(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while self.is_alive() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
        true
    }

    /// Asks, waits, then insists.
    pub(crate) fn end(&self, ask: Signal, within: Duration) {
        if self.signal(ask) && !self.wait_gone(within) {
            self.signal(Signal::SIGKILL);
            self.wait_gone(Duration::from_secs(5));
        }
    }
}

/// State letter and start time. The command name may hold spaces and brackets: the fields begin after the last one.
fn stat(pid: i32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Proportional set size in KiB: a process's own memory and its share of what it shares.
pub(crate) fn pss_kib(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_with_another_start_time_is_not_signalled() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let ident = Ident::of(child.id() as i32).unwrap();
        let stranger = Ident { start: ident.start + 1, ..ident.clone() };
        assert!(ident.is_alive());
        assert!(!stranger.signal(Signal::SIGKILL));
        assert!(ident.signal(Signal::SIGKILL));
        child.wait().unwrap();
        assert!(!ident.is_alive());
    }
}
