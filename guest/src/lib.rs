//! What a machine is told before its first boot: the cloud-init user-data that carries agent, lab files and prepare
//! script. Pure: bytes in, text out.
//!
//! ```text
//! write_files   /opt/ttlab/machine.json  (0600)  token, names, time limit of prepare.sh
//!               /opt/ttlab/agent.py              readiness and graders on port 8899
//!               /opt/ttlab/prepare.sh            the lab's own
//!               /opt/ttlab/files.tar.gz          the lab's files, laid over / with their modes
//!               /opt/ttlab/start.sh              the last line of runcmd: unpacks, starts the agent
//!               two systemd units                agent, root's autologin on the serial line
//! ```
//!
//! It asks nothing of an image that stock Debian and Ubuntu cloud images lack: cloud-init, systemd, Python 3.
//! There is no password anywhere. Size matters: cloud-init reads user-data several times with a slow parser, so a
//! megabyte costs an emulated machine most of a minute.

mod archive;
mod render;

pub use archive::{Content, Error, File};
pub use render::{Machine, UserData, render, size};

/// The most that a Secret holds, in bytes, over all its values.
pub const SECRET_LIMIT: usize = 1 << 20;
/// Where the agent listens.
pub const AGENT_PORT: u16 = 8899;
/// Everything of ours inside the machine.
pub const CODE_DIR: &str = "/opt/ttlab";
/// What survives a reboot: phase, exit and log of the prepare script.
pub const STATE_DIR: &str = "/var/lib/ttlab";
