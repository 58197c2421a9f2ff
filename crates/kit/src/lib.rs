//! Per-process plumbing that every service shares: arguments, telemetry, the admin listener, shutdown, time, tokens,
//! the guard against a foreign installation, the Kubernetes client.
//!
//! It knows no session and no machine.

pub mod admin;
pub mod args;
pub mod auth;
pub mod clock;
pub mod installation;
pub mod kube;
pub mod ports;
pub mod shutdown;
pub mod telemetry;

pub use clock::Clock;
pub use shutdown::Shutdown;

/// Exit code for a configuration that cannot work.
pub const EXIT_CONFIG: u8 = 64;

/// Installs the one TLS provider of the process. The first thing in `main`.
pub fn install_tls() {
    // An error means that one is installed already, which is what we want.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
