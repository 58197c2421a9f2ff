//! The manifests that we build, and the real objects that we read.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that panics has failed, and one that is skipped says so"
)]

mod console;
mod manifests;
mod openapi;
mod recordings;

use std::path::PathBuf;

/// The recordings of a real cluster, or `None` in a clone that lies elsewhere: the caller then says so and passes.
fn conformance(file: &str) -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/conformance")).join(file);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {file} of the recordings is not beside this clone");
    None
}

fn read(file: &str) -> Option<serde_json::Value> {
    let text = std::fs::read_to_string(conformance(file)?).unwrap();
    Some(serde_json::from_str(&text).unwrap())
}
