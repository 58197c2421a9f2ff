//! Real guests, the smallest that there can be: a kernel and one shell, up in seconds also under emulation.
//!
//! The kernel is that of a built guest image (or `LAB_TEST_KERNEL`), the initial RAM disk is a static busybox. Where one
//! of them, or QEMU, is missing, the tests say so and pass: a driver cannot be tried without a guest.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use lab_machine::qemu::Qemu;
use lab_machine::{Attached, Boot, Driver, EmptyDisk, End, Format, Machine, RootDisk, Run, Seed, Spec};
use tokio_util::task::TaskTracker;

/// One guest at a time: two of them on two cores are slower than one after the other.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
const LIMIT: Duration = Duration::from_secs(90);

const INIT: &str = r#"#!/bin/sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
echo guest-is-up
while true; do setsid sh -c 'exec sh -i </dev/ttyS0 >/dev/ttyS0 2>&1'; done
"#;

#[expect(clippy::disallowed_methods, reason = "where a built image lies is the runner's choice")]
fn kernel() -> Option<PathBuf> {
    if let Ok(named) = std::env::var("LAB_TEST_KERNEL") {
        return Some(PathBuf::from(named));
    }
    let cache = std::env::var("XDG_CACHE_HOME").map(PathBuf::from).ok();
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var("HOME").ok()?).join(".cache")))?;
    let images = std::fs::read_dir(cache.join("ttlab/images")).ok()?;
    images.flatten().map(|entry| entry.path().join("vmlinux")).find(|kernel| kernel.is_file())
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// The initial RAM disk, made once.
fn initrd() -> Option<&'static Path> {
    static MADE: OnceLock<Option<tempfile::TempDir>> = OnceLock::new();
    let directory = MADE.get_or_init(|| {
        let busybox =
            ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).is_file())?;
        let directory = tempfile::tempdir().ok()?;
        let root = directory.path().join("root");
        for name in ["bin", "proc", "sys", "dev"] {
            std::fs::create_dir_all(root.join(name)).ok()?;
        }
        std::fs::copy(busybox, root.join("bin/busybox")).ok()?;
        std::os::unix::fs::symlink("busybox", root.join("bin/sh")).ok()?;
        std::fs::write(root.join("init"), INIT).ok()?;
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(root.join("init"), std::fs::Permissions::from_mode(0o755)).ok()?;
        let pack = "find . | cpio --quiet -o -H newc > ../initrd.img";
        let packed = Command::new("sh").args(["-c", pack]).current_dir(&root).status().ok()?;
        packed.success().then_some(directory)
    });
    directory.as_ref().map(tempfile::TempDir::path)
}

struct Bench {
    state: tempfile::TempDir,
    kernel: PathBuf,
    initrd: PathBuf,
}

fn bench() -> Option<Bench> {
    let tools = ["qemu-system-x86_64", "qemu-img", "xorrisofs", "cpio"].into_iter().all(has);
    let found = kernel().filter(|_| tools).zip(initrd());
    let Some((kernel, made)) = found else {
        println!("skipped: no QEMU, no kernel of a built guest image, or no static busybox here");
        return None;
    };
    let state = tempfile::tempdir().unwrap();
    Some(Bench { state, kernel, initrd: made.join("initrd.img") })
}

impl Bench {
    fn driver(&self) -> Driver {
        Driver::Qemu(Qemu::new(self.state.path(), TaskTracker::new()).unwrap())
    }

    fn spec(&self, uid: u32) -> Spec {
        // A state directory deep enough that a socket's path would not fit its address.
        let base = self.state.path().join("base.raw");
        let file = std::fs::File::create(&base).unwrap();
        file.set_len(1 << 20).unwrap();
        Spec {
            uid: format!("00000000-0000-4000-8000-{uid:012}"),
            namespace: "ttlab".into(),
            name: format!("lab-{uid}"),
            labels: std::collections::BTreeMap::new(),
            cpus: 1,
            memory_mib: 128,
            root: RootDisk::Overlay {
                base,
                format: Format::Raw,
                boot: Boot::Direct {
                    kernel: self.kernel.clone(),
                    initrd: self.initrd.clone(),
                    cmdline: "console=ttyS0 quiet panic=-1".into(),
                },
            },
            empty_disks: vec![EmptyDisk { name: "spare".into(), bytes: 1 << 20 }],
            seed: Seed { user_data: "#cloud-config\n".into(), network_data: None, meta_data: "{}".into() },
        }
    }

    fn processes(&self) -> usize {
        let mine = self.state.path().join("machines");
        let pids = std::fs::read_dir(mine).into_iter().flatten().flatten().filter_map(|entry| {
            let pid = std::fs::read_to_string(entry.path().join("qemu.pid")).ok()?;
            let line = std::fs::read(format!("/proc/{}/cmdline", pid.trim())).ok()?;
            line.windows(4).any(|part| part == b"qemu").then_some(())
        });
        pids.count()
    }
}

impl Drop for Bench {
    /// A test that failed half-way must leave no guest behind.
    fn drop(&mut self) {
        for entry in std::fs::read_dir(self.state.path().join("machines")).into_iter().flatten().flatten() {
            let uid = entry.file_name().to_string_lossy().into_owned();
            let Ok(pid) = std::fs::read_to_string(entry.path().join("qemu.pid")) else { continue };
            let line = std::fs::read(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default();
            if line.split(|byte| *byte == 0).any(|argument| argument == uid.as_bytes()) {
                let _gone = Command::new("kill").args(["-9", pid.trim()]).status();
            }
        }
    }
}

async fn read_until(console: &mut Attached, wanted: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(wanted) {
        let bytes = tokio::time::timeout(LIMIT, console.recv()).await;
        let bytes = bytes.unwrap_or_else(|_| panic!("no {wanted:?} in {seen:?}"));
        let bytes = bytes.unwrap_or_else(|| panic!("the line ended before {wanted:?}: {seen:?}"));
        seen.push_str(&String::from_utf8_lossy(&bytes));
    }
    seen
}

async fn type_line(console: &Attached, line: &str) {
    console.send(Bytes::from(format!("{line}\n"))).await.unwrap();
}

async fn up(driver: &Driver, bench: &Bench, uid: u32) -> (Machine, Attached) {
    let machine = driver.start(bench.spec(uid)).await.unwrap();
    let mut console = machine.console().attach().unwrap();
    read_until(&mut console, "guest-is-up").await;
    (machine, console)
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_is_typed_into_rebooted_and_powers_itself_off() {
    let Some(bench) = bench() else { return };
    let _alone = ALONE.lock().await;
    let driver = bench.driver();
    let (machine, mut console) = up(&driver, &bench, 1).await;
    assert_eq!(machine.status().run, Run::Running);
    assert!(machine.address().is_loopback() && machine.address().octets()[1] != 0);
    type_line(&console, "echo $((6*7))-is-the-answer").await;
    read_until(&mut console, "\n42-is-the-answer").await;
    type_line(&console, "reboot -f").await;
    read_until(&mut console, "guest-is-up").await;
    // One reboot may be more than one reset: the kernel tries several ways.
    assert!(
        machine.status().resets >= 1 && machine.status().run == Run::Running,
        "the machine stays over a reboot"
    );
    type_line(&console, "poweroff -f").await;
    let end = tokio::time::timeout(LIMIT, machine.ended()).await.unwrap();
    assert_eq!(end, End::Shutdown);
    while console.recv().await.is_some() {}
    assert_eq!(bench.processes(), 0);
    driver.remove(machine.uid()).await.unwrap();
    assert_eq!(std::fs::read_dir(bench.state.path().join("machines")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_survives_our_process_and_is_found_again() {
    let Some(bench) = bench() else { return };
    let _alone = ALONE.lock().await;
    let first = bench.driver();
    let (machine, mut console) = up(&first, &bench, 2).await;
    type_line(&console, "name=kept; echo it-was-$name").await;
    read_until(&mut console, "\nit-was-kept").await;
    let (uid, address) = (machine.uid().to_owned(), machine.address());
    drop((first, machine, console));
    let second = bench.driver();
    let found = second.reattach().await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].uid(), found[0].address(), found[0].status().run), (&*uid, address, Run::Running));
    let mut console = found[0].console().attach().unwrap();
    type_line(&console, "echo it-is-$name").await;
    read_until(&mut console, "\nit-is-kept").await;
    // Off while nobody watches: the next process still knows that it was no crash.
    type_line(&console, "(sleep 2; poweroff -f) & echo going").await;
    read_until(&mut console, "\ngoing").await;
    drop((second, found, console));
    // The emulator itself logs the line: the only witness.
    let log = bench.state.path().join("machines").join(&uid).join("serial.log");
    let until = tokio::time::Instant::now() + LIMIT;
    while !std::fs::read_to_string(&log).unwrap_or_default().contains("Power down") {
        assert!(tokio::time::Instant::now() < until, "the guest never goes down");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let third = bench.driver();
    let found = third.reattach().await.unwrap();
    assert_eq!(found[0].status().run, Run::Ended(End::Shutdown));
    assert_eq!(bench.processes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn deaf_guest_is_shot_after_its_grace_and_a_shot_one_has_crashed() {
    let Some(bench) = bench() else { return };
    let _alone = ALONE.lock().await;
    let driver = bench.driver();
    // This guest knows no power button.
    let (deaf, _console) = up(&driver, &bench, 3).await;
    deaf.power_down(Duration::from_secs(2)).await;
    assert_eq!(tokio::time::timeout(LIMIT, deaf.ended()).await.unwrap(), End::Killed);
    let (shot, _console) = up(&driver, &bench, 4).await;
    let pid = std::fs::read_to_string(bench.state.path().join("machines").join(shot.uid()).join("qemu.pid"))
        .unwrap();
    assert!(Command::new("kill").args(["-9", pid.trim()]).status().unwrap().success());
    assert_eq!(tokio::time::timeout(LIMIT, shot.ended()).await.unwrap(), End::Crashed);
    for machine in [deaf, shot] {
        driver.remove(machine.uid()).await.unwrap();
    }
    assert_eq!(bench.processes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_a_cluster_that_is_taken_down_is_ended() {
    let Some(bench) = bench() else { return };
    let _alone = ALONE.lock().await;
    let driver = bench.driver();
    let machine = driver.start(bench.spec(5)).await.unwrap();
    drop((driver, machine));
    assert_eq!(bench.processes(), 1);
    assert_eq!(Qemu::end_all(bench.state.path()).await.unwrap(), 1);
    assert_eq!(bench.processes(), 0);
}
