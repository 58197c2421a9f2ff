//! lab-guest.
