//! The supervisor: one process that owns the stack until it is told to stop.

use std::fs::File;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use tokio::signal::unix::{SignalKind, signal};

use super::up::print_ways_in;
use crate::cli::{DriverName, UpArgs};
use crate::paths::{Paths, make_dir};
use crate::record::Phase;
use crate::stack::{Options, Stack, default_vm_cap};
use crate::ui;

/// Brings the stack up and keeps it until SIGTERM or SIGINT.
pub(crate) fn supervise(args: &UpArgs, foreground: bool) -> Result<ExitCode> {
    let paths = Paths::discover()?;
    make_dir(&paths.state, 0o711)?;
    let lock =
        File::create(paths.state.join("supervisor.lock")).context("cannot write to the state directory")?;
    let Ok(_lock) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) else {
        bail!("another supervisor of this clone runs: see ./lab status");
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(run(args, &paths, foreground))
}

async fn run(args: &UpArgs, paths: &Paths, foreground: bool) -> Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let defaults = match args.driver {
        DriverName::Qemu => Options::qemu(),
        DriverName::Sim => Options::sim(),
    };
    let options = Options {
        state_dir: Some(paths.state.clone()),
        web_port: Some(args.port),
        vm_cap: args.vm_cap.unwrap_or_else(default_vm_cap),
        ..defaults
    };
    let stack = tokio::select! {
        stack = Stack::start(options) => stack?,
        // Dropping the half-started stack ends what it had started.
        _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
        _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
    };
    if foreground {
        print_ways_in(&stack.board().snapshot());
        ui::say("Ctrl-C ends everything.");
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    if foreground {
        ui::say("stopping …");
    }
    stack.board().change(|record| {
        record.phase = Phase::Stopping;
        record.step = "ending the processes and machines".to_owned();
    });
    let _ = tokio::time::timeout(Duration::from_secs(60), stack.stop()).await;
    Ok(ExitCode::SUCCESS)
}
