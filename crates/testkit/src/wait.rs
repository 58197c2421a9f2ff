//! Waiting for a condition instead of sleeping for a time.

use std::time::{Duration, Instant};

/// Looks at `condition` every 20 ms until it holds.
///
/// # Panics
/// If it does not hold within `limit`; the message says what was waited for.
pub async fn wait_for<F>(what: &str, limit: Duration, mut condition: F)
where
    F: AsyncFnMut() -> bool,
{
    let start = Instant::now();
    loop {
        if condition().await {
            return;
        }
        assert!(start.elapsed() < limit, "waited {limit:?} in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
