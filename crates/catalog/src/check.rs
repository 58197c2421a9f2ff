//! What `lab.yaml` means: every reference found, every value in its range. It goes on after a problem, so that an author
//! sees all of them at once; the lab that it makes up meanwhile is thrown away by its caller.

use std::{ops::RangeInclusive, str::FromStr, time::Duration};

use lab_domain::{Digest, DiskKind, LabId, MachineName, Runtime, StartLimits};
use lab_guest::{Content, File, SECRET_LIMIT};

use crate::{
    Check, Extend, ImageName, Lab, Machine, Memory, Problem, Step, Texts,
    load::LAB_FILE,
    schema::{self, Word},
    tree::Tree,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The agent refuses to run a grader longer.
const LONGEST_GRADER: Duration = Duration::from_secs(600);
/// The kernel cuts a typed line here, and says nothing.
const LONGEST_LINE: usize = 4000;

struct Checker<'a> {
    lab: &'a LabId,
    tree: &'a Tree,
    problems: Vec<Problem>,
}

/// The lab, and what is wrong with it.
pub(crate) fn check(id: LabId, digest: Digest, written: &schema::Lab, tree: &Tree) -> (Lab, Vec<Problem>) {
    let mut checker = Checker { lab: &id, tree, problems: Vec::new() };
    for (key, texts) in [("title", &written.title), ("summary", &written.summary)] {
        checker.is_filled(key, texts);
    }
    let default = StartLimits::default();
    let limits = &written.limits;
    let start = SECOND..=DAY;
    let limits = StartLimits {
        disk: checker.duration("limits.disk", limits.disk.as_ref(), default.disk, &start),
        boot: checker.duration("limits.boot", limits.boot.as_ref(), default.boot, &start),
        agent: checker.duration("limits.agent", limits.agent.as_ref(), default.agent, &start),
        prepare: checker.duration("limits.prepare", limits.prepare.as_ref(), default.prepare, &start),
    };
    let (life, zero) = (MINUTE..=DAY, Duration::ZERO..=DAY);
    let extend = Extend {
        step: checker.duration("extend.step", written.extend.step.as_ref(), 15 * MINUTE, &life),
        max: checker.duration("extend.max", written.extend.max.as_ref(), 60 * MINUTE, &zero),
    };
    let runtime = checker.word("runtime", &written.runtime).unwrap_or(Runtime::Vm);
    let machines = checker.machines(written);
    let steps = checker.steps(written, &machines);
    let lab = Lab {
        digest,
        title: written.title.clone(),
        summary: written.summary.clone(),
        difficulty: written.difficulty,
        runtime,
        life: checker.duration("life", written.life.as_ref(), 60 * MINUTE, &life),
        extend,
        idle: checker.duration("idle", written.idle.as_ref(), 30 * MINUTE, &life),
        limits,
        unsupported: unsupported(runtime, &machines),
        machines,
        steps,
        id: id.clone(),
    };
    (lab, checker.problems)
}

/// Why this release cannot start such a lab.
fn unsupported(runtime: Runtime, machines: &[Machine]) -> Option<String> {
    if runtime == Runtime::Pod {
        Some("This lab runs in a pod. So far only labs with virtual machines can be started.".to_owned())
    } else if machines.len() > 1 {
        Some(format!("This lab has {} machines. So far only labs with one can be started.", machines.len()))
    } else if machines.iter().any(|machine| machine.disk == DiskKind::DataVolume) {
        Some(
            "This lab wants a disk of its own for each machine (datavolume), which is not supported yet."
                .to_owned(),
        )
    } else {
        None
    }
}

impl Checker<'_> {
    fn problem(&mut self, file: &str, line: Option<u64>, message: String) {
        let lab = self.lab.to_string();
        self.problems.push(Problem { lab, file: file.to_owned(), line, message });
    }

    fn blame<T>(&mut self, word: &serde_saphyr::Spanned<T>, message: String) {
        self.problem(LAB_FILE, Some(word.referenced.line()), message);
    }

    fn word<T: FromStr<Err: std::fmt::Display>>(&mut self, key: &str, word: &Word) -> Option<T> {
        word.value.parse().map_err(|error| self.blame(word, format!("{key}: {error}"))).ok()
    }

    fn duration(
        &mut self,
        key: &str,
        word: Option<&Word>,
        default: Duration,
        range: &RangeInclusive<Duration>,
    ) -> Duration {
        let Some(word) = word else { return default };
        let show = |duration: &Duration| humantime::format_duration(*duration).to_string();
        match humantime::parse_duration(&word.value) {
            Ok(duration) if range.contains(&duration) => return duration,
            Ok(_) => {
                let (from, to) = (show(range.start()), show(range.end()));
                self.blame(word, format!("{key}: {} is not between {from} and {to}", word.value));
            }
            Err(error) => self.blame(word, format!("{key}: {:?} is not a duration: {error}", word.value)),
        }
        default
    }

    fn is_filled(&mut self, what: &str, texts: &Texts) {
        for (language, text) in [("en", &texts.en), ("zh", &texts.zh)] {
            if text.trim().is_empty() {
                self.problem(LAB_FILE, None, format!("{what}.{language} is empty"));
            }
        }
    }

    fn machines(&mut self, written: &schema::Lab) -> Vec<Machine> {
        if written.machines.value.is_empty() {
            self.blame(&written.machines, "machines: a lab needs at least one".to_owned());
        }
        let mut machines: Vec<Machine> = Vec::new();
        for entry in &written.machines.value {
            let Some(machine) = self.machine(entry) else { continue };
            if machines.iter().any(|other| other.name == machine.name) {
                self.blame(&entry.name, format!("two machines are named {}", machine.name));
            }
            machines.push(machine);
        }
        machines
    }

    fn machine(&mut self, written: &schema::Machine) -> Option<Machine> {
        let name = self.word("name", &written.name);
        let image = ImageName::new(&written.image.value);
        if image.is_none() {
            self.blame(&written.image, format!("image: {:?} is not an image name", written.image.value));
        }
        let disk = match &written.disk {
            Some(word) => self.word("disk", word).unwrap_or(DiskKind::Container),
            None => DiskKind::Container,
        };
        let cpus = written.cpus.as_ref().map_or(1, |cpus| cpus.value);
        if let Some(word) = written.cpus.as_ref().filter(|cpus| !(1..=16).contains(&cpus.value)) {
            self.blame(word, format!("cpus: {cpus} is not between 1 and 16"));
        }
        let memory = written.memory.as_ref().map_or("512Mi", |word| word.value.as_str());
        let memory = Memory::parse(memory).unwrap_or_else(|| {
            if let Some(word) = &written.memory {
                let (least, most) = (Memory::LEAST, Memory::MOST);
                self.blame(
                    word,
                    format!("memory: {memory:?} is not an amount like 512Mi between {least} and {most}"),
                );
            }
            Memory::LEAST
        });
        let files = written.files.as_ref().map_or_else(Vec::new, |word| self.files(word));
        let prepare = written.prepare.as_ref().and_then(|word| self.script(word)).map(String::into_bytes);
        match lab_guest::size(&files, prepare.as_deref()) {
            Ok(size) if size > SECRET_LIMIT => self.blame(
                &written.name,
                format!(
                    "files and prepare script make {size} bytes of cloud-init, but a Secret holds {SECRET_LIMIT}; \
                     let prepare.sh make or fetch what is large"
                ),
            ),
            Ok(_) => {}
            Err(error) => self.blame(&written.name, error.to_string()),
        }
        Some(Machine { name: name?, image: image?, disk, cpus, memory, files, prepare })
    }

    fn steps(&mut self, written: &schema::Lab, machines: &[Machine]) -> Vec<Step> {
        if written.steps.value.is_empty() {
            self.blame(&written.steps, "steps: a lab needs at least one".to_owned());
        }
        let mut steps = Vec::new();
        for (n, step) in (1..).zip(&written.steps.value) {
            self.is_filled(&format!("title of step {n}"), &step.title);
            // Everything is looked at before a missing text drops the step, so that every problem is told.
            let text = self.texts(&step.text);
            let hint = step.hint.as_ref().and_then(|word| self.texts(word));
            let solution = step.solution.as_ref().and_then(|word| self.texts(word));
            let check = step.check.as_ref().and_then(|check| self.grader(check, machines));
            let solve = step.solve.as_ref().and_then(|word| self.typed_lines(word));
            let Some(text) = text else { continue };
            steps.push(Step { n, title: step.title.clone(), text, hint, solution, check, solve });
        }
        steps
    }

    fn grader(&mut self, written: &schema::Check, machines: &[Machine]) -> Option<Check> {
        let timeout =
            self.duration("timeout", written.timeout.as_ref(), 30 * SECOND, &(SECOND..=LONGEST_GRADER));
        let machine = match &written.machine {
            Some(word) => {
                let machine: MachineName = self.word("machine", word)?;
                if !machines.iter().any(|other| other.name == machine) {
                    self.blame(word, format!("machine: this lab has no machine named {machine}"));
                }
                Some(machine)
            }
            None => machines.first().map(|machine| machine.name.clone()),
        };
        let script = self.script(&written.script)?;
        Some(Check { machine: machine?, script, timeout, auto: written.auto })
    }

    /// `word` as a path below the lab's directory.
    fn path(&mut self, word: &Word) -> Option<String> {
        let path = word.value.strip_suffix('/').unwrap_or(&word.value);
        if path.is_empty() || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            self.blame(word, format!("{:?} is not a path below the lab's directory", word.value));
            return None;
        }
        Some(path.to_owned())
    }

    /// The text of the file that `word` names.
    fn read(&mut self, word: &Word, path: &str) -> Option<String> {
        let Some(bytes) = self.tree.file(path) else {
            self.blame(word, format!("missing file {path}"));
            return None;
        };
        match std::str::from_utf8(bytes) {
            Ok(text) => Some(text.to_owned()),
            Err(error) => {
                let line = line_of(bytes, error.valid_up_to());
                self.problem(path, Some(line), "not UTF-8".to_owned());
                None
            }
        }
    }

    fn without_crlf(&mut self, path: &str, text: &str) {
        if let Some(at) = text.find("\r\n") {
            let line = line_of(text.as_bytes(), at);
            self.problem(path, Some(line), "CRLF line end: save the script with LF".to_owned());
        }
    }

    /// A script that the machine runs.
    fn script(&mut self, word: &Word) -> Option<String> {
        let path = self.path(word)?;
        let text = self.read(word, &path)?;
        self.without_crlf(&path, &text);
        if !text.starts_with("#!") {
            self.problem(&path, Some(1), "the first line must name the interpreter: #!/bin/bash".to_owned());
        }
        Some(text)
    }

    /// A script whose lines are typed into a console.
    fn typed_lines(&mut self, word: &Word) -> Option<String> {
        let path = self.path(word)?;
        let text = self.read(word, &path)?;
        self.without_crlf(&path, &text);
        for (n, line) in (1..).zip(text.lines()) {
            if line.len() > LONGEST_LINE {
                self.problem(&path, Some(n), format!("a terminal takes {LONGEST_LINE} bytes in a line"));
            }
            if line.chars().any(char::is_control) {
                self.problem(
                    &path,
                    Some(n),
                    "a control character (a tab?) does not arrive as typed".to_owned(),
                );
            }
        }
        Some(text)
    }

    /// `step1` is step1.en.md and step1.zh.md.
    fn texts(&mut self, word: &Word) -> Option<Texts> {
        let stem = self.path(word)?;
        let mut language = |code: &str| {
            let path = format!("{stem}.{code}.md");
            let text = self.read(word, &path)?;
            if text.trim().is_empty() {
                self.problem(&path, None, "the file is empty".to_owned());
            }
            Some(text)
        };
        let (en, zh) = (language("en"), language("zh"));
        Some(Texts { en: en?, zh: zh? })
    }

    /// Everything below the directory that `word` names.
    fn files(&mut self, word: &Word) -> Vec<File> {
        let Some(path) = self.path(word) else { return Vec::new() };
        if !self.tree.is_directory(&path) {
            self.blame(word, format!("missing directory {path}"));
            return Vec::new();
        }
        let prefix = format!("{path}/");
        let mut files = Vec::new();
        for (path, (mode, content)) in &self.tree.entries {
            let Some(below) = path.strip_prefix(&prefix) else { continue };
            files.push(File { path: below.to_owned(), mode: *mode, content: content.clone() });
            // Other files may want CRLF; a script of the lab's cannot run with it.
            if let Content::Regular(bytes) = content
                && bytes.starts_with(b"#!")
                && bytes.split(|b| *b == b'\n').next().is_some_and(|line| line.ends_with(b"\r"))
            {
                let lab = self.lab.to_string();
                let message = "CRLF line end: save the script with LF".to_owned();
                self.problems.push(Problem { lab, file: path.clone(), line: Some(1), message });
            }
        }
        files
    }
}

/// The line, counted from 1, of the byte at `at`.
fn line_of(bytes: &[u8], at: usize) -> u64 {
    1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count() as u64
}
