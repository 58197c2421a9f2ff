//! lab-console-gw.
