//! A lab that has passed every check.

use std::{fmt, time::Duration};

use lab_domain::{Digest, DiskKind, LabId, MachineName, Runtime, StartLimits};
use lab_guest::File;
use serde::{Deserialize, Serialize};

use crate::ImageName;

/// A course unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lab {
    /// The name of its directory.
    pub id: LabId,
    /// SHA-256 over every path, mode and byte of its directory.
    pub digest: Digest,
    /// One line.
    pub title: Texts,
    /// A sentence or two.
    pub summary: Texts,
    /// For whom it is.
    pub difficulty: Difficulty,
    /// What its machines are.
    pub runtime: Runtime,
    /// How long a session lives, from ready.
    pub life: Duration,
    /// How far a session can be extended.
    pub extend: Extend,
    /// How long a session may be idle.
    pub idle: Duration,
    /// Limits of a start, before the operator's time factor.
    pub limits: StartLimits,
    /// At least one, names differ.
    pub machines: Vec<Machine>,
    /// At least one, numbered from 1.
    pub steps: Vec<Step>,
    /// Why this release cannot start it, in plain words; None: it can.
    pub unsupported: Option<String>,
}

impl Lab {
    /// Step `n`, counted from 1.
    #[must_use]
    pub fn step(&self, n: u32) -> Option<&Step> {
        self.steps.iter().find(|step| step.n == n)
    }

    /// The machine of that name.
    #[must_use]
    pub fn machine(&self, name: &MachineName) -> Option<&Machine> {
        self.machines.iter().find(|machine| machine.name == *name)
    }
}

/// The same text in every language of the page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Texts {
    /// English.
    pub en: String,
    /// Chinese (simplified).
    pub zh: String,
}

/// For whom a lab is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Difficulty {
    /// Knows a shell.
    Beginner,
    /// Has administered a machine.
    Intermediate,
    /// Does so for a living.
    Advanced,
}

impl Difficulty {
    /// The word of `lab.yaml`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Beginner => "beginner",
            Self::Intermediate => "intermediate",
            Self::Advanced => "advanced",
        }
    }
}

/// How far a session can be extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extend {
    /// By how much each time.
    pub step: Duration,
    /// In all; zero: not at all.
    pub max: Duration,
}

/// One machine of a lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its name within a session.
    pub name: MachineName,
    /// An entry of the operator's image table.
    pub image: ImageName,
    /// The root disk that it asks for.
    pub disk: DiskKind,
    /// Virtual processors.
    pub cpus: u32,
    /// Memory.
    pub memory: Memory,
    /// Laid over `/`.
    pub files: Vec<File>,
    /// Must exit 0, or the lab is not ready.
    pub prepare: Option<Vec<u8>>,
}

/// An amount of memory. Shows itself as Kubernetes writes it: `512Mi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Memory {
    mebibytes: u32,
}

impl Memory {
    pub(crate) const LEAST: Self = Self { mebibytes: 64 };
    pub(crate) const MOST: Self = Self { mebibytes: 64 << 10 };

    /// Reads `512Mi` or `2Gi`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, unit) = text.split_at_checked(text.len().checked_sub(2)?)?;
        let number: u32 = number.parse().ok()?;
        let mebibytes = match unit {
            "Mi" => number,
            "Gi" => number.checked_mul(1024)?,
            _ => return None,
        };
        let memory = Self { mebibytes };
        (Self::LEAST..=Self::MOST).contains(&memory).then_some(memory)
    }

    /// The amount in MiB.
    #[must_use]
    pub const fn mebibytes(self) -> u32 {
        self.mebibytes
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}Mi", self.mebibytes)
    }
}

/// One task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Counted from 1.
    pub n: u32,
    /// One line.
    pub title: Texts,
    /// The task, in Markdown.
    pub text: Texts,
    /// Shown on request, in Markdown.
    pub hint: Option<Texts>,
    /// In Markdown; never leaves the server.
    pub solution: Option<Texts>,
    /// None: a step to read.
    pub check: Option<Check>,
    /// Lines to type into the console that do the task. For tests; never leaves the server.
    pub solve: Option<String>,
}

/// How a step is graded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Where the script runs.
    pub machine: MachineName,
    /// The grader: exit 0 is passed; its output is shown to the student.
    pub script: String,
    /// How long it may run.
    pub timeout: Duration,
    /// The page asks by itself, again and again.
    pub auto: bool,
}
