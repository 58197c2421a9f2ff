//! Ends what a stack left behind: guests, which outlive the cluster on purpose, and children of a killed supervisor.
//!
//! A guest is known by two things at once: its program is QEMU and its command line names this state directory.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::ident::Ident;

/// The guests of the stack whose state lies in `state`.
pub(crate) fn guests(state: &Path) -> Vec<Ident> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok())
        .filter(|pid| is_guest(*pid, state))
        .filter_map(Ident::of)
        .collect()
}

fn is_guest(pid: i32, state: &Path) -> bool {
    let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = program.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.starts_with(b"qemu-system-") && mentions(&line, state)
}

/// True if the bytes name the directory itself or something below it, not a longer name that begins alike.
fn mentions(line: &[u8], dir: &Path) -> bool {
    let dir = dir.as_os_str().as_bytes();
    line.windows(dir.len() + 1).any(|window| {
        window.starts_with(dir) && window.last().is_some_and(|next| matches!(next, b'/' | b',' | 0))
    })
}

/// Ends all guests of a stack.
pub(crate) fn end_guests(state: &Path) {
    let guests = guests(state);
    for guest in &guests {
        guest.signal(Signal::SIGTERM);
    }
    for guest in &guests {
        if !guest.wait_gone(Duration::from_secs(5)) {
            guest.signal(Signal::SIGKILL);
            guest.wait_gone(Duration::from_secs(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_with_a_longer_name_is_not_mentioned() {
        let dir = Path::new("/s/ttlab/a");
        assert!(mentions(b"qemu-system-x86_64\0-qmp\0unix:/s/ttlab/a/vm1/qmp.sock\0", dir));
        assert!(!mentions(b"qemu-system-x86_64\0-qmp\0unix:/s/ttlab/ab/vm1/qmp.sock\0", dir));
        assert!(mentions(b"qemu-system-x86_64\0-chardev\0path=/s/ttlab/a,server\0", dir));
    }
}
