//! The drivers alone: a machine is started, answers, is typed into, and ends.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "all of this crate is tests, also what is no test function"
)]

mod qemu;
mod sim;
