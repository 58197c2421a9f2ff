//! KubeVirt's part of the cluster: VM admission, the controllers VM -> VMI -> launcher pod, DataVolume import and the
//! subresources (`console`, `start`, `stop`, `restart`, ...).

use std::path::Path;

use crate::admission::Registry;
use crate::config::DriverArgs;

/// Hangs KubeVirt into the cluster. Called once, before the cluster starts; `state_dir` is the cluster's own (machines
/// live in a directory below it).
pub(crate) fn register(
    _args: &DriverArgs,
    _state_dir: &Path,
    _registry: &mut Registry,
) -> anyhow::Result<()> {
    Ok(())
}
