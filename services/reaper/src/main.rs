//! Entry point of the reaper.

use std::process::ExitCode;

use clap::Parser as _;
use lab_kit::{EXIT_CONFIG, Shutdown, install_tls, telemetry};
use lab_reaper::{config::Args, run};

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are no errors.
            let code = if error.use_stderr() { EXIT_CONFIG } else { 0 };
            let _printed = error.print();
            return ExitCode::from(code);
        }
    };
    install_tls();
    if let Err(error) = telemetry::init(&args.common.process.log) {
        let _printed = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{error}\n"));
        return ExitCode::from(EXIT_CONFIG);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "no runtime");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(async {
        let shutdown = Shutdown::new();
        shutdown.on_signals()?;
        run(args, shutdown).await
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the reaper stopped");
            ExitCode::FAILURE
        }
    }
}
