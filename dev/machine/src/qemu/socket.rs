//! Unix sockets in directories whose path may be longer than a socket address can hold.
//!
//! The limit is 108 bytes; state directories with a uid in them come close. The directory is opened and the socket
//! named through our own descriptor of it.

use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

pub(super) async fn connect(directory: &Path, name: &str) -> std::io::Result<UnixStream> {
    let held = std::fs::File::open(directory)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}/{name}", held.as_raw_fd()));
    UnixStream::connect(short).await
}
