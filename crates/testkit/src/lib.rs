//! lab-testkit.
