//! What `./lab test` and `./lab lint` check.

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::TestArgs;

pub(crate) mod sqlx;

/// A part of the tests that can be run alone.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Unit,
}

pub(crate) fn test(_args: &TestArgs) -> Result<ExitCode> {
    Ok(ExitCode::FAILURE)
}

pub(crate) fn lint() -> Result<ExitCode> {
    Ok(ExitCode::FAILURE)
}
