//! What tests stand on: real PostgreSQL, real NATS and the one-machine cluster as child processes, a TCP proxy that
//! cuts, and waiting for a condition.
//!
//! Everything listens on loopback on a free port, lives in a temporary folder and dies with its value. Each test owns
//! its broker; databases share one server and each test has its own.

pub mod child;
mod cluster;
mod nats;
mod postgres;
mod proxy;
mod wait;

pub use cluster::{Cluster, NAMESPACE, SimOptions, binary, workspace};
pub use nats::{Nats, VERSION as NATS_VERSION};
pub use postgres::Postgres;
pub use proxy::Proxy;
pub use wait::wait_for;
