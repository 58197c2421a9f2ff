//! The cluster from outside: HTTP as recorded from the real thing, and kube clients against it.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "all of this crate is tests, also what is no test function"
)]

mod client;
mod harness;
mod kubevirt;
mod load;
mod replay;
mod restart;
mod rights;
mod tables;
