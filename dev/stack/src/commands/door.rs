//! `lab-stack front-door`: the process that the browser talks to.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::front::{self, Routes};

/// Serves until SIGTERM or SIGINT.
pub(crate) fn front_door(listen: SocketAddr, api: SocketAddr, console: SocketAddr) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let closing = CancellationToken::new();
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
        let serving = front::serve(Routes { listen, api, console }, closing.clone());
        tokio::pin!(serving);
        tokio::select! {
            done = serving.as_mut() => return done,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        closing.cancel();
        serving.await
    })?;
    Ok(ExitCode::SUCCESS)
}
