//! lab-bus.
