//! The runner behind `./lab`: builds the project, brings a whole stack up on one machine, and tests it.
//!
//! ```text
//!   ./lab up ──> lab-stack supervise ──┬─ postgres, nats-server, lab-cluster ── qemu guests
//!                   │                  ├─ lab-api, -provisioner, -readiness, -reaper, -console-gw
//!                   │                  └─ lab-stack front-door        http://127.0.0.1:8080
//!                   └ state.json  <── ./lab status, logs, down, kubeconfig
//! ```
//!
//! One process, the supervisor, owns all the others. They get a parent-death signal, so a killed supervisor takes
//! them with it; guests, which outlive the cluster's process on purpose, are ended by a warden that notices the same.
//! Tests and the bench start the very same thing in their own process: [`Stack::start`].

mod build;
mod checks;
mod cli;
mod cluster;
mod commands;
#[cfg(test)]
mod deploy_tests;
mod front;
mod http;
mod images;
mod keys;
mod nats;
mod packages;
mod paths;
mod plan;
mod ports;
mod postgres;
mod process;
mod record;
mod settings;
mod stack;
mod ui;

pub use cli::main;
pub use paths::cache_dir;
pub use stack::{Driver, Options, Stack};
