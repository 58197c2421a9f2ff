//! lab-kubevirt.
