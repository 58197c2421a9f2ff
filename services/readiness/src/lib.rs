//! lab-readiness.
