use std::{collections::BTreeMap, io::Read as _};

use flate2::read::GzDecoder;
use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::Content;

#[derive(Deserialize)]
struct Document {
    hostname: String,
    write_files: Vec<Entry>,
    runcmd: Vec<Vec<String>>,
}

#[derive(Deserialize)]
struct Entry {
    path: String,
    permissions: String,
    encoding: Option<String>,
    content: String,
}

impl Document {
    /// Read as cloud-init does: as YAML.
    fn of(user_data: &UserData) -> Self {
        let text = user_data.user_data.strip_prefix("#cloud-config\n").unwrap();
        serde_saphyr::from_str(text).unwrap()
    }

    fn entry(&self, path: &str) -> &Entry {
        self.write_files.iter().find(|e| e.path == path).unwrap()
    }

    fn bytes(&self, path: &str) -> Vec<u8> {
        let entry = self.entry(path);
        match entry.encoding.as_deref() {
            None => entry.content.clone().into_bytes(),
            Some("b64") => BASE64.decode(&entry.content).unwrap(),
            Some(other) => panic!("{other}"),
        }
    }

    fn files(&self) -> BTreeMap<String, (u32, Content)> {
        let archive = self.bytes("/opt/ttlab/files.tar.gz");
        let mut tar = tar::Archive::new(GzDecoder::new(archive.as_slice()));
        let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_str().unwrap().trim_end_matches('/').to_owned();
            let kind = entry.header().entry_type();
            let content = if kind.is_dir() {
                Content::Directory
            } else if kind.is_symlink() {
                Content::Symlink(entry.link_name().unwrap().unwrap().to_str().unwrap().to_owned())
            } else {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).unwrap();
                Content::Regular(bytes)
            };
            (path, (entry.header().mode().unwrap(), content))
        };
        tar.entries().unwrap().map(read).collect()
    }
}

struct Names {
    session: SessionId,
    machine: MachineName,
    lab: LabId,
}

impl Names {
    fn new() -> Self {
        Self {
            session: "0198f3a2-7c11-7abc-8def-0123456789ab".parse().unwrap(),
            machine: MachineName::new("main").unwrap(),
            lab: LabId::new("systemd-repair").unwrap(),
        }
    }

    fn machine<'a>(&'a self, files: &'a [File], prepare: Option<&'a [u8]>) -> Machine<'a> {
        Machine {
            session: self.session,
            machine: &self.machine,
            lab: &self.lab,
            token: "00ff",
            prepare_timeout: Duration::from_secs(300),
            files,
            prepare,
        }
    }
}

fn regular(path: &str, mode: u32, bytes: &[u8]) -> File {
    File { path: path.to_owned(), mode, content: Content::Regular(bytes.to_vec()) }
}

#[test]
fn machine_json_is_readable_text_for_root_only() {
    let document = Document::of(&render(&Names::new().machine(&[], None)).unwrap());
    let entry = document.entry("/opt/ttlab/machine.json");
    assert_eq!((entry.permissions.as_str(), entry.encoding.as_deref()), ("0600", None));
    let json: serde_json::Value = serde_json::from_str(&entry.content).unwrap();
    assert_eq!(
        json,
        serde_json::json!({"token": "00ff", "session": "0198f3a2-7c11-7abc-8def-0123456789ab", "machine": "main",
            "lab": "systemd-repair", "prepare_timeout_s": 300.0})
    );
}

#[test]
fn the_last_command_is_the_start_script_and_nothing_follows_it() {
    let document = Document::of(&render(&Names::new().machine(&[], None)).unwrap());
    assert_eq!(document.runcmd, [["/bin/sh", "/opt/ttlab/start.sh"]]);
}

#[test]
fn a_machine_without_prepare_script_gets_one_that_succeeds() {
    let document = Document::of(&render(&Names::new().machine(&[], None)).unwrap());
    assert_eq!(document.bytes("/opt/ttlab/prepare.sh"), b"#!/bin/sh\n");
}

#[test]
fn two_sessions_have_two_host_names() {
    let mut names = Names::new();
    let first = names.machine(&[], None).hostname();
    assert_eq!(first, "main-456789ab");
    assert_eq!(Document::of(&render(&names.machine(&[], None)).unwrap()).hostname, first);
    names.session = SessionId::generate();
    assert_ne!(names.machine(&[], None).hostname(), first);
}

#[test]
fn the_order_of_the_files_does_not_matter() {
    let names = Names::new();
    let (a, b) = (regular("etc/a", 0o644, b"a"), regular("etc/b", 0o600, b"b"));
    let one = render(&names.machine(&[a.clone(), b.clone()], None)).unwrap();
    let other = render(&names.machine(&[b, a], None)).unwrap();
    assert!(one == other);
}

#[test]
fn a_path_that_leaves_the_root_is_refused() {
    let names = Names::new();
    for path in ["../etc/passwd", "etc/../../x", "a\0b"] {
        assert!(render(&names.machine(&[regular(path, 0o644, b"")], None)).is_err(), "{path:?}");
    }
}

#[test]
fn debug_output_shows_no_token() {
    let data = render(&Names::new().machine(&[], None)).unwrap();
    assert!(!format!("{data:?}").contains("00ff"));
}

#[test]
fn the_fixed_part_stays_small() {
    // Each kilobyte costs an emulated machine about 50 ms of parsing.
    assert!(size(&[], None).unwrap() < 13_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_file_survives(
        path in "[a-zA-Z0-9 ._#'\"\u{4e00}-\u{4e20}-]{1,60}(/[a-z\u{e9}:{}\\[\\]-]{1,90}){0,3}",
        mode in 0u32..=0o7777,
        bytes in prop::collection::vec(any::<u8>(), 0..3000),
    ) {
        prop_assume!(path.split('/').all(|part| !matches!(part, "." | "..")));
        let files = [File { path: path.clone(), mode, content: Content::Regular(bytes.clone()) }];
        let document = Document::of(&render(&Names::new().machine(&files, None)).unwrap());
        prop_assert_eq!(document.files(), BTreeMap::from([(path, (mode, Content::Regular(bytes)))]));
    }

    #[test]
    fn any_directory_and_link_survives(mode in 0u32..=0o7777, target in "(\\.\\./|/)?[a-z]{1,9}(/[a-z-]{1,60}){0,3}") {
        let files = [
            File { path: "srv/d".to_owned(), mode, content: Content::Directory },
            File { path: "srv/l".to_owned(), mode: 0o777, content: Content::Symlink(target.clone()) },
        ];
        let document = Document::of(&render(&Names::new().machine(&files, None)).unwrap());
        let expected = BTreeMap::from([
            ("srv/d".to_owned(), (mode, Content::Directory)),
            ("srv/l".to_owned(), (0o777, Content::Symlink(target))),
        ]);
        prop_assert_eq!(document.files(), expected);
    }

    #[test]
    fn any_prepare_script_survives(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let document = Document::of(&render(&Names::new().machine(&[], Some(&bytes))).unwrap());
        prop_assert_eq!(document.bytes("/opt/ttlab/prepare.sh"), bytes);
    }

    #[test]
    fn any_text_survives(text in any::<String>()) {
        let document = Document::of(&render(&Names::new().machine(&[], Some(text.as_bytes()))).unwrap());
        prop_assert_eq!(document.bytes("/opt/ttlab/prepare.sh"), text.into_bytes());
    }

    #[test]
    fn the_size_that_the_catalogue_sees_is_never_too_small(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let files = [regular("x", 0o644, &bytes)];
        let real = render(&Names::new().machine(&files, Some(&bytes))).unwrap().size();
        prop_assert!(size(&files, Some(&bytes)).unwrap() >= real);
    }
}
