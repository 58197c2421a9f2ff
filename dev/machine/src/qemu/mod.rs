//! The driver that runs real guests.

use std::sync::Arc;

use crate::driver::Error;
use crate::machine::Machine;
use crate::spec::Spec;

/// The driver.
#[derive(Debug, Clone)]
pub struct Qemu(Arc<()>);

/// The control socket failed.
#[derive(Debug, thiserror::Error)]
#[error("control socket")]
pub struct QmpError;

impl Qemu {
    /// A driver with its state under `state`; its tasks run on `tracker`.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(_state: &std::path::Path, _tracker: tokio_util::task::TaskTracker) -> Result<Self, Error> {
        Ok(Self(Arc::new(())))
    }

    pub(crate) async fn start(&self, spec: Spec) -> Result<Machine, Error> {
        Err(Error::Exists { uid: spec.uid })
    }
    pub(crate) fn get(&self, _uid: &str) -> Option<Machine> {
        None
    }
    pub(crate) async fn reattach(&self) -> Result<Vec<Machine>, Error> {
        Ok(Vec::new())
    }
    pub(crate) async fn remove(&self, _uid: &str) -> Result<(), Error> {
        Ok(())
    }
}
