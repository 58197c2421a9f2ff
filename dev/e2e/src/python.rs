//! The packages of the documented subscriber, in the cache that all clones share.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

/// The line that docs/events.md tells people to install.
const PACKAGES: [&str; 3] = ["nats-py==2.16.0", "nkeys==0.2.1", "protobuf==7.36.2"];

/// A folder for `PYTHONPATH` that holds the packages; fetched once.
///
/// # Errors
/// If they cannot be installed; pip's own words are on standard error.
pub async fn subscriber_packages() -> Result<PathBuf> {
    let cache = lab_stack::cache_dir()?;
    let folder = cache.join("python").join(PACKAGES.join("-").replace('=', ""));
    if folder.is_dir() {
        return Ok(folder);
    }
    let parent = folder.parent().context("the cache has folders")?;
    std::fs::create_dir_all(parent)?;
    // Another run may do the same at the same time: each fills its own, the first rename wins.
    let part = parent.join(format!("part-{}", std::process::id()));
    let status = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"])
        .arg(&part)
        .args(PACKAGES)
        .status()
        .await
        .context("cannot start pip; install python3-pip")?;
    ensure!(status.success(), "pip could not install {PACKAGES:?}");
    if std::fs::rename(&part, &folder).is_err() {
        std::fs::remove_dir_all(&part)?;
    }
    Ok(folder)
}
