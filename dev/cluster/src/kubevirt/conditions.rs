//! `status.conditions` the way KubeVirt writes them.

use serde_json::{Value, json};

use crate::object;

/// One condition to be set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Condition<'a> {
    pub(super) kind: &'a str,
    pub(super) status: bool,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
    /// virt-controller writes the time of its look into some conditions and null into others.
    pub(super) probed: bool,
}

impl<'a> Condition<'a> {
    /// A condition that is not met, found by a look.
    pub(super) fn not_ready(reason: &'a str, message: &'a str) -> Self {
        Self { kind: "Ready", status: false, reason, message, probed: true }
    }
    /// A condition that is not met.
    pub(super) fn failed(kind: &'a str, reason: &'a str, message: &'a str) -> Self {
        Self { kind, status: false, reason, message, probed: false }
    }

    /// As it is written.
    pub(super) fn to_value(self) -> Value {
        let now = object::now();
        let status = if self.status { "True" } else { "False" };
        let probe = if self.probed { json!(now) } else { Value::Null };
        let mut value =
            json!({"type": self.kind, "status": status, "lastProbeTime": probe, "lastTransitionTime": now});
        if !self.reason.is_empty() {
            value["reason"] = self.reason.into();
        }
        if !self.message.is_empty() {
            value["message"] = self.message.into();
        }
        value
    }
}

/// The condition of that type.
pub(super) fn find<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status.get("conditions")?.as_array()?.iter().find(|c| text(c, "type") == kind)
}

/// Whether the condition is there and False for that reason.
pub(super) fn is_false_because(status: &Value, kind: &str, reason: &str) -> bool {
    find(status, kind).is_some_and(|c| text(c, "status") == "False" && text(c, "reason") == reason)
}

/// Whether the condition is there and True.
pub(super) fn is_true(status: &Value, kind: &str) -> bool {
    find(status, kind).is_some_and(|c| text(c, "status") == "True")
}

/// Sets a condition. One that says the same already keeps its times, so that nothing is written.
pub(super) fn set(status: &mut Value, condition: Condition<'_>) {
    let fresh = condition.to_value();
    put(status, fresh);
}

/// Sets a whole condition, as it is.
pub(super) fn put(status: &mut Value, fresh: Value) {
    let list = list_mut(status);
    let kind = text(&fresh, "type").to_owned();
    match list.iter_mut().find(|c| text(c, "type") == kind) {
        Some(old) if says_the_same(old, &fresh) => {}
        Some(old) => *old = fresh,
        None => list.push(fresh),
    }
}

/// Sets a whole condition; a new one comes first, as the API server's merge of such lists does.
pub(super) fn put_first(status: &mut Value, fresh: Value) {
    if find(status, text(&fresh, "type")).is_some() {
        put(status, fresh);
    } else {
        list_mut(status).insert(0, fresh);
    }
}

/// Takes a condition away.
pub(super) fn remove(status: &mut Value, kind: &str) {
    let Some(list) = status.get_mut("conditions").and_then(Value::as_array_mut) else { return };
    list.retain(|c| text(c, "type") != kind);
    if list.is_empty()
        && let Some(map) = status.as_object_mut()
    {
        map.remove("conditions");
    }
}

fn says_the_same(old: &Value, fresh: &Value) -> bool {
    ["status", "reason", "message"].into_iter().all(|key| text(old, key) == text(fresh, key))
}

fn list_mut(status: &mut Value) -> &mut Vec<Value> {
    if !status.get("conditions").is_some_and(Value::is_array) {
        status["conditions"] = json!([]);
    }
    status["conditions"].as_array_mut().expect("it was just made a list")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
