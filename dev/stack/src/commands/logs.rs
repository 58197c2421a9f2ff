//! `./lab logs`: the ends of the logs, and what comes after.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::paths::Paths;
use crate::ui;

/// One log that is being shown.
struct Tail {
    name: String,
    file: PathBuf,
    offset: u64,
    partial: Vec<u8>,
}

/// Shows the last lines, and with `follow` everything that is added.
pub(crate) fn logs(name: Option<&str>, follow: bool, lines: usize) -> Result<ExitCode> {
    let paths = Paths::discover()?;
    let mut tails = Vec::new();
    for file in files(&paths.logs(), name)? {
        let raw = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let text = String::from_utf8_lossy(&raw);
        let all: Vec<&str> = text.lines().collect();
        tails.push((name, file, raw.len() as u64, all[all.len().saturating_sub(lines)..].join("\n")));
    }
    let several = tails.len() > 1;
    let width = tails.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    let mut open = Vec::new();
    for (name, file, offset, text) in tails {
        for line in text.lines() {
            print(&name, width, several, line);
        }
        open.push(Tail { name, file, offset, partial: Vec::new() });
    }
    if !follow {
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        for tail in &mut open {
            for line in more(tail) {
                print(&tail.name, width, several, &line);
            }
        }
        std::thread::park_timeout(Duration::from_millis(200));
    }
}

fn print(name: &str, width: usize, several: bool, line: &str) {
    if several {
        ui::say(format_args!("{name:<width$} | {line}"));
    } else {
        ui::say(line);
    }
}

fn files(dir: &Path, name: Option<&str>) -> Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "log"))
        .collect();
    all.sort();
    let Some(name) = name else {
        if all.is_empty() {
            bail!("there are no logs yet: ./lab up starts the stack");
        }
        return Ok(all);
    };
    let stem =
        |path: &PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let found: Vec<PathBuf> = all
        .iter()
        .filter(|path| stem(path) == name || stem(path) == format!("lab-{name}"))
        .cloned()
        .collect();
    if found.is_empty() {
        let known: Vec<String> = all.iter().map(stem).collect();
        bail!("there is no log of {name:?}; there are {}", known.join(", "));
    }
    Ok(found)
}

/// Lines that were added since the last look. A log that was set aside begins anew.
fn more(tail: &mut Tail) -> Vec<String> {
    let Ok(mut file) = File::open(&tail.file) else { return Vec::new() };
    let length = file.metadata().map_or(0, |meta| meta.len());
    if length < tail.offset {
        tail.offset = 0;
        tail.partial.clear();
    }
    let mut added = Vec::new();
    if file.seek(SeekFrom::Start(tail.offset)).is_err() || file.read_to_end(&mut added).is_err() {
        return Vec::new();
    }
    tail.offset += added.len() as u64;
    tail.partial.extend_from_slice(&added);
    let Some(end) = tail.partial.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
    let whole: Vec<u8> = tail.partial.drain(..=end).collect();
    String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect()
}
