//! Readiness against hostile agents, and the whole service against a real broker and the one-machine cluster.

mod hostile;
mod service;
mod world;
