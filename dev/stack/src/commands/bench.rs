//! `./lab bench overhead`: the time that the services add to what the machines take themselves.
//!
//! Machines are simulated with fixed times; everything else is the real thing in release form, driven through the
//! public HTTP only, by as many students as there are sessions. What a student's browser sees over server-sent events
//! is what counts, so the front door and the client's own work on the same processors are in the figures.

mod figures;
mod student;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::join_all;

use self::figures::{Run, print_run};
use self::student::Student;
use crate::paths::Paths;
use crate::plan::SERVICES;
use crate::process::ident::pss_kib;
use crate::stack::{Driver, Options, Stack};
use crate::{build, ui};

const BOOT: Duration = Duration::from_millis(500);
const AGENT: Duration = Duration::from_millis(100);
const PREPARE: Duration = Duration::from_millis(400);
/// The readers of the throughput figure, and how long they read.
const READERS: usize = 8;
const READING: Duration = Duration::from_secs(5);

/// Builds in release form, and runs there.
pub(crate) fn overhead(sessions: u32, rate: f64, here: bool) -> Result<ExitCode> {
    if !here {
        let paths = Paths::discover()?;
        let bin = build::programs(&paths, true)?;
        let mut again = Command::new(bin.join("lab-stack"));
        again.args(["bench", "overhead", "--here"]);
        again.args(["--sessions", &sessions.to_string(), "--rate", &rate.to_string()]);
        return Err(again.exec()).context("cannot start the release build");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(measure(sessions, rate))
}

async fn measure(sessions: u32, rate: f64) -> Result<ExitCode> {
    ui::say(format_args!("· starting a stack on sim (boot {BOOT:?}, agent {AGENT:?}, prepare {PREPARE:?})"));
    let stack = Stack::start(Options {
        driver: Driver::Sim { boot: BOOT, agent: AGENT, prepare: PREPARE },
        vm_cap: sessions * 2 + 8,
        ..Options::sim()
    })
    .await?;
    let result = drive(&stack, sessions, rate).await;
    stack.stop().await;
    result
}

async fn drive(stack: &Stack, sessions: u32, rate: f64) -> Result<ExitCode> {
    let web = stack.web_url();
    // Idle means: a minute's timers have had their turn, caches are as they stay.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let idle = memory(stack);

    let steady = format!("{sessions} sessions at {rate} starts a second");
    let steady = run(&web, &steady, sessions, Some(Duration::from_secs_f64(1.0 / rate))).await?;
    let burst = run(&web, &format!("{sessions} sessions at once"), sessions, None).await?;
    let reads = throughput(&web).await?;
    let loaded = memory(stack);

    print_run(&steady);
    print_run(&burst);
    ui::say(format_args!(
        "\nrequests   {reads:.0} a second (GET /api/labs/…, {READERS} connections, through the front door)"
    ));
    ui::say(format_args!("\n{:<16} {:>10} {:>10}   PSS in MiB", "memory", "idle", "after"));
    for ((name, before), (_, after)) in idle.iter().zip(&loaded) {
        ui::say(format_args!("{name:<16} {before:>10.1} {after:>10.1}"));
    }
    let sum = |all: &[(String, f64)]| all.iter().map(|(_, mib)| mib).sum::<f64>();
    ui::say(format_args!(
        "{:<16} {:>10.1} {:>10.1}   aim: idle under 100",
        "together",
        sum(&idle),
        sum(&loaded)
    ));
    let failed = steady.failed.len() + burst.failed.len();
    ui::say(format_args!("\naim: p99 of the sum under 100 ms at {rate} a second: {}", verdict(&steady)));
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn verdict(run: &Run) -> String {
    match run.overhead_p99() {
        Some(p99) if p99 < Duration::from_millis(100) => format!("met ({} ms)", p99.as_millis()),
        Some(p99) => format!("not met ({} ms)", p99.as_millis()),
        None => "nothing measured".to_owned(),
    }
}

/// Starts sessions evenly spaced or all at once, ends them when all are ready or failed.
async fn run(web: &str, title: &str, sessions: u32, every: Option<Duration>) -> Result<Run> {
    ui::say(format_args!("· {title}"));
    let kind = if every.is_some() { "steady" } else { "burst" };
    let lab = student::first_lab(web).await?;
    let mut students = Vec::new();
    for number in 0..sessions {
        students.push(Student::sign_in(web, &format!("bench-{kind}-{number}"), &lab).await?);
    }
    let begun = Instant::now();
    let starts = students.into_iter().zip(0_u32..).map(|(student, number)| async move {
        if let Some(every) = every {
            tokio::time::sleep(every * number).await;
        }
        let seen = student.start().await;
        (student, seen)
    });
    let started = join_all(starts).await;
    let took = begun.elapsed();
    ui::say(format_args!("    all started after {:.1} s, ending them", took.as_secs_f64()));
    let mut run = Run {
        title: title.to_owned(),
        own: (BOOT, AGENT, PREPARE),
        seen: Vec::new(),
        failed: Vec::new(),
        ended: Vec::new(),
    };
    let ends = started.iter().map(|(student, seen)| async move {
        match seen {
            Ok(seen) => Some(student.end(&seen.id).await),
            Err(_) => None,
        }
    });
    for end in join_all(ends).await.into_iter().flatten() {
        match end {
            Ok(took) => run.ended.push(took),
            Err(error) => run.failed.push(format!("end: {error:#}")),
        }
    }
    for (_, seen) in started {
        match seen {
            Ok(seen) => run.seen.push(seen),
            Err(error) => run.failed.push(format!("{error:#}")),
        }
    }
    Ok(run)
}

async fn throughput(web: &str) -> Result<f64> {
    let lab = student::first_lab(web).await?;
    let student = Student::sign_in(web, "bench-reader", &lab).await?;
    let begun = Instant::now();
    let readers = (0..READERS).map(|_| async {
        let mut answers = 0_u32;
        while begun.elapsed() < READING {
            student.read_lab().await?;
            answers += 1;
        }
        Ok::<u32, anyhow::Error>(answers)
    });
    let mut sum = 0.0;
    for answers in join_all(readers).await {
        sum += f64::from(answers?);
    }
    Ok(sum / begun.elapsed().as_secs_f64())
}

/// PSS of each service in MiB.
fn memory(stack: &Stack) -> Vec<(String, f64)> {
    SERVICES
        .iter()
        .map(|name| {
            let kib = stack.pid(name).and_then(pss_kib).unwrap_or(0);
            ((*name).to_owned(), f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0)
        })
        .collect()
}
