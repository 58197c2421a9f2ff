//! What is wrong with a lab, for the person who writes it.

use std::fmt;

/// One thing that is wrong with a lab. Shows itself as `labs/x/lab.yaml:12: message`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The name of the lab's directory, good or bad.
    pub lab: String,
    /// The file, below the lab's directory.
    pub file: String,
    /// The line, counted from 1, where one line is to blame.
    pub line: Option<u64>,
    /// What to change.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.lab, self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
    }
}
