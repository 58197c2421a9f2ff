//! Validation of objects, with the texts of the real server.
//!
//! Metadata is checked for every kind; of the bodies only what our own calls could get wrong. VirtualMachines are the
//! business of the admission hooks.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;
use serde_json::{Map, Value};

use crate::object;
use crate::resource::{self, NAMESPACES, Resource, SECRETS};
use crate::status::{Cause, Status, quoted};

const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];
/// What a Secret may weigh.
pub(crate) const SECRET_BYTES: usize = 1_048_576;

fn full(pattern: &str) -> Regex {
    Regex::new(&format!("^(?:{pattern})$")).expect("the patterns of this file are well formed")
}
static IS_SUBDOMAIN: LazyLock<Regex> = LazyLock::new(|| full(SUBDOMAIN));
static IS_LABEL: LazyLock<Regex> = LazyLock::new(|| full(LABEL));
static IS_QUALIFIED: LazyLock<Regex> = LazyLock::new(|| full(QUALIFIED));
static IS_LABEL_VALUE: LazyLock<Regex> = LazyLock::new(|| full(LABEL_VALUE));

/// Checks a new object.
pub(crate) fn on_create(resource: &Resource, object: &Value) -> Result<(), Status> {
    let mut causes = Vec::new();
    name(resource, object, &mut causes);
    metadata(resource, object, &mut causes);
    body(resource, object, &mut causes);
    refuse(resource, object, causes)
}

/// Checks the next state of an object against the one before.
pub(crate) fn on_update(resource: &Resource, old: &Value, next: &Value) -> Result<(), Status> {
    let mut causes = Vec::new();
    for _ in 0..2 {
        // The real server checks this twice, and says it twice.
        new_finalizers(old, next, &mut causes);
    }
    metadata(resource, next, &mut causes);
    immutable(resource, old, next, &mut causes);
    body(resource, next, &mut causes);
    refuse(resource, next, causes)
}

fn refuse(resource: &Resource, object: &Value, causes: Vec<Cause>) -> Result<(), Status> {
    if causes.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(resource.group, resource.kind, object::name(object), causes))
    }
}

fn name(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    let name = object::name(object);
    if name.is_empty() {
        causes.push(Cause::required("name or generateName is required", "metadata.name"));
        return;
    }
    if resource.group == resource::ROLES.group {
        let bad = if name == "." || name == ".." {
            Some(format!("may not be '{name}'"))
        } else {
            ['/', '%'].iter().find(|c| name.contains(**c)).map(|c| format!("may not contain '{c}'"))
        };
        causes.extend(bad.map(|text| Cause::invalid_value(&quoted(name), &text, "metadata.name")));
        return;
    }
    let (limit, fits) = if *resource == NAMESPACES || *resource == resource::SERVICES {
        (63, IS_LABEL.is_match(name))
    } else {
        (253, IS_SUBDOMAIN.is_match(name))
    };
    if name.len() > limit {
        let text = format!("must be no more than {limit} bytes");
        causes.push(Cause::invalid_value(&quoted(name), &text, "metadata.name"));
    }
    if !fits {
        let text = if limit == 63 {
            format!(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                 start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                 validation is '{LABEL}')"
            )
        } else {
            format!(
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                 and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
                 validation is '{SUBDOMAIN}')"
            )
        };
        causes.push(Cause::invalid_value(&quoted(name), &text, "metadata.name"));
    }
}

fn metadata(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    owner_references(object, causes);
    if let Some(labels) = object::at(object, "metadata.labels").and_then(Value::as_object) {
        label_map(labels, "metadata.labels", causes);
    }
    if let Some(annotations) = object::at(object, "metadata.annotations").and_then(Value::as_object) {
        for key in annotations.keys() {
            qualified_name(&key.to_lowercase(), key, "metadata.annotations", causes);
        }
    }
    for (i, finalizer) in object::finalizers(object).iter().enumerate() {
        if !resource.custom && !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(finalizer) {
            let text = "name is neither a standard finalizer name nor is it fully qualified";
            let field = format!("metadata.finalizers[{i}]");
            causes.push(Cause::invalid_value(&quoted(finalizer), text, field));
        }
    }
}

fn label_map(labels: &Map<String, Value>, field: &str, causes: &mut Vec<Cause>) {
    for (key, value) in labels {
        qualified_name(key, key, field, causes);
        let value = value.as_str().unwrap_or_default();
        if value.len() > 63 {
            causes.push(Cause::invalid_value(&quoted(value), "must be no more than 63 bytes", field));
        }
        if !IS_LABEL_VALUE.is_match(value) {
            let text = format!(
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                 and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
                 '12345', regex used for validation is '{LABEL_VALUE}')"
            );
            causes.push(Cause::invalid_value(&quoted(value), &text, field));
        }
    }
}

/// The rules for `prefix/name`.
fn qualified_name(key: &str, shown: &str, field: &str, causes: &mut Vec<Cause>) {
    let mut bad = |text: String| causes.push(Cause::invalid_value(&quoted(shown), &text, field));
    let name = match key.split_once('/') {
        None => key,
        Some((prefix, name)) => {
            if prefix.is_empty() {
                bad("prefix part must be non-empty".to_owned());
            } else if !IS_SUBDOMAIN.is_match(prefix) {
                bad(format!(
                    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                     characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
                     'example.com', regex used for validation is '{SUBDOMAIN}')"
                ));
            }
            name
        }
    };
    if name.is_empty() {
        bad("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        bad("name part must be no more than 63 bytes".to_owned());
    }
    if !IS_QUALIFIED.is_match(name) {
        bad(format!(
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '{QUALIFIED}')"
        ));
    }
}

fn owner_references(object: &Value, causes: &mut Vec<Cause>) {
    let references = object::owner_references(object);
    for reference in &references {
        let parts = [
            ("apiVersion", &reference.api_version),
            ("kind", &reference.kind),
            ("name", &reference.name),
            ("uid", &reference.uid),
        ];
        for (part, value) in parts {
            if value.is_empty() {
                let text =
                    if part == "apiVersion" { "version must not be empty" } else { "must not be empty" };
                let field = format!("metadata.ownerReferences.{part}");
                causes.push(Cause::invalid_value("\"\"", text, field));
            }
        }
    }
    let mut controllers = references.iter().filter(|r| r.controller);
    if let (Some(first), Some(second)) = (controllers.next(), controllers.next()) {
        let text = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {}/{} and {}/{}",
            first.kind, first.name, second.kind, second.name
        );
        let shown = in_go_order(object::at(object, "metadata.ownerReferences"));
        causes.push(Cause::invalid_value(&shown, &text, "metadata.ownerReferences"));
    }
}

/// Owner references as JSON text in the field order of the Go type, which error texts quote.
fn in_go_order(references: Option<&Value>) -> String {
    const ORDER: [&str; 6] = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let one = |reference: &Value| {
        let parts = ORDER.iter().filter_map(|k| reference.get(k).map(|v| format!("\"{k}\":{v}")));
        format!("{{{}}}", parts.collect::<Vec<_>>().join(","))
    };
    let all: Vec<String> = references.and_then(Value::as_array).into_iter().flatten().map(one).collect();
    format!("[{}]", all.join(","))
}

fn new_finalizers(old: &Value, next: &Value, causes: &mut Vec<Cause>) {
    if object::deletion_timestamp(old).is_none() {
        return;
    }
    let before = object::finalizers(old);
    let added: Vec<String> =
        object::finalizers(next).iter().filter(|f| !before.contains(*f)).map(|f| quoted(f)).collect();
    if !added.is_empty() {
        let text = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        );
        causes.push(Cause::forbidden(&text, "metadata.finalizers"));
    }
}

fn immutable(resource: &Resource, old: &Value, next: &Value, causes: &mut Vec<Cause>) {
    let mut fixed = |path: &str, text: &str| {
        let (before, after) = (object::at(old, path), object::at(next, path));
        if before != after {
            let shown = after.map_or_else(|| "null".to_owned(), Value::to_string);
            causes.push(Cause::invalid_value(&shown, text, path));
        }
    };
    if *resource == SECRETS {
        fixed("type", "field is immutable");
    }
    if resource.group == resource::ROLES.group {
        fixed("roleRef", "cannot change roleRef");
    }
    if old.get("immutable") == Some(&Value::Bool(true)) {
        let text = "field is immutable when `immutable` is set";
        for path in ["data", "binaryData"] {
            if old.get(path) != next.get(path) {
                causes.push(Cause::forbidden(text, path));
            }
        }
    }
}

fn body(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    if *resource != SECRETS {
        return;
    }
    let data = object.get("data").and_then(Value::as_object);
    let total: usize = data.into_iter().flatten().map(|(_, v)| decoded_len(v)).sum();
    for key in data.into_iter().flat_map(Map::keys) {
        let fits = key.len() <= 253 && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if !fits || key.is_empty() || key == "." || key == ".." {
            let text = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
                        'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
                        '[-._a-zA-Z0-9]+')";
            causes.push(Cause::invalid_value(&quoted(key), text, format!("data[{key}]")));
        }
    }
    if total > SECRET_BYTES {
        let text = format!("Too long: may not be more than {SECRET_BYTES} bytes");
        causes.push(Cause::new("FieldValueTooLong", text, "data"));
    }
    let wants: &[&str] = match object.get("type").and_then(Value::as_str).unwrap_or_default() {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        _ => &[],
    };
    for key in wants {
        if !data.is_some_and(|d| d.contains_key(*key)) {
            causes.push(Cause::required("", format!("data[{key}]")));
        }
    }
}

fn decoded_len(value: &Value) -> usize {
    STANDARD.decode(value.as_str().unwrap_or_default()).map_or(0, |bytes| bytes.len())
}
