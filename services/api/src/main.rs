//! lab-api: entry point.

use std::process::ExitCode;

use clap::Parser as _;
use lab_api::config::{Cli, Command};

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    lab_kit::install_tls();
    let log = match &cli.command {
        Command::Serve(args) => args.common.process.log.clone(),
        Command::Setup(args) => args.log.clone(),
    };
    if let Err(error) = lab_kit::telemetry::init(&log) {
        return config_error(&error);
    }
    let result = match cli.command {
        Command::Serve(args) => {
            if let Err(error) = args.check() {
                return config_error(&error);
            }
            lab_api::serve::run(*args).await
        }
        Command::Setup(args) => lab_api::setup::run(&args).await.map(|_| true).map_err(Into::into),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "lab-api cannot go on");
            ExitCode::FAILURE
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "logging is not set up, or the arguments are wrong: tell the person who typed"
)]
fn config_error(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("lab-api: {}", lab_kit::telemetry::chain(error));
    ExitCode::from(lab_kit::EXIT_CONFIG)
}
