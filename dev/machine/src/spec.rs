//! What a machine is made of: plain data, the same for every driver.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Everything that is needed to start one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The identity of the machine: a new start has a new one. It names the state directory.
    pub uid: String,
    /// The namespace, for messages and for the operator's eye only.
    pub namespace: String,
    /// The name: the prompt of a simulated console, the process name of a real guest.
    pub name: String,
    /// What rules of the `sim` driver match on.
    pub labels: BTreeMap<String, String>,
    /// Virtual processors.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The disk that the machine boots from.
    pub root: RootDisk,
    /// Further disks, empty at the start and gone with the machine.
    pub empty_disks: Vec<EmptyDisk>,
    /// What cloud-init reads.
    pub seed: Seed,
}

/// The root disk of a machine.
#[derive(Debug, Clone, PartialEq)]
pub enum RootDisk {
    /// A copy-on-write layer of the machine's own over a base that is only read.
    Overlay {
        /// The base.
        base: PathBuf,
        /// The format of the base.
        format: Format,
        /// How it boots.
        boot: Boot,
    },
    /// The file itself, written in place: it outlives the machine.
    InPlace {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: Format,
        /// How it boots.
        boot: Boot,
    },
    /// No disk at all: the `sim` driver needs none.
    None,
}

/// The format of a disk file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Sector after sector.
    Raw,
    /// QEMU's own.
    Qcow2,
}

impl Format {
    /// The word that QEMU knows it by.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// How a disk boots.
#[derive(Debug, Clone, PartialEq)]
pub enum Boot {
    /// The firmware finds a boot loader on the disk.
    Firmware,
    /// The kernel is handed over beside the disk (much faster under emulation).
    Direct {
        /// An unpacked kernel, or a packed one.
        kernel: PathBuf,
        /// The initial RAM disk.
        initrd: PathBuf,
        /// The kernel command line.
        cmdline: String,
    },
}

/// A disk that is empty at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmptyDisk {
    /// Its name, also its serial number inside the guest.
    pub name: String,
    /// Its size in bytes (sparse).
    pub bytes: u64,
}

/// The NoCloud seed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Seed {
    /// `user-data`.
    pub user_data: String,
    /// `network-config`; without one cloud-init uses DHCP on the first interface.
    pub network_data: Option<String>,
    /// `meta-data`.
    pub meta_data: String,
}
