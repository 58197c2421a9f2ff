//! lab-kit.
