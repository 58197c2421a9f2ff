//! lab-reaper.
