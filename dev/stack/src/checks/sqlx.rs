//! `.sqlx`.
use anyhow::Result;
use std::process::ExitCode;
pub(crate) fn prepare() -> Result<ExitCode> {
    Ok(ExitCode::FAILURE)
}
