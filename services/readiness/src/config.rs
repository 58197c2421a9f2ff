//! What readiness can be told.

use std::path::PathBuf;

use clap::Parser;
use lab_kit::args::Common;

/// TT Lab's readiness: watches machines, talks to their agents, grades.
#[derive(Debug, Clone, Parser)]
#[command(name = "lab-readiness", version)]
pub struct Args {
    /// What every service takes.
    #[command(flatten)]
    pub common: Common,
    /// File with the key that agents' tokens are made of; the provisioner has the same.
    #[arg(long, env = "LAB_TOKEN_KEY_FILE", value_name = "FILE")]
    pub token_key_file: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_required() {
        assert!(Args::try_parse_from(["lab-readiness"]).is_err());
        assert!(Args::try_parse_from(["lab-readiness", "--token-key-file", "k"]).is_ok());
    }
}
