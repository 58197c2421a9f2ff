//! lab-api.
