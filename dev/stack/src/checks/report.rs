//! Runs the checks, shows what they print, counts, and sums up.

use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::counts::{self, Counts, Unittest};
use crate::ui;

/// How the output of a command is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    Nextest,
    CargoTest,
    Vitest,
    Unittest,
    /// The command itself is the check.
    Whole,
}

struct Line {
    name: String,
    took: Duration,
    counts: Counts,
}

/// What has been run so far.
#[derive(Default)]
pub(crate) struct Report {
    done: Vec<Line>,
    failures: Vec<String>,
    current: Option<(String, Instant, Counts)>,
}

impl Report {
    pub(crate) fn begin(&mut self, part: &str) {
        ui::say(format_args!("\n== {part} =="));
        self.current = Some((part.to_owned(), Instant::now(), Counts::default()));
    }

    pub(crate) fn end(&mut self) {
        if let Some((name, begun, counts)) = self.current.take() {
            self.done.push(Line { name, took: begun.elapsed(), counts });
        }
    }

    /// Something that must work before there is anything to count.
    pub(crate) fn prepare(&mut self, name: &str, work: impl FnOnce() -> Result<()>) -> bool {
        let begun = Instant::now();
        let result = work();
        let mut counts = Counts::default();
        let well = result.is_ok();
        if let Err(error) = result {
            ui::warn(format_args!("{error:#}"));
            counts.failed = 1;
            self.failures.push(name.to_owned());
        }
        self.done.push(Line { name: name.to_owned(), took: begun.elapsed(), counts });
        well
    }

    /// Something that is needed; its failure is shown and counted where it is missed.
    pub(crate) fn attempt<T>(&mut self, what: &str, work: impl FnOnce() -> Result<T>) -> Option<T> {
        match work() {
            Ok(value) => Some(value),
            Err(error) => {
                ui::warn(format_args!("{what}: {error:#}"));
                self.failures.push(what.to_owned());
                None
            }
        }
    }

    fn count(&mut self, what: &str, counts: Counts) {
        if counts.failed > 0 {
            let part = self.current.as_ref().map(|(name, ..)| name.clone()).unwrap_or_default();
            self.failures.push(format!("{part}: {what}"));
        }
        if let Some((.., sum)) = &mut self.current {
            sum.add(counts);
        }
    }

    /// A check in our own words.
    pub(crate) fn check(&mut self, what: &str, work: impl FnOnce() -> Result<()>) {
        ui::say(format_args!("· {what}"));
        match work() {
            Ok(()) => self.count(what, Counts { passed: 1, failed: 0 }),
            Err(error) => {
                ui::say(format_args!("{error:#}"));
                self.count(what, Counts { passed: 0, failed: 1 });
            }
        }
    }

    /// A command whose output is shown and counted. It fails if it says so, whatever it counted.
    pub(crate) fn command(&mut self, what: &str, command: &mut Command, counter: Counter) {
        ui::say(format_args!("· {what}"));
        let mut counts = match watch(command, counter) {
            Ok((counts, success)) => {
                let silent = counts == Counts::default();
                match (success, counter) {
                    (true, Counter::Whole) => Counts { passed: 1, failed: 0 },
                    (false, _) if counts.failed == 0 => Counts { failed: 1, ..counts },
                    (true, _) if silent => {
                        ui::say("  (no test in it)");
                        counts
                    }
                    _ => counts,
                }
            }
            Err(error) => {
                ui::say(format_args!("{error:#}"));
                Counts { passed: 0, failed: 1 }
            }
        };
        if counter == Counter::Whole {
            counts.passed = counts.passed.min(1);
        }
        self.count(what, counts);
    }

    /// The summary. The last line is the one that is counted by machines.
    pub(crate) fn close(self) -> ExitCode {
        let mut sum = Counts::default();
        ui::say(format_args!("\n{:<10} {:>9} {:>8} {:>8}", "part", "seconds", "passed", "failed"));
        for line in &self.done {
            let Counts { passed, failed } = line.counts;
            ui::say(format_args!(
                "{:<10} {:>9.1} {passed:>8} {failed:>8}",
                line.name,
                line.took.as_secs_f64()
            ));
            sum.add(line.counts);
        }
        let total: Duration = self.done.iter().map(|line| line.took).sum();
        ui::say(format_args!("{:<10} {:>9.1}", "together", total.as_secs_f64()));
        for failure in &self.failures {
            ui::say(format_args!("FAILED  {failure}"));
        }
        if !self.failures.is_empty() && sum.failed == 0 {
            sum.failed = 1;
        }
        ui::say(format_args!("\n{} passed, {} failed", sum.passed, sum.failed));
        if sum.failed == 0 && sum.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn watch(command: &mut Command, counter: Counter) -> Result<(Counts, bool)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    let (lines, received) = mpsc::channel();
    ui::forward(child.stdout.take(), lines.clone());
    ui::forward(child.stderr.take(), lines);
    let mut counts = Counts::default();
    let mut unittest = Unittest::default();
    for line in received {
        ui::say(&line);
        let found = match counter {
            Counter::Nextest => counts::nextest(&line),
            Counter::CargoTest => counts::cargo_test(&line),
            Counter::Vitest => counts::vitest(&line),
            Counter::Unittest => unittest.line(&line),
            Counter::Whole => None,
        };
        if let Some(found) = found {
            counts.add(found);
        }
    }
    let status = child.wait().context("lost sight of a check")?;
    Ok((counts, status.success()))
}
