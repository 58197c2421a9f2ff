//! How a process stops.
//!
//! ```text
//!  signal ─▶ stopping: readyz false, loops stop pulling, streams to browsers end ─▶ tasks finish ─▶ the admin listener
//!                └── bounded by the grace; then the process exits anyway ──┘        ends ─▶ main closes pools
//! ```
//!
//! One token says that it is time, one tracker knows every task. Whatever is spawned is spawned here.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The root of a process: its token and its tasks. Clones are the same root.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    /// Cancelled when the process is to stop.
    pub token: CancellationToken,
    /// Every task of the process.
    pub tracker: TaskTracker,
    last: Last,
}

/// What goes on until every task has finished: whoever asks must hear "not ready" while they do.
#[derive(Debug, Clone, Default)]
struct Last {
    token: CancellationToken,
    tracker: TaskTracker,
}

/// How long what goes last may take.
const LAST: Duration = Duration::from_secs(1);

impl Shutdown {
    /// A root of its own, for `main` or a test.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the process is to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Spawns a task of the process.
    pub fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        drop(self.tracker.spawn(task));
    }

    /// Spawns a task that outlives the others; it gets the token that ends it.
    pub(crate) fn spawn_last<F, Fut>(&self, task: F)
    where
        F: FnOnce(CancellationToken) -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        drop(self.last.tracker.spawn(task(self.last.token.clone())));
    }

    /// Runs `work` every `interval` and each time `wake` fires, until the process stops. The first run is at once.
    pub fn every<F, Fut>(&self, interval: Duration, wake: std::sync::Arc<tokio::sync::Notify>, mut work: F)
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send,
    {
        let token = self.token.clone();
        self.spawn(async move {
            while !token.is_cancelled() {
                work().await;
                tokio::select! {
                    () = token.cancelled() => {}
                    () = tokio::time::sleep(interval) => {}
                    () = wake.notified() => {}
                }
            }
        });
    }

    /// Waits for SIGTERM or SIGINT, then says that it is time.
    ///
    /// # Errors
    /// If the process cannot listen for signals.
    pub fn on_signals(&self) -> std::io::Result<()> {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let token = self.token.clone();
        self.spawn(async move {
            tokio::select! {
                _ = term.recv() => tracing::info!("stopping: SIGTERM"),
                _ = int.recv() => tracing::info!("stopping: SIGINT"),
                () = token.cancelled() => {}
            }
            token.cancel();
        });
        Ok(())
    }

    /// Waits until the process is to stop, then at most `grace` for its tasks. True if all of them finished.
    pub async fn finish(&self, grace: Duration) -> bool {
        self.token.cancelled().await;
        self.tracker.close();
        let finished = tokio::time::timeout(grace, self.tracker.wait()).await.is_ok();
        if !finished {
            tracing::warn!(tasks = self.tracker.len(), "tasks were left behind at shutdown");
        }
        self.last.token.cancel();
        self.last.tracker.close();
        // Its connections may be held open by whoever asks.
        let _ended = tokio::time::timeout(LAST, self.last.tracker.wait()).await;
        finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_stop_is_left_behind_after_the_grace() {
        let shutdown = Shutdown::new();
        shutdown.spawn(std::future::pending());
        shutdown.token.cancel();
        assert!(!shutdown.finish(Duration::from_secs(10)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn periodic_work_also_runs_when_it_is_woken() {
        let shutdown = Shutdown::new();
        let wake = std::sync::Arc::new(tokio::sync::Notify::new());
        let (ran, mut runs) = tokio::sync::mpsc::unbounded_channel();
        shutdown.every(Duration::from_secs(3600), wake.clone(), move || {
            let ran = ran.clone();
            async move { ran.send(()).unwrap() }
        });
        runs.recv().await.unwrap();
        wake.notify_one();
        runs.recv().await.unwrap();
        shutdown.token.cancel();
        assert!(shutdown.finish(Duration::from_secs(1)).await);
    }
}
