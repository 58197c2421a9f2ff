//! The command line of QEMU: a pure function of what the machine is.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::Path;

use crate::address::AGENT_PORT;
use crate::spec::{Boot, EmptyDisk, Format, RootDisk, Spec};

/// Files of a machine, in its directory, which is QEMU's working directory when it opens them.
pub(super) const OVERLAY: &str = "disk.qcow2";
pub(super) const SEED: &str = "seed.iso";
pub(super) const CONTROL: &str = "qmp.sock";
pub(super) const SERIAL: &str = "serial.sock";
pub(super) const SERIAL_LOG: &str = "serial.log";
pub(super) const PID: &str = "qemu.pid";

/// How guests are run on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accelerator {
    /// Hardware virtualisation.
    Kvm,
    /// Emulation.
    Tcg,
}

impl Accelerator {
    /// Decided by what the processor says: `/dev/kvm` may be there without the hardware behind it.
    pub(super) fn of_this_host() -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self::of(&info, Path::new("/dev/kvm").exists())
    }

    fn of(cpuinfo: &str, device: bool) -> Self {
        let flags = cpuinfo.lines().filter(|line| line.starts_with("flags"));
        let can = flags.flat_map(str::split_whitespace).any(|flag| flag == "vmx" || flag == "svm");
        if can && device { Self::Kvm } else { Self::Tcg }
    }
}

/// The name of an empty disk's file.
pub(super) fn empty_disk(index: usize) -> String {
    format!("empty-{index}.raw")
}

/// All arguments.
pub(super) fn arguments(
    spec: &Spec,
    directory: &Path,
    address: Ipv4Addr,
    mac: &str,
    accelerator: Accelerator,
) -> Vec<OsString> {
    let mut line = Line::default();
    line.flag("-nodefaults").flag("-no-user-config").flag("-daemonize").flag("-no-shutdown");
    line.pair("-display", "none").pair("-machine", "pc").pair("-rtc", "base=utc");
    line.pair("-name", &format!("guest={}", spec.name.replace(',', ",,")));
    // The identity in the command line: a process is only ever shot when this is in it.
    line.pair("-uuid", &spec.uid);
    line.pair("-smp", &spec.cpus.max(1).to_string()).pair("-m", &format!("{}M", spec.memory_mib.max(16)));
    match accelerator {
        Accelerator::Kvm => line.pair("-accel", "kvm").pair("-cpu", "host"),
        // The translation cache counts as memory of the host: half of it does for a small guest.
        Accelerator::Tcg => {
            let cache = if spec.memory_mib < 512 { 128 } else { 256 };
            line.pair("-accel", &format!("tcg,thread=multi,tb-size={cache}")).pair("-cpu", "max")
        }
    };
    // By its whole path: so a process list tells whose state a guest belongs to.
    line.pair_os("-pidfile", directory.join(PID).into());
    line.pair("-qmp", &format!("unix:{CONTROL},server=on,wait=off"));
    line.pair(
        "-chardev",
        &format!("socket,id=serial0,path={SERIAL},server=on,wait=off,logfile={SERIAL_LOG},logappend=on"),
    );
    line.pair("-serial", "chardev:serial0");
    root(&mut line, &spec.root);
    line.disk("seed", &format!("file={SEED},format=raw,readonly=on"), "");
    for (index, EmptyDisk { name, .. }) in spec.empty_disks.iter().enumerate() {
        let file = format!("file={},format=raw,cache=unsafe,discard=unmap", empty_disk(index));
        // virtio has room for 20 characters.
        let serial: String = name.chars().filter(|c| *c != ',').take(20).collect();
        line.disk(&format!("empty{index}"), &file, &format!(",serial={serial}"));
    }
    line.pair(
        "-netdev",
        &format!("user,id=net0,restrict=on,hostfwd=tcp:{address}:{AGENT_PORT}-:{AGENT_PORT}"),
    );
    line.pair("-device", &format!("virtio-net-pci,netdev=net0,mac={mac},romfile="));
    line.pair("-device", "virtio-rng-pci");
    line.0
}

fn root(line: &mut Line, root: &RootDisk) {
    let boot = match root {
        RootDisk::None => return,
        RootDisk::Overlay { boot, .. } => {
            // The layer is thrown away with the machine: what it says about flushing costs nothing to ignore.
            let file = format!("file={OVERLAY},format=qcow2,cache=unsafe,discard=unmap");
            line.disk("root", &file, index(boot));
            boot
        }
        RootDisk::InPlace { path, format, boot } => {
            let file = format!("file={},format={},discard=unmap", escaped(path), format.as_str());
            line.disk("root", &file, index(boot));
            boot
        }
    };
    if let Boot::Direct { kernel, initrd, cmdline } = boot {
        line.pair_os("-kernel", kernel.into()).pair_os("-initrd", initrd.into()).pair("-append", cmdline);
    }
}

/// The firmware boots the root disk first; a kernel that is handed over takes that place itself.
fn index(boot: &Boot) -> &'static str {
    match boot {
        Boot::Firmware => ",bootindex=0",
        Boot::Direct { .. } => "",
    }
}

/// A path inside an option: commas are doubled.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// The arguments of `qemu-img` that make the layer over a base.
pub(super) fn overlay(base: &Path, format: Format) -> Vec<OsString> {
    let mut line = Line::default();
    line.flag("create").flag("-q").pair("-f", "qcow2").pair("-F", format.as_str());
    line.pair_os("-b", base.into()).flag(OVERLAY);
    line.0
}

/// Arguments in the making.
#[derive(Debug, Default)]
struct Line(Vec<OsString>);

impl Line {
    fn flag(&mut self, flag: &str) -> &mut Self {
        self.0.push(flag.into());
        self
    }
    fn pair(&mut self, flag: &str, value: &str) -> &mut Self {
        self.flag(flag).flag(value)
    }
    fn pair_os(&mut self, flag: &str, value: OsString) -> &mut Self {
        self.flag(flag).0.push(value);
        self
    }
    fn disk(&mut self, id: &str, drive: &str, device: &str) -> &mut Self {
        self.pair("-drive", &format!("if=none,id={id},{drive}"));
        self.pair("-device", &format!("virtio-blk-pci,drive={id}{device}"))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::spec::Seed;

    fn spec(root: RootDisk) -> Spec {
        Spec {
            uid: "0f0e0d0c-0000-4000-8000-000000000001".into(),
            namespace: "ttlab".into(),
            name: "lab-a,b".into(),
            labels: std::collections::BTreeMap::new(),
            cpus: 2,
            memory_mib: 512,
            root,
            empty_disks: vec![EmptyDisk { name: "rescue".into(), bytes: 1 << 20 }],
            seed: Seed::default(),
        }
    }

    fn text(spec: &Spec) -> String {
        let address = Ipv4Addr::new(127, 9, 8, 7);
        let all = arguments(spec, Path::new("/s/m"), address, "52:54:00:09:08:07", Accelerator::Tcg);
        all.iter().map(|a| a.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn guest_cannot_reach_the_host_and_keeps_its_machine_over_a_reboot() {
        let line = text(&spec(RootDisk::None));
        assert!(line.contains("restrict=on,hostfwd=tcp:127.9.8.7:8899-:8899"), "{line}");
        assert!(!line.contains("-no-reboot"), "{line}");
        assert!(line.contains("guest=lab-a,,b"), "{line}");
        assert!(line.contains("serial=rescue"), "{line}");
        assert!(
            line.contains("-pidfile /s/m/qemu.pid"),
            "a sweep finds guests by their state directory: {line}"
        );
    }

    #[test]
    fn image_with_a_kernel_beside_it_boots_directly() {
        let boot = Boot::Direct {
            kernel: PathBuf::from("/s/vmlinux"),
            initrd: PathBuf::from("/s/initrd.img"),
            cmdline: "console=ttyS0 root=/dev/vda".into(),
        };
        let base = PathBuf::from("/s/disk.qcow2");
        let direct = text(&spec(RootDisk::Overlay { base: base.clone(), format: Format::Qcow2, boot }));
        assert!(
            direct.contains("-kernel /s/vmlinux -initrd /s/initrd.img -append console=ttyS0 root=/dev/vda")
        );
        let firmware = text(&spec(RootDisk::Overlay { base, format: Format::Raw, boot: Boot::Firmware }));
        assert!(!firmware.contains("-kernel") && firmware.contains("bootindex=0"));
    }

    #[test]
    fn hardware_is_used_only_where_the_processor_has_it() {
        assert_eq!(Accelerator::of("flags\t\t: fpu vmx sse\n", true), Accelerator::Kvm);
        assert_eq!(Accelerator::of("flags\t\t: fpu sse vmx_other\n", true), Accelerator::Tcg);
        assert_eq!(Accelerator::of("flags : svm\n", false), Accelerator::Tcg);
    }
}
