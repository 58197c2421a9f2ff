//! Words for the person at the terminal: steps with what they are doing, and their seconds.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A step that is silent for longer than this says that it is still there.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The same words are repeated after this.
const STILL: Duration = Duration::from_secs(20);
/// A step's seconds are worth a word from here on.
const LONG: Duration = Duration::from_secs(3);

/// Prints one line. A closed terminal is no reason to stop.
pub(crate) fn say(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Prints one line on standard error.
pub(crate) fn warn(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Runs a command as a named step: its output goes to a log, its last line is shown while it lasts,
/// and the end of the log is shown if it fails.
pub(crate) fn step(title: &str, command: &mut Command, log: &Path) -> Result<()> {
    say(format_args!("· {title}"));
    let begun = Instant::now();
    let mut file = File::create(log).with_context(|| format!("cannot write the log {}", log.display()))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {:?} ({title})", command.get_program()))?;
    let (lines, received) = mpsc::channel();
    forward(child.stdout.take(), lines.clone());
    forward(child.stderr.take(), lines);
    let (mut last, mut shown) = (String::new(), String::new());
    let mut told = Instant::now();
    loop {
        match received.recv_timeout(Duration::from_millis(250)) {
            Ok(line) => {
                let _ = writeln!(file, "{line}");
                if !line.trim().is_empty() {
                    last = line.trim().to_owned();
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        // Something new is worth a line soon, the same again only now and then.
        if told.elapsed() >= if last == shown { STILL } else { HEARTBEAT } {
            let words: String = last.chars().take(90).collect();
            say(format_args!("    {:>4} s  {words}", begun.elapsed().as_secs()));
            shown.clone_from(&last);
            told = Instant::now();
        }
    }
    let status = child.wait().with_context(|| format!("lost sight of {title}"))?;
    if !status.success() {
        bail!("{title} failed ({status}).\n{}\nThe whole output: {}", tail(log, 30), log.display());
    }
    if begun.elapsed() > LONG {
        say(format_args!("    done in {:.1} s", begun.elapsed().as_secs_f64()));
    }
    Ok(())
}

/// Sends every line of a pipe on, from a thread of its own.
pub(crate) fn forward<R: Read + Send + 'static>(pipe: Option<R>, lines: Sender<String>) {
    let Some(pipe) = pipe else { return };
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut raw = Vec::new();
        while matches!(reader.read_until(b'\n', &mut raw), Ok(n) if n > 0) {
            let line = String::from_utf8_lossy(&raw).trim_end_matches(['\n', '\r']).to_owned();
            raw.clear();
            if lines.send(line).is_err() {
                return;
            }
        }
    });
}

/// The last lines of a log, indented.
pub(crate) fn tail(log: &Path, lines: usize) -> String {
    let text = std::fs::read(log).map(|raw| String::from_utf8_lossy(&raw).into_owned()).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    let from = all.len().saturating_sub(lines);
    all[from..].iter().map(|line| format!("    | {line}")).collect::<Vec<_>>().join("\n")
}
