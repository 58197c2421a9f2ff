//! `./lab bench`.

use std::process::ExitCode;

use anyhow::Result;

/// Placeholder signature while the parts land.
pub(crate) fn overhead(_sessions: u32, _rate: f64, _here: bool) -> Result<ExitCode> {
    Ok(ExitCode::FAILURE)
}
