//! The machine drivers of the one-machine cluster: what makes a guest exist, without a word of Kubernetes.
//!
//! Two drivers stand behind one [`Driver`]: `qemu` runs a real guest, `sim` plays one (a scripted agent and a
//! scripted serial console on the same kind of address). Both give out a [`Machine`]: a loopback address of its
//! own where port 8899 is the agent's, a serial [`Console`], and a [`Status`] that can be watched.
//!
//! ```text
//!            start ──▶ Starting ──▶ Running ──▶ Ended(Shutdown | Crashed | Panicked | Killed)
//!                          │           │ ▲           (terminal: a machine never comes back;
//!                          │           └─┘            a new start is a new machine)
//!                          │        reset inside: the count goes up, the machine stays
//!                          └───────────▶ Ended(..)
//! ```
//!
//! What it does NOT do: decide when a machine should exist, or know what a lab is. A machine outlives this
//! process (qemu) or is taken up again from its state directory (sim); only [`Driver::remove`] makes it gone.

mod address;
mod console;
mod driver;
mod limits;
mod machine;
pub mod qemu;
pub mod sim;
mod spec;

pub use address::{AGENT_PORT, AddressError};
pub use console::{Attached, Closed, Console, Input, Output};
pub use driver::{Driver, Error};
pub use limits::raise_open_files;
pub use machine::{End, Machine, Run, Status};
pub use spec::{Boot, EmptyDisk, Format, RootDisk, Seed, Spec};
