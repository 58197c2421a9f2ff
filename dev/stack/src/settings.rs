//! What the runner takes from its surroundings: a handful of environment variables, the user, the CPU.
//!
//! This is the runner's `config.rs`: nothing else in the crate reads the environment.

use std::fs;
use std::path::PathBuf;

/// A variable that is set and not empty.
#[expect(clippy::disallowed_methods, reason = "the one place of this crate that reads the environment")]
pub(crate) fn var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A path from a variable.
pub(crate) fn path(name: &str) -> Option<PathBuf> {
    var(name).map(PathBuf::from)
}

/// Looks a program up on the PATH, and in the sbin directories that a user's PATH often lacks.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"])
        .filter(|dir| !dir.is_empty())
        .map(|dir| PathBuf::from(dir).join(name))
        .find(|candidate| candidate.is_file())
}

/// True for the superuser, as whom PostgreSQL refuses to run.
pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// True where guests run on the processor itself, not in emulation.
pub(crate) fn has_kvm() -> bool {
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let hardware = flags
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| line.split_whitespace().any(|flag| flag == "vmx" || flag == "svm"));
    hardware && fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok()
}

/// The machine's memory in MiB.
pub(crate) fn memory_mib() -> u64 {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    info.lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|kib| kib.parse::<u64>().ok())
        .map_or(4096, |kib| kib / 1024)
}
