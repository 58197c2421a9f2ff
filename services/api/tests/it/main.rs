//! The api against real PostgreSQL and real NATS; the cluster is a stand-in that lists and watches what a test puts in.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on says so by panicking")]

mod access;
mod admission;
mod answers;
mod checks;
mod deadlines;
mod description;
mod faults;
mod ghosts;
mod journey;
mod kube;
mod oidc;
mod page;
mod problems;
mod setup;
mod world;
