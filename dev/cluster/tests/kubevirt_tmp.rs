//! Temporary.
#[path = "it/harness.rs"]
mod harness;
#[path = "it/kubevirt/mod.rs"]
mod kubevirt;
