//! The whole reaper against a real broker with real permissions and the one-machine cluster with real roles.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod process;
mod service;
mod world;
