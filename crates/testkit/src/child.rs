//! A child process that dies with its value, and with its parent even if that is killed.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// A running child; killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

/// The command that runs `program` so that the kernel kills it when the thread that started it ends.
///
/// A test that is killed leaves no orphan. The thread is the test's, which outlives what it started.
#[must_use]
pub fn command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig").arg("KILL").arg("--").arg(program);
    command.stdin(Stdio::null());
    command
}

impl Process {
    /// Starts a child whose output goes to `log`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(name: &str, mut command: Command, log: PathBuf) -> Result<Self> {
        let file = std::fs::File::create(&log).with_context(|| format!("create {}", log.display()))?;
        command.stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("start {name}: {command:?}"))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it printed.
    #[must_use]
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until `probe` gives a value.
    ///
    /// # Errors
    /// If the child ends or `limit` passes first; the error carries what it printed.
    pub async fn ready<T>(&mut self, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Result<T> {
        let start = Instant::now();
        loop {
            if let Some(value) = probe() {
                return Ok(value);
            }
            if !self.is_alive() {
                bail!("{} ended at once:\n{}", self.name, self.output());
            }
            if start.elapsed() > limit {
                bail!("{} was not ready within {limit:?}:\n{}", self.name, self.output());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn signal(&self, signal: nix::sys::signal::Signal) -> Result<()> {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id())?);
        Ok(nix::sys::signal::kill(pid, signal)?)
    }

    /// Sends a signal that ends it and waits until it is gone.
    pub fn stop(&mut self, signal: nix::sys::signal::Signal) {
        // Both fail only where it is gone already.
        let _ = self.signal(signal);
        let _ = self.child.wait();
    }

    /// Kills it without warning and waits until it is gone.
    pub fn kill(&mut self) {
        // Both fail only where it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Looks a program up: an override, the PATH, then `cached`.
#[must_use]
pub fn find(variable: &str, name: &str, cached: &[PathBuf]) -> Option<PathBuf> {
    if let Some(path) = env(variable) {
        return Some(path.into());
    }
    let path = env("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.is_file());
    on_path.or_else(|| cached.iter().find(|p| p.is_file()).cloned())
}

/// A variable of the environment: tests have no command line of their own.
#[expect(clippy::disallowed_methods, reason = "a test is configured by its environment")]
#[must_use]
pub fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

/// `$XDG_CACHE_HOME/ttlab`.
#[must_use]
pub fn cache_dir() -> PathBuf {
    let home = || PathBuf::from(env("HOME").unwrap_or_else(|| "/root".into())).join(".cache");
    env("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("ttlab")
}
