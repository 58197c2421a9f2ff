//! The start script as a machine has it, but below a directory. The agent's own tests are `guest/tests/agent_test.py`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

/// A root directory for start.sh, which is run with its absolute paths moved below it.
struct Root(TempDir);

impl Root {
    fn new() -> Self {
        let root = Self(TempDir::new().unwrap());
        for directory in ["opt/ttlab", "etc", "bin", "usr/lib", "tmp", "files"] {
            fs::create_dir_all(root.path(directory)).unwrap();
        }
        symlink("usr/lib", root.path("lib")).unwrap();
        fs::set_permissions(root.path("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
        fs::write(root.path("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
        let systemctl = format!("#!/bin/sh\necho \"$@\" >>{}\n", root.path("systemctl.log").display());
        fs::write(root.path("bin/systemctl"), systemctl).unwrap();
        fs::write(root.path("bin/hostname"), "#!/bin/sh\necho main-0123\n").unwrap();
        for tool in ["bin/systemctl", "bin/hostname"] {
            fs::set_permissions(root.path(tool), fs::Permissions::from_mode(0o755)).unwrap();
        }
        root
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    fn read(&self, below: &str) -> String {
        fs::read_to_string(self.path(below)).unwrap_or_default()
    }

    /// Packs `files/` of this root as the lab's files.
    fn pack(&self) {
        let packed = Command::new("tar")
            .args(["-czf", "opt/ttlab/files.tar.gz", "--owner=0", "--group=0", "-C", "files", "."])
            .current_dir(self.0.path())
            .status()
            .unwrap();
        assert!(packed.success());
    }

    fn start(&self) {
        let root = self.0.path().display().to_string();
        let mut script = fs::read_to_string(source("start.sh")).unwrap();
        for absolute in ["/opt/ttlab", "/var/lib/ttlab", "/etc/systemd", "/etc/hosts"] {
            assert!(script.contains(absolute), "{absolute}");
            script = script.replace(absolute, &format!("{root}{absolute}"));
        }
        assert!(script.contains(" -C / "));
        // Not root, who alone may give files away.
        script = script.replace(" -C / ", &format!(" -C {root} --no-same-owner "));
        let path = format!("{root}/bin:/usr/bin:/bin");
        let output = Command::new("/bin/sh").args(["-c", &script]).env("PATH", path).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn the_start_script_lays_files_and_starts_the_agent() {
    let root = Root::new();
    fs::create_dir_all(root.path("files/lib/systemd")).unwrap();
    fs::create_dir_all(root.path("files/tmp")).unwrap();
    fs::write(root.path("files/lib/systemd/tool"), "x").unwrap();
    fs::set_permissions(root.path("files/lib/systemd/tool"), fs::Permissions::from_mode(0o741)).unwrap();
    root.pack();
    root.start();

    assert_eq!(mode(&root.path("usr/lib/systemd/tool")), 0o741);
    assert!(root.path("lib").is_symlink(), "a merged /usr stays merged");
    assert_eq!(mode(&root.path("tmp")), 0o1777, "a directory that was there keeps its mode");
    assert_eq!(root.read("var/lib/ttlab/phase"), "booting");
    assert_eq!(root.read("etc/hosts"), "127.0.0.1 localhost\n127.0.1.1 main-0123\n");
    let units = root.path("etc/systemd/system");
    assert!(units.join("multi-user.target.wants/ttlab-agent.service").is_symlink());
    assert!(units.join("getty.target.wants/serial-getty@ttyS0.service").is_symlink());
    assert_eq!(
        root.read("systemctl.log"),
        "daemon-reload\n--no-block restart ttlab-agent.service serial-getty@ttyS0.service\n"
    );
}

#[test]
fn files_that_cannot_be_laid_are_a_failure_that_the_agent_reports() {
    let root = Root::new();
    fs::write(root.path("opt/ttlab/files.tar.gz"), "no archive").unwrap();
    root.start();
    assert_eq!(root.read("var/lib/ttlab/phase"), "failed");
    assert!(root.read("var/lib/ttlab/prepare.exit").contains("cloud_init"));
    assert!(!root.read("var/lib/ttlab/prepare.log").is_empty());
    assert!(root.read("systemctl.log").contains("ttlab-agent"));
}

#[test]
fn a_second_run_of_the_start_script_changes_nothing() {
    let root = Root::new();
    root.pack();
    root.start();
    fs::write(root.path("var/lib/ttlab/phase"), "ready").unwrap();
    root.start();
    assert_eq!(root.read("var/lib/ttlab/phase"), "ready");
    assert_eq!(root.read("systemctl.log").lines().count(), 2);
}
