//! The api against real PostgreSQL and real NATS; the cluster is a stand-in that lists and watches what a test puts in.

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
mod page;
mod problems;
mod setup;
mod world;
