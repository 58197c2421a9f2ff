//! What makes two answers alike: everything but what differs from run to run.

use std::sync::LazyLock;

use http::HeaderMap;
use regex::Regex;
use serde_json::{Map, Value, json};

static UUID: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").unwrap());
static TIME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$").unwrap());
static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(\d+[smhd])+$").unwrap());
static VERSION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(resource version: |current: |in record \(|\()\d+\b").unwrap());
static GENERATED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("^(gen-|seat-|zz-after-|virt-launcher-[a-z0-9.-]*-|virt-launcher-b{44})[a-z0-9]{5}$").unwrap()
});
static HOST: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b(10\.244|127\.\d+)\.\d+\.\d+\b").unwrap());
static CARD: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("^(52:54:00|02:00:00|[0-9a-f]{2}(:[0-9a-f]{2}){2})(:[0-9a-f]{2}){3}$").unwrap()
});
static NODE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b(fake1|ttlab-node)\b").unwrap());
static EVENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^([a-z0-9-]+\.)[0-9a-f]{16}$").unwrap());
static LAUNCHER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("(virt-launcher-[a-z0-9.-]+-)[a-z0-9]{5}\"").unwrap());
static PORT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b(192\.0\.2\.\d+|127\.0\.0\.1):\d+").unwrap());

/// Fields that say when or which, not what.
const DROPPED: [&str; 6] =
    ["resourceVersion", "managedFields", "storageVersionHash", "uid", "resourceVersions", "audit-id"];
/// What this cluster was not built to have in its namespaces.
const STRANGERS: [&str; 1] = ["openshift-service-ca.crt"];

/// The uuids in a text.
pub(crate) fn uuids(text: &str) -> Vec<String> {
    UUID.find_iter(text).map(|m| m.as_str().to_owned()).collect()
}

/// An answer without what differs from run to run.
pub(crate) fn settled(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(settled_map(map)),
        Value::Array(list) => {
            let mut list: Vec<Value> =
                list.iter().filter(|v| !is_stranger(v) && !is_unseen(v)).map(settled).collect();
            if list.iter().all(|v| v["type"].is_string() && v["status"].is_string()) {
                // Conditions: the order in which they came differs from run to run.
                list.sort_by_key(|v| v["type"].as_str().map(ToOwned::to_owned));
                for condition in &mut list {
                    condition.as_object_mut().unwrap().remove("observedGeneration");
                }
            }
            Value::Array(list)
        }
        Value::String(text) => settled_text(text).into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn settled_map(map: &Map<String, Value>) -> Map<String, Value> {
    let mut out = Map::new();
    let is_instance = map.get("kind").is_some_and(|kind| kind == "VirtualMachineInstance");
    for (key, value) in map {
        let empty = value.as_str() == Some("") && key == "continue";
        if DROPPED.contains(&key.as_str()) || empty {
            continue;
        }
        if is_instance && key == "metadata" {
            // Without a status subresource each of its controllers' writes counts.
            let mut value = settled(value);
            value.as_object_mut().unwrap().remove("generation");
            out.insert(key.clone(), value);
            continue;
        }
        let value = match key.as_str() {
            "continue" => json!("<token>"),
            "ca.crt" | "f:ca.crt" => json!("<pem>"),
            "remainingItemCount" | "code" => value.clone(),
            _ => settled(value),
        };
        out.insert(UUID.replace_all(key, "<uuid>").into_owned(), value);
    }
    out
}

/// The stand-in for virt-handler in the recordings set phase Running without noting when.
fn is_unseen(value: &Value) -> bool {
    value["phase"] == "Running" && value["phaseTransitionTimestamp"].is_string()
}

fn is_stranger(value: &Value) -> bool {
    let name = |v: &Value| v["metadata"]["name"].as_str().is_some_and(|n| STRANGERS.contains(&n));
    name(value) || name(&value["object"])
}

fn settled_text(text: &str) -> String {
    if TIME.is_match(text) {
        return "<time>".to_owned();
    }
    if AGE.is_match(text) {
        return "<age>".to_owned();
    }
    let text = UUID.replace_all(text, "<uuid>");
    let text = VERSION.replace_all(&text, "$1<n>");
    let text = PORT.replace_all(&text, "<address>");
    let text = LAUNCHER.replace_all(&text, "$1<suffix>\"");
    let text = HOST.replace_all(&text, "<ip>");
    let text = CARD.replace_all(&text, "<mac>");
    let text = NODE.replace_all(&text, "<node>");
    let text = EVENT.replace(&text, "$1<event>");
    GENERATED.replace(&text, "$1<suffix>").into_owned()
}

/// The lines in which two settled answers differ.
pub(crate) fn difference(recorded: &Value, live: &Value) -> Option<String> {
    let mut lines = Vec::new();
    walk("", recorded, live, &mut lines);
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn walk(path: &str, recorded: &Value, live: &Value, lines: &mut Vec<String>) {
    match (recorded, live) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                match b.get(key) {
                    Some(other) => walk(&format!("{path}.{key}"), value, other, lines),
                    None => lines.push(format!("  {path}.{key}: missing, recorded {}", short(value))),
                }
            }
            for (key, value) in b.iter().filter(|(key, _)| !a.contains_key(*key)) {
                lines.push(format!("  {path}.{key}: not recorded, live {}", short(value)));
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (x, y)) in a.iter().zip(b).enumerate() {
                walk(&format!("{path}[{i}]"), x, y, lines);
            }
        }
        (a, b) if a == b => {}
        (a, b) => lines.push(format!(
            "  {path}: recorded {}\n{:>w$}live {}",
            short(a),
            "",
            short(b),
            w = path.len() + 4
        )),
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.len() > 700 { format!("{}…", text.chars().take(700).collect::<String>()) } else { text }
}

/// The headers that a client acts on.
pub(crate) fn headers(live: &HeaderMap) -> Value {
    let all = |name: &str| {
        let values: Vec<&str> = live.get_all(name).iter().filter_map(|v| v.to_str().ok()).collect();
        if values.is_empty() { Value::Null } else { values.join(" || ").into() }
    };
    json!({
        "content-type": all("content-type"), "warning": all("warning"), "retry-after": all("retry-after"),
        "vary": all("vary"), "cache-control": all("cache-control"),
    })
}

/// The same of a recording.
pub(crate) fn recorded_headers(recorded: &Value) -> Value {
    let mut out = json!({});
    for name in ["content-type", "warning", "retry-after", "vary", "cache-control"] {
        out[name] = recorded.get(name).cloned().unwrap_or_default();
    }
    out
}

/// Of discovery only what this cluster serves is compared: each live entry must read as recorded.
pub(crate) fn discovery_difference(recorded: &Value, live: &Value) -> Option<String> {
    let mut lines = Vec::new();
    entries("", recorded, live, &mut lines);
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn entry_name(entry: &Value) -> Option<&str> {
    entry["name"]
        .as_str()
        .or(entry["metadata"]["name"].as_str())
        .or(entry["resource"].as_str())
        .or(entry["subresource"].as_str())
        .or(entry["groupVersion"].as_str())
        .or(entry["version"].as_str())
}

fn entries(path: &str, recorded: &Value, live: &Value, lines: &mut Vec<String>) {
    match (recorded, live) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in b {
                match a.get(key) {
                    Some(other) => entries(&format!("{path}.{key}"), other, value, lines),
                    None => lines.push(format!("  {path}.{key}: not recorded, live {}", short(value))),
                }
            }
            for key in a.keys().filter(|key| !b.contains_key(*key)) {
                lines.push(format!("  {path}.{key}: missing"));
            }
        }
        (Value::Array(a), Value::Array(b)) if b.iter().any(|e| entry_name(e).is_some()) => {
            for entry in b {
                let name = entry_name(entry);
                match a.iter().find(|other| entry_name(other) == name) {
                    Some(other) => {
                        entries(&format!("{path}[{}]", name.unwrap_or_default()), other, entry, lines)
                    }
                    // A group that the recorded cluster did not have.
                    None if name == Some("k8s.cni.cncf.io") => {}
                    None => lines.push(format!("  {path}[{}]: not recorded", name.unwrap_or_default())),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (x, y)) in a.iter().zip(b).enumerate() {
                entries(&format!("{path}[{i}]"), x, y, lines);
            }
        }
        (a, b) => walk(path, a, b, lines),
    }
}
