//! The drivers alone: a machine is started, answers, is typed into, and ends.

mod qemu;
mod sim;
