//! The recordings of the series 1000 to 1500, made comparable: what differs from run to run is taken out.
//!
//! A timeline becomes one story per kind of object: the states that a watcher saw, in order, without repeats. How the
//! stories of VM, instance and pod are interleaved differs from run to run, also on the real thing.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

#[expect(clippy::disallowed_methods, reason = "where the recordings lie is the runner's choice")]
fn directory() -> Option<PathBuf> {
    let chosen = std::env::var("LAB_CONFORMANCE").ok().map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance");
    chosen.or(Some(beside)).filter(|dir| dir.join("SETUP.json").is_file())
}

/// One recording; without the recordings the test that asks says so and passes.
pub(super) fn read(name: &str) -> Option<Value> {
    let Some(directory) = directory() else {
        println!("skipped: no recordings beside this repository (LAB_CONFORMANCE names another place)");
        return None;
    };
    let bytes = std::fs::read(directory.join(format!("{name}.json"))).unwrap();
    Some(serde_json::from_slice(&bytes).unwrap())
}

/// The story of one object in a recorded timeline, from the entry after `from` (an ACTION's text) on.
pub(super) fn story(timeline: &Value, kind: &str, name: &str, from: &str) -> Vec<String> {
    let entries = timeline["timeline"].as_array().unwrap();
    let start =
        entries.iter().position(|entry| entry["data"].as_str().is_some_and(|text| text.starts_with(from)));
    let own = entries[start.unwrap_or(0)..].iter().filter_map(|entry| {
        let (of, event) = entry["what"].as_str()?.split_once(' ')?;
        (of == kind && entry["data"]["name"].as_str()?.starts_with(name)).then(|| (event, &entry["data"]))
    });
    tell(own)
}

/// The story of one object as a watch told it: pairs of event and object.
pub(super) fn live_story(events: &[(String, Value)], kind: &str, name: &str) -> Vec<String> {
    let flat: Vec<(String, Value)> = events
        .iter()
        .filter(|(_, object)| {
            object["kind"] == kind && object["metadata"]["name"].as_str().is_some_and(|n| n.starts_with(name))
        })
        .map(|(event, object)| {
            let meta = &object["metadata"];
            let entry = json!({
                "status": object["status"], "finalizers": meta["finalizers"],
                "deletionTimestamp": meta["deletionTimestamp"], "nodeName": object["spec"]["nodeName"],
            });
            (event.clone(), entry)
        })
        .collect();
    tell(flat.iter().map(|(event, entry)| (event.as_str(), entry)))
}

fn tell<'a>(entries: impl Iterator<Item = (&'a str, &'a Value)>) -> Vec<String> {
    let mut story: Vec<String> = Vec::new();
    for (event, entry) in entries {
        let line = if event == "DELETED" { "gone".to_owned() } else { state(entry) };
        if story.last() != Some(&line) {
            story.push(line);
        }
    }
    story
}

/// What of a state counts.
fn state(entry: &Value) -> String {
    let status = &entry["status"];
    let mut words = Vec::new();
    for key in ["printableStatus", "phase"] {
        if let Some(word) = status[key].as_str() {
            words.push(word.to_owned());
        }
    }
    for condition in status["conditions"].as_array().into_iter().flatten() {
        let kind = condition["type"].as_str().unwrap_or_default();
        // A kubelet's conditions come in one write here and in several there.
        if matches!(kind, "Initialized" | "ContainersReady" | "kubevirt.io/virtual-machine-unpaused") {
            continue;
        }
        let reason = condition["reason"].as_str().filter(|reason| !reason.is_empty());
        words.push(format!("{kind}={}", reason.or(condition["status"].as_str()).unwrap_or_default()));
    }
    let first = usize::from(!words.is_empty());
    words[first..].sort();
    for flag in ["created", "ready"] {
        if status[flag] == true {
            words.push(flag.to_owned());
        }
    }
    if let Some(finalizers) = entry["finalizers"].as_array().filter(|list| !list.is_empty()) {
        words.push(format!("held-by-{}", finalizers.len()));
    }
    if entry["deletionTimestamp"].is_string() {
        words.push("deleting".to_owned());
    }
    words.join(" ")
}

/// An object without what is new in each run: times, uids, versions, random names.
pub(super) fn plain(object: &Value, names: &[(&str, &str)]) -> Value {
    let mut object = object.clone();
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.retain(|key, _| {
            !matches!(key.as_str(), "managedFields" | "resourceVersion" | "uid" | "creationTimestamp")
        });
    }
    scrub(&mut object, names);
    object
}

fn scrub(value: &mut Value, names: &[(&str, &str)]) {
    match value {
        Value::String(text) => {
            for (from, to) in names {
                *text = text.replace(from, to);
            }
            *text = scrub_text(text);
        }
        Value::Array(list) => list.iter_mut().for_each(|item| scrub(item, names)),
        Value::Object(map) => {
            // uids are also keys (activePods).
            let old = std::mem::take(map);
            for (key, mut item) in old {
                scrub(&mut item, names);
                map.insert(scrub_text(&key), item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn scrub_text(text: &str) -> String {
    let uuid = regex::Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").unwrap();
    let time = regex::Regex::new(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$").unwrap();
    let pod = regex::Regex::new(r"(virt-launcher-[a-z0-9-]+)-[a-z0-9]{5}\b").unwrap();
    let text = uuid.replace_all(text, "<uid>");
    let text = time.replace(&text, "<time>");
    pod.replace_all(&text, "$1-<any>").into_owned()
}

/// Where two objects differ, for a message that can be read.
pub(super) fn differences(recorded: &Value, live: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(recorded, live, "", &mut found);
    found
}

fn compare(recorded: &Value, live: &Value, at: &str, found: &mut Vec<String>) {
    match (recorded, live) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                let (one, two) = (a.get(key), b.get(key));
                match (one, two) {
                    (Some(one), Some(two)) => compare(one, two, &format!("{at}.{key}"), found),
                    (one, two) => found.push(format!("{at}.{key}: recorded {one:?}, live {two:?}")),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (one, two)) in a.iter().zip(b).enumerate() {
                compare(one, two, &format!("{at}[{index}]"), found);
            }
        }
        (one, two) if one != two => found.push(format!("{at}: recorded {one}, live {two}")),
        _ => {}
    }
}
