//! KubeVirt as far as the lab needs it: minimal types, labels, pure manifest builders, the console dial.
//!
//! What we write is typed; what we read is optional with defaults, because real objects carry far more than we name and
//! other people's objects may look different. Fields that we do not name are dropped when an object is read, so these types
//! are never sent back with PUT: create, merge patch or apply only.
//!
//! This crate starts nothing and retries nothing. The only I/O is [`console::dial`].

pub mod console;
pub mod data_volume;
pub mod golden;
pub mod kinds;
pub mod labels;
pub mod manifest;
pub mod network;
pub mod status;
pub mod vm;

pub use data_volume::{DataVolume, DataVolumeSpec, DataVolumeStatus};
pub use labels::{Identity, Installation};
pub use network::{NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec};
pub use status::{Condition, Phase, VirtualMachineInstanceStatus, VirtualMachineStatus};
pub use vm::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceSpec, VirtualMachineSpec};
