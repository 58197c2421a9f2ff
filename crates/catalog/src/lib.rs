//! lab-catalog.
