//! Readiness against hostile agents, and the whole service against a real broker and the one-machine cluster.

#![expect(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "helpers of tests are tests")]

mod hostile;
mod process;
mod service;
mod world;
