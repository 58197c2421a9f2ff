//! The cluster's own controllers: collection by owner, namespaces, quota status, claim protection.

use crate::admission::ControllerContext;

/// Starts them all.
pub(crate) fn start(_context: &ControllerContext) {}
