//! Replays the recordings of the real cluster, in their order, against a fresh one, and compares the answers.
//!
//! Every recording is either replayed, here or by another test (`elsewhere.txt`), or stands in `out_of_scope.txt` with
//! its reason. What was sent but not recorded
//! is in the recordings' own `SETUP.json`, and in [`extra`] where it is not even there. The recordings are not part of
//! this repository: without them the test says so and passes.

mod compare;
mod extra;
mod session;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use self::session::{Outcome, Session};

/// One recording.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) number: u32,
    /// Its place in the order, which is nearly always its number.
    pub(crate) place: u32,
    pub(crate) name: String,
    pub(crate) content: Value,
}

#[expect(clippy::disallowed_methods, reason = "where the recordings lie is the runner's choice")]
fn directory() -> Option<PathBuf> {
    let chosen = std::env::var("LAB_CONFORMANCE").ok().map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance");
    chosen.or(Some(beside)).filter(|dir| dir.join("SETUP.json").is_file())
}

#[expect(clippy::disallowed_methods, reason = "a developer's choice of a few recordings")]
fn wanted() -> Option<(u32, u32)> {
    let text = std::env::var("LAB_REPLAY").ok()?;
    let (from, to) = text.split_once('-').unwrap_or((&text, &text));
    Some((from.parse().ok()?, to.parse().ok()?))
}

fn recordings(dir: &Path) -> Vec<Recording> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let Some(number) = name.split('-').next().and_then(|n| n.parse().ok()) else { continue };
        if path.extension().is_some_and(|e| e == "json") {
            let content = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            // 417 listened for 75 s while the others ran: what it saw first is what 404 saw.
            let place = if number == 417 { 403 } else { number };
            all.push(Recording { number, place, name, content });
        }
    }
    all.sort_by_key(|recording| (recording.place, recording.number));
    all
}

/// Number -> reason, or the test that replays it.
fn listed(file: &'static str) -> BTreeMap<u32, &'static str> {
    let lines = file.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    let parse = |line: &'static str| {
        let (number, reason) = line.split_once(' ').unwrap_or((line, ""));
        assert!(!reason.trim().is_empty(), "{line}: a reason is missing");
        (number.parse().unwrap(), reason)
    };
    lines.map(parse).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn recordings_of_the_real_cluster_are_answered_alike() {
    let Some(dir) = directory() else {
        println!("skipped: no recordings beside this repository (LAB_CONFORMANCE names another place)");
        return;
    };
    let setup: Vec<Value> = serde_json::from_slice(&std::fs::read(dir.join("SETUP.json")).unwrap()).unwrap();
    let excluded = listed(include_str!("out_of_scope.txt"));
    let elsewhere = listed(include_str!("elsewhere.txt"));
    let wanted = wanted();
    let mut session = Session::start(setup).await;
    let (mut same, mut other, mut left_out, mut away) = (0, Vec::new(), 0, 0);
    for recording in recordings(&dir) {
        let chosen = wanted.is_none_or(|(from, to)| (from..=to).contains(&recording.number));
        let is_away = elsewhere.contains_key(&recording.number);
        if excluded.contains_key(&recording.number) || is_away {
            *(if is_away { &mut away } else { &mut left_out }) += 1;
            if chosen {
                session.only_send(&recording).await;
            }
            continue;
        }
        if !chosen {
            continue;
        }
        match session.replay(&recording).await {
            Outcome::Same => same += 1,
            Outcome::Different(how) => other.push(format!("{}\n{how}", recording.name)),
        }
    }
    println!(
        "{same} recordings are answered alike, {} differ, {away} are replayed by other tests, {left_out} are out of scope",
        other.len()
    );
    assert!(
        other.is_empty(),
        "{} recordings are answered differently:\n\n{}",
        other.len(),
        other.join("\n\n")
    );
}
