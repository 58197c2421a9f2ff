//! lab-e2e.
