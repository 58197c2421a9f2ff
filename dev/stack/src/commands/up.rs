//! `./lab up`: what is missing, build, image, supervisor; then where to go.

use std::fs::{File, OpenOptions};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};

use crate::cli::{DriverName, UpArgs};
use crate::packages::{self, Need};
use crate::paths::{Paths, make_dir};
use crate::process::ident::Ident;
use crate::record::{Health, Phase, Record};
use crate::{build, images, nats, settings, ui};

/// The supervisor's own limits add up to less; this one only keeps `up` from waiting for ever.
const LIMIT: Duration = Duration::from_secs(600);

/// Brings everything up, or prints again where to go.
pub(crate) fn up(args: &UpArgs) -> Result<ExitCode> {
    let paths = Paths::discover()?;
    make_dir(&paths.state, 0o711)?;
    let lock = File::create(paths.state.join("up.lock"))
        .with_context(|| format!("cannot write to {}", paths.state.display()))?;
    let Ok(_lock) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) else {
        bail!("another ./lab up of this clone is at work: wait for it, or see ./lab status");
    };
    if let Some(record) = Record::read(&paths.record()).filter(Record::is_current) {
        return join(&record, &paths);
    }
    prepare(args, &paths)?;
    if args.foreground {
        return super::supervise::supervise(args, true);
    }
    let supervisor = start_supervisor(args, &paths)?;
    let record = follow(&supervisor, &paths)?;
    print_ways_in(&record);
    Ok(ExitCode::SUCCESS)
}

/// Everything that is not a running process: packages, programs, page, image, broker.
fn prepare(args: &UpArgs, paths: &Paths) -> Result<()> {
    let custom = settings::path("LAB_GUEST_IMAGE").is_some();
    let mut needs = vec![Need::Stack, Need::Node];
    if args.driver == DriverName::Qemu {
        needs.push(Need::Guests);
        if !custom {
            needs.push(Need::Image);
        }
    }
    packages::ensure(&needs, &paths.cache)?;
    build::programs(paths, false)?;
    build::page(paths)?;
    nats::find_server(&paths.cache)?;
    if args.driver == DriverName::Qemu {
        match settings::path("LAB_GUEST_IMAGE") {
            Some(file) => images::import(&file, &paths.cache)?,
            None => images::ensure_built(&paths.repo, &paths.cache)?,
        };
    }
    Ok(())
}

/// `./lab build`.
pub(crate) fn build_only() -> Result<ExitCode> {
    let paths = Paths::discover()?;
    packages::ensure(&[Need::Node], &paths.cache)?;
    build::programs(&paths, false)?;
    build::page(&paths)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints where to go if the stack is up.
pub(crate) fn again() -> Result<ExitCode> {
    let paths = Paths::discover()?;
    let record =
        Record::read(&paths.record()).filter(|record| record.is_current() && record.phase == Phase::Up);
    Ok(record.map_or(ExitCode::FAILURE, |record| {
        print_again(&record);
        ExitCode::SUCCESS
    }))
}

fn print_again(record: &Record) {
    print_ways_in(record);
    ui::say("\n  It was up already: a change of the sources shows after ./lab down && ./lab up.");
    for process in record.processes.iter().filter(|process| process.health != Health::Healthy) {
        ui::say(format_args!(
            "  But {} is {}: ./lab logs {}",
            process.name,
            process.health.word(),
            process.name
        ));
    }
}

/// A supervisor runs: waits until its stack is up.
fn join(record: &Record, paths: &Paths) -> Result<ExitCode> {
    match record.phase {
        Phase::Up => print_again(record),
        Phase::Starting => print_ways_in(&follow(&record.supervisor, paths)?),
        Phase::Stopping | Phase::Failed => {
            bail!("the stack is just being stopped: try again in a few seconds")
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn start_supervisor(args: &UpArgs, paths: &Paths) -> Result<Ident> {
    make_dir(&paths.logs(), 0o700)?;
    let file = paths.logs().join("supervisor.log");
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&file)
        .with_context(|| format!("cannot write {}", file.display()))?;
    let own = std::env::current_exe().context("cannot find the running program")?;
    // A session of its own: closing the terminal must not end the stack.
    let mut command = Command::new("setsid");
    command.arg(own).arg("supervise").args(["--port", &args.port.to_string()]);
    command.args(["--driver", if args.driver == DriverName::Sim { "sim" } else { "qemu" }]);
    if let Some(cap) = args.vm_cap {
        command.args(["--vm-cap", &cap.to_string()]);
    }
    let child = command
        .env("LAB_REPO", &paths.repo)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("cannot share a log file")?)
        .stderr(log)
        .spawn()
        .context("cannot start the supervisor (is `setsid` of util-linux there?)")?;
    let pid = i32::try_from(child.id()).context("a pid out of range")?;
    Ident::of(pid).context("the supervisor ended at once: see ./lab logs supervisor")
}

/// Shows what the supervisor is doing until it is up.
fn follow(supervisor: &Ident, paths: &Paths) -> Result<Record> {
    let begun = Instant::now();
    let mut shown = String::new();
    let mut told = Instant::now();
    loop {
        let record = Record::read(&paths.record()).filter(|record| record.supervisor.pid == supervisor.pid);
        if let Some(record) = record {
            if record.phase == Phase::Up {
                return Ok(record);
            }
            if record.phase == Phase::Failed {
                supervisor.wait_gone(Duration::from_secs(30));
                bail!("{}", record.error.unwrap_or_else(|| "it did not come up".to_owned()));
            }
            if record.step != shown && record.phase == Phase::Starting {
                ui::say(format_args!("· {}", record.step));
                shown.clone_from(&record.step);
                told = Instant::now();
            }
            if told.elapsed() > Duration::from_secs(4) {
                told = Instant::now();
                ui::say(format_args!(
                    "    {:>4} s  waiting for {}",
                    begun.elapsed().as_secs(),
                    waiting(&record)
                ));
            }
        }
        if !supervisor.is_alive() {
            let log = paths.logs().join("supervisor.log");
            bail!("the supervisor ended. Its log, {}, ends:\n{}", log.display(), ui::tail(&log, 15));
        }
        if begun.elapsed() > LIMIT {
            bail!("not up after {} s: see ./lab status and ./lab logs", LIMIT.as_secs());
        }
        std::thread::park_timeout(Duration::from_millis(60));
    }
}

fn waiting(record: &Record) -> String {
    let names: Vec<&str> = record
        .processes
        .iter()
        .filter(|process| process.health != Health::Healthy)
        .map(|process| process.name.as_str())
        .collect();
    if names.is_empty() { record.step.clone() } else { names.join(", ") }
}

/// Where to go, as whom, and how to stop.
pub(crate) fn print_ways_in(record: &Record) {
    let web = &record.addresses.web;
    ui::say(format_args!("\nTT Lab is up: {web}/\n"));
    ui::say("  as a student   sign in with any name, role student: pick a lab, press Start");
    ui::say("  as an admin    sign in with any name, role admin: every session, capacity, ghosts");
    ui::say("  to stop        ./lab down      (how it is: ./lab status, ./lab logs)");
    for note in &record.notes {
        ui::say(format_args!("\n  note: {note}"));
    }
}
