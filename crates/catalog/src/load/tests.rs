use std::{
    os::unix::fs::{PermissionsExt as _, symlink},
    time::Duration,
};

use lab_domain::{DiskKind, Runtime};
use lab_guest::Content;
use tempfile::TempDir;

use super::*;

const GOOD: &str = "\
title: {en: Repair, zh: 修复}
summary: {en: A service is down., zh: 服务宕机。}
difficulty: beginner
runtime: vm
life: 45m
extend: {step: 10m, max: 30m}
machines:
  - name: main
    image: debian-12
    disk: golden
    cpus: 2
    memory: 1Gi
    files: files/
    prepare: prepare.sh
steps:
  - title: {en: One, zh: 一}
    text: step1
    hint: hint1
    check: {machine: main, script: check1.sh, timeout: 20s, auto: true}
    solve: solve1.sh
  - title: {en: Two, zh: 二}
    text: step1
    check: {script: check1.sh}
";

/// A directory of labs with one good lab in it.
struct Labs(TempDir);

impl Labs {
    fn new() -> Self {
        let labs = Self(TempDir::new().unwrap());
        labs.add("good");
        labs
    }

    fn add(&self, lab: &str) {
        self.write(lab, "lab.yaml", GOOD);
        for (file, text) in [
            ("prepare.sh", "#!/bin/sh\nexit 0\n"),
            ("check1.sh", "#!/bin/bash\nexit 1\n"),
            ("solve1.sh", "systemctl start x\n"),
            ("step1.en.md", "Do it.\n"),
            ("step1.zh.md", "做吧。\n"),
            ("hint1.en.md", "So.\n"),
            ("hint1.zh.md", "这样。\n"),
            ("files/etc/motd", "hello\n"),
        ] {
            self.write(lab, file, text);
        }
    }

    fn path(&self, lab: &str, file: &str) -> PathBuf {
        self.0.path().join(lab).join(file)
    }

    fn write(&self, lab: &str, file: &str, text: impl AsRef<[u8]>) {
        let path = self.path(lab, file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn replace(&self, lab: &str, from: &str, to: &str) {
        assert!(GOOD.contains(from), "{from}");
        self.write(lab, "lab.yaml", GOOD.replace(from, to));
    }

    fn load(&self) -> Catalog {
        Catalog::load(self.0.path()).unwrap()
    }

    fn good(&self) -> Lab {
        let mut catalog = self.load();
        assert_eq!(catalog.problems, []);
        catalog.labs.remove(&LabId::new("good").unwrap()).unwrap()
    }

    /// The problems of lab `bad`, as a person sees them; the good lab must be served all the same.
    fn problems(&self) -> Vec<String> {
        let catalog = self.load();
        assert_eq!(catalog.labs.keys().map(LabId::as_str).collect::<Vec<_>>(), ["good"]);
        catalog.problems.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn a_good_lab_is_read_whole() {
    let lab = Labs::new().good();
    assert_eq!(lab.title.zh, "修复");
    assert_eq!((lab.life, lab.idle), (Duration::from_secs(2700), Duration::from_secs(1800)));
    assert_eq!(lab.extend.step, Duration::from_secs(600));
    assert_eq!(lab.limits, lab_domain::StartLimits::default());
    assert_eq!((lab.runtime, lab.unsupported.as_deref()), (Runtime::Vm, None));
    let [machine] = lab.machines.as_slice() else { panic!("one machine") };
    assert_eq!((machine.name.as_str(), machine.image.as_str()), ("main", "debian-12"));
    assert_eq!((machine.disk, machine.cpus), (DiskKind::Golden, 2));
    assert_eq!(machine.memory.to_string(), "1024Mi");
    assert_eq!(machine.prepare.as_deref(), Some(b"#!/bin/sh\nexit 0\n".as_slice()));
    let paths: Vec<_> = machine.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["etc", "etc/motd"]);
    let check = lab.step(1).unwrap().check.as_ref().unwrap();
    assert_eq!((check.timeout, check.auto), (Duration::from_secs(20), true));
    assert_eq!(lab.step(1).unwrap().hint.as_ref().unwrap().en, "So.\n");
    let second = lab.step(2).unwrap().check.as_ref().unwrap();
    assert_eq!((second.machine.as_str(), second.auto), ("main", false));
    assert!(lab.step(3).is_none());
}

#[test]
fn modes_of_files_are_kept() {
    let labs = Labs::new();
    let path = labs.path("good", "files/etc/motd");
    fs::set_permissions(path, fs::Permissions::from_mode(0o4751)).unwrap();
    let lab = labs.good();
    assert_eq!(lab.machines[0].files[1].mode, 0o4751);
}

#[test]
fn each_fault_of_lab_yaml_is_one_message_with_its_line() {
    let cases = [
        ("difficulty: beginner", "difficulty: easy", 3, "easy"),
        ("runtime: vm", "runtime: docker", 4, "docker"),
        ("life: 45m", "life: 45 parsecs", 5, "duration"),
        ("life: 45m", "life: 1s", 5, "between"),
        ("life: 45m", "lives: 9", 5, "lives"),
        ("life: 45m", "life: [45m]", 5, ""),
        ("name: main", "name: Main", 8, "Main"),
        ("image: debian-12", "image: ../etc", 9, "image"),
        ("disk: golden", "disk: silver", 10, "silver"),
        ("cpus: 2", "cpus: 99", 11, "99"),
        ("cpus: 2", "cpus: two", 11, "u32"),
        ("memory: 1Gi", "memory: 1G", 12, "1G"),
        ("memory: 1Gi", "memory: 1Mi", 12, "between"),
        ("files: files/", "files: ../good/files", 13, "below"),
        ("files: files/", "files: filez/", 13, "filez"),
        ("prepare: prepare.sh", "prepare: /etc/passwd", 14, "below"),
        ("prepare: prepare.sh", "prepare: nope.sh", 14, "nope.sh"),
        ("zh: 一}", "de: eins}", 16, "de"),
        ("hint: hint1", "hint: hint9", 18, "hint9.en.md"),
        ("timeout: 20s", "timeout: 2h", 19, "between"),
        ("machine: main,", "machine: other,", 19, "other"),
        ("auto: true", "auto: perhaps", 19, ""),
    ];
    for (from, to, line, word) in cases {
        let labs = Labs::new();
        labs.add("bad");
        labs.replace("bad", from, to);
        let problems = labs.problems();
        assert!(
            problems.iter().any(|p| p.starts_with(&format!("bad/lab.yaml:{line}: ")) && p.contains(word)),
            "{to}: {problems:?}"
        );
    }
}

#[test]
fn all_faults_are_told_at_once() {
    let labs = Labs::new();
    labs.add("bad");
    labs.write(
        "bad",
        "lab.yaml",
        GOOD.replace("45m", "x").replace("cpus: 2", "cpus: 0").replace("hint: hint1", "hint: h"),
    );
    assert_eq!(labs.problems().len(), 4, "{:?}", labs.problems());
}

#[test]
fn a_script_with_crlf_is_refused_with_its_line() {
    let labs = Labs::new();
    labs.add("bad");
    labs.write("bad", "check1.sh", "#!/bin/sh\nexit 0\r\n");
    assert_eq!(labs.problems()[0], "bad/check1.sh:2: CRLF line end: save the script with LF");
}

#[test]
fn a_script_among_the_files_with_crlf_is_refused_but_other_files_may_have_it() {
    let labs = Labs::new();
    labs.write("good", "files/etc/dos.txt", "a\r\nb\r\n");
    labs.add("bad");
    labs.write("bad", "files/usr/local/bin/x", "#!/bin/sh\r\n");
    assert_eq!(labs.problems(), ["bad/files/usr/local/bin/x:1: CRLF line end: save the script with LF"]);
}

#[test]
fn a_script_without_interpreter_is_refused() {
    let labs = Labs::new();
    labs.add("bad");
    labs.write("bad", "prepare.sh", "exit 0\n");
    assert!(labs.problems()[0].starts_with("bad/prepare.sh:1: the first line must name the interpreter"));
}

#[test]
fn typed_lines_must_arrive_as_typed() {
    let labs = Labs::new();
    labs.add("bad");
    labs.write("bad", "solve1.sh", format!("ok\n\techo tab\n{}\n", "x".repeat(5000)));
    let problems = labs.problems();
    assert!(problems[0].starts_with("bad/solve1.sh:2: a control character"), "{problems:?}");
    assert!(problems[1].starts_with("bad/solve1.sh:3: a terminal takes"), "{problems:?}");
}

#[test]
fn a_language_that_is_missing_empty_or_not_utf_8_is_refused() {
    let labs = Labs::new();
    labs.add("bad");
    fs::remove_file(labs.path("bad", "step1.zh.md")).unwrap();
    labs.write("bad", "hint1.zh.md", " \n");
    labs.write("bad", "hint1.en.md", b"one\ntwo \xff\n");
    let problems = labs.problems().join("\n");
    assert!(problems.contains("bad/lab.yaml:17: missing file step1.zh.md"), "{problems}");
    assert!(problems.contains("bad/hint1.zh.md: the file is empty"), "{problems}");
    assert!(problems.contains("bad/hint1.en.md:2: not UTF-8"), "{problems}");
}

#[test]
fn a_lab_larger_than_a_secret_is_refused_with_its_size() {
    let labs = Labs::new();
    labs.add("bad");
    // Bytes that do not compress.
    let mut state = 1u32;
    let noise: Vec<u8> = (0..900_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    labs.write("bad", "files/srv/noise", noise);
    let problem = &labs.problems()[0];
    assert!(problem.starts_with("bad/lab.yaml:8: files and prepare script make 12"), "{problem}");
    assert!(problem.contains("1048576"), "{problem}");
}

#[test]
fn links_that_leave_are_refused_and_others_stay_links() {
    let labs = Labs::new();
    labs.add("bad");
    symlink("/etc/passwd", labs.path("bad", "files/etc/a")).unwrap();
    symlink("../../check1.sh", labs.path("bad", "files/etc/b")).unwrap();
    symlink("../../good/check1.sh", labs.path("bad", "c.sh")).unwrap();
    symlink("motd", labs.path("good", "files/etc/issue")).unwrap();
    symlink("check1.sh", labs.path("good", "check2.sh")).unwrap();
    let problems = labs.problems();
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(problems.iter().all(|p| p.contains("leaves")), "{problems:?}");
    let good = labs.load().labs.remove(&LabId::new("good").unwrap()).unwrap();
    assert!(good.machines[0].files.iter().any(|f| f.content == Content::Symlink("motd".to_owned())));
}

#[test]
fn a_script_may_be_a_link_within_the_lab_but_not_to_the_host() {
    let labs = Labs::new();
    fs::rename(labs.path("good", "check1.sh"), labs.path("good", "same.sh")).unwrap();
    symlink("same.sh", labs.path("good", "check1.sh")).unwrap();
    assert!(labs.good().step(1).unwrap().check.is_some());
    labs.add("bad");
    fs::remove_file(labs.path("bad", "check1.sh")).unwrap();
    symlink("/bin/true", labs.path("bad", "check1.sh")).unwrap();
    assert!(
        labs.problems().iter().any(|p| p.contains("check1.sh: the symbolic link")),
        "{:?}",
        labs.problems()
    );
}

#[test]
fn a_directory_without_lab_yaml_or_with_a_bad_name_is_told() {
    let labs = Labs::new();
    labs.write("empty", "README", "x");
    labs.write("Bad_Name", "lab.yaml", GOOD);
    labs.write(".git", "config", "x");
    fs::write(labs.0.path().join("README.md"), "not a lab").unwrap();
    let problems = labs.problems();
    assert!(problems[0].contains("Bad_Name"), "{problems:?}");
    assert_eq!(problems[1], "empty/lab.yaml: missing file");
    assert_eq!(problems.len(), 2);
}

#[test]
fn two_machines_of_one_name_are_refused() {
    let labs = Labs::new();
    labs.add("bad");
    labs.replace("bad", "steps:\n", "  - {name: main, image: debian-12}\nsteps:\n");
    assert_eq!(labs.problems(), ["bad/lab.yaml:15: two machines are named main"]);
}

#[test]
fn what_this_release_cannot_start_is_loaded_with_the_reason() {
    let cases = [
        ("runtime: vm", "runtime: pod", "pod"),
        ("disk: golden", "disk: datavolume", "datavolume"),
        ("steps:\n", "  - {name: second, image: debian-12}\nsteps:\n", "2 machines"),
    ];
    for (from, to, word) in cases {
        let labs = Labs::new();
        labs.replace("good", from, to);
        let lab = labs.good();
        assert!(lab.unsupported.is_some_and(|why| why.contains(word)), "{to}");
    }
}

#[test]
fn the_digest_names_content_and_modes_and_nothing_else() {
    let labs = Labs::new();
    let before = labs.good().digest;
    labs.add("copy");
    let copy = labs.load().labs.remove(&LabId::new("copy").unwrap()).unwrap();
    assert_eq!(copy.digest, before, "another time, another name");

    let motd = labs.path("good", "files/etc/motd");
    fs::set_permissions(&motd, fs::Permissions::from_mode(0o600)).unwrap();
    let with_mode = labs.good().digest;
    assert_ne!(with_mode, before);

    labs.write("good", "check1.sh", "#!/bin/bash\nexit 2\n");
    assert_ne!(labs.good().digest, with_mode);
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    assert!(Catalog::load(Path::new("/nonexistent/labs")).is_err());
}

#[test]
fn the_labs_of_this_repository_are_right() {
    let catalog = Catalog::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../labs")).unwrap();
    assert_eq!(catalog.problems, []);
    assert!(catalog.labs.len() >= 2);
    for lab in catalog.labs.values() {
        assert_eq!(lab.unsupported, None, "{}", lab.id);
        assert!(lab.steps.len() >= 4, "{}", lab.id);
        for step in &lab.steps {
            assert!(step.check.is_some() && step.solve.is_some(), "{} step {}", lab.id, step.n);
            assert!(step.hint.is_some() && step.solution.is_some(), "{} step {}", lab.id, step.n);
        }
    }
}
