//! lab-provisioner.
