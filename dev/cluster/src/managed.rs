//! `metadata.managedFields`: which manager owns which field, and server-side apply on top of it.
//!
//! Lists are owned as a whole (the real server does so for custom resources without a list type, and our own objects
//! need no more). Fields are kept as sets of paths and written as FieldsV1.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::object;
use crate::status::{Cause, Details, Status};

type Path = Vec<String>;
type Fields = BTreeSet<Path>;

/// Metadata that nobody owns.
const UNOWNED: [&str; 10] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

#[derive(Debug, Clone)]
struct Entry {
    manager: String,
    operation: String,
    subresource: String,
    version: String,
    time: String,
    fields: Fields,
}

impl Entry {
    fn is(&self, manager: &str, operation: &str, subresource: &str) -> bool {
        self.manager == manager && self.operation == operation && self.subresource == subresource
    }
}

/// Records that `manager` wrote what differs between `old` and `next`.
pub(crate) fn on_write(
    next: &mut Value,
    old: Option<&Value>,
    manager: &str,
    operation: &str,
    subresource: &str,
) {
    let mut entries = read(old.unwrap_or(&Value::Null));
    let after = fields_of(next);
    let before = old.map(fields_of).unwrap_or_default();
    let differs = |path: &Path| old.is_none_or(|o| value_at(o, path) != value_at(next, path));
    let changed: Fields = after.iter().filter(|p| differs(p)).cloned().collect();
    let removed: Fields = before.difference(&after).cloned().collect();
    for entry in &mut entries {
        entry.fields.retain(|p| !removed.contains(p) && !changed.contains(p));
    }
    if !changed.is_empty() {
        let position = entries.iter().position(|e| e.is(manager, operation, subresource));
        let mut own =
            position.map_or_else(|| fresh(next, manager, operation, subresource), |i| entries.remove(i));
        own.fields.extend(changed);
        own.time = object::now();
        entries.push(own);
    }
    write(next, entries);
}

/// Records who made an object: all of its fields, or those of `owned`.
pub(crate) fn on_create(object: &mut Value, owned: Option<&Value>, manager: &str, operation: &str) {
    let mut entry = fresh(object, manager, operation, "");
    entry.fields = fields_of(owned.unwrap_or(object));
    entry.fields.retain(|path| path.first().is_none_or(|first| first != "status"));
    write(object, vec![entry]);
}

fn fresh(object: &Value, manager: &str, operation: &str, subresource: &str) -> Entry {
    Entry {
        manager: manager.to_owned(),
        operation: operation.to_owned(),
        subresource: subresource.to_owned(),
        version: object.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned(),
        time: object::now(),
        fields: Fields::new(),
    }
}

/// Applies `config` as `manager`: the next state of the object, or the conflicts.
pub(crate) fn apply(current: &Value, config: &Value, manager: &str, force: bool) -> Result<Value, Status> {
    let mut entries = read(current);
    let wanted = fields_of(config);
    let differs = |path: &Path| value_at(current, path) != value_at(config, path);
    let mut conflicts: Vec<(String, Path)> = Vec::new();
    for entry in entries.iter().filter(|e| !e.is(manager, "Apply", "")) {
        let lost = wanted.iter().filter(|p| entry.fields.contains(*p) && differs(p));
        conflicts.extend(lost.map(|p| (entry.manager.clone(), p.clone())));
    }
    if !conflicts.is_empty() && !force {
        return Err(conflict(&conflicts));
    }
    for (manager, path) in &conflicts {
        entries.iter_mut().filter(|e| e.manager == *manager).for_each(|e| {
            e.fields.remove(path);
        });
    }
    let mut next = current.clone();
    for path in &wanted {
        if let Some(value) = value_at(config, path) {
            set_at(&mut next, path, value.clone());
        }
    }
    let position = entries.iter().position(|e| e.is(manager, "Apply", ""));
    let mut own = position.map_or_else(|| fresh(config, manager, "Apply", ""), |i| entries.remove(i));
    for path in own.fields.difference(&wanted) {
        if !entries.iter().any(|e| e.fields.contains(path)) {
            remove_at(&mut next, path);
        }
    }
    if own.fields != wanted || next != *current {
        own.time = object::now();
    }
    own.fields = wanted;
    entries.push(own);
    write(&mut next, entries);
    Ok(next)
}

fn conflict(conflicts: &[(String, Path)]) -> Status {
    let dotted = |path: &Path| path.iter().map(|p| format!(".{p}")).collect::<String>();
    let mut managers: Vec<&String> = conflicts.iter().map(|(m, _)| m).collect();
    managers.sort();
    managers.dedup();
    let one = conflicts.len() == 1;
    let parts: Vec<String> = managers
        .iter()
        .map(|manager| {
            let paths: Vec<String> =
                conflicts.iter().filter(|(m, _)| m == *manager).map(|(_, p)| dotted(p)).collect();
            match paths.as_slice() {
                [single] if one => format!("conflict with \"{manager}\": {single}"),
                many => format!("conflicts with \"{manager}\":\n- {}", many.join("\n- ")),
            }
        })
        .collect();
    let count = if one { "1 conflict".to_owned() } else { format!("{} conflicts", conflicts.len()) };
    let cause = |(manager, path): &(String, Path)| {
        Cause::new("FieldManagerConflict", format!("conflict with \"{manager}\""), dotted(path))
    };
    let details = Details { causes: conflicts.iter().map(cause).collect(), ..Details::default() };
    let message = format!("Apply failed with {count}: {}", parts.join("\n"));
    Status::new(409, "Conflict", message, Some(details))
}

/// The owned fields of an object: its leaves, lists counted as leaves.
fn fields_of(object: &Value) -> Fields {
    let mut fields = Fields::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        match key.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    if !UNOWNED.contains(&key.as_str()) {
                        leaves(value, &mut vec!["metadata".to_owned(), key.clone()], &mut fields);
                    }
                }
            }
            _ => leaves(value, &mut vec![key.clone()], &mut fields),
        }
    }
    fields
}

fn leaves(value: &Value, path: &mut Path, fields: &mut Fields) {
    match value.as_object().filter(|map| !map.is_empty()) {
        None => {
            fields.insert(path.clone());
        }
        Some(map) => {
            for (key, child) in map {
                path.push(key.clone());
                leaves(child, path, fields);
                path.pop();
            }
        }
    }
}

fn value_at<'a>(object: &'a Value, path: &Path) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

fn set_at(object: &mut Value, path: &Path, new: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut at = object;
    for key in parents {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[key];
    }
    if !at.is_object() {
        *at = json!({});
    }
    at[last] = new;
}

fn remove_at(object: &mut Value, path: &Path) {
    let Some((last, parents)) = path.split_last() else { return };
    let parent = parents.iter().try_fold(&mut *object, |value, key| value.get_mut(key));
    if let Some(map) = parent.and_then(Value::as_object_mut) {
        map.remove(last);
        if map.is_empty() && parents.len() > 1 {
            remove_at(object, &parents.to_vec());
        }
    }
}

fn read(object: &Value) -> Vec<Entry> {
    let list = object::at(object, "metadata.managedFields").and_then(Value::as_array);
    list.into_iter().flatten().map(read_entry).collect()
}

fn read_entry(entry: &Value) -> Entry {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut fields = Fields::new();
    if let Some(tree) = entry.get("fieldsV1").and_then(Value::as_object) {
        read_tree(tree, &mut Vec::new(), &mut fields);
    }
    Entry {
        manager: text("manager"),
        operation: text("operation"),
        subresource: text("subresource"),
        version: text("apiVersion"),
        time: text("time"),
        fields,
    }
}

fn read_tree(tree: &Map<String, Value>, path: &mut Path, fields: &mut Fields) {
    for (key, child) in tree {
        let Some(name) = key.strip_prefix("f:") else { continue };
        path.push(name.to_owned());
        match child.as_object().filter(|c| !c.is_empty()) {
            Some(children) => read_tree(children, path, fields),
            None => {
                fields.insert(path.clone());
            }
        }
        path.pop();
    }
}

fn write(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|e| !e.fields.is_empty());
    entries.sort_by(|a, b| (&a.time, &a.manager).cmp(&(&b.time, &b.manager)));
    let meta = object::meta_mut(object);
    if entries.is_empty() {
        meta.remove("managedFields");
    } else {
        meta.insert("managedFields".into(), entries.iter().map(write_entry).collect());
    }
}

fn write_entry(entry: &Entry) -> Value {
    let mut tree = json!({});
    for path in &entry.fields {
        let mut at = &mut tree;
        for key in path {
            at = &mut at[format!("f:{key}")];
            if !at.is_object() {
                *at = json!({});
            }
        }
    }
    let mut out = json!({
        "manager": entry.manager, "operation": entry.operation, "apiVersion": entry.version,
        "time": entry.time, "fieldsType": "FieldsV1", "fieldsV1": tree,
    });
    if !entry.subresource.is_empty() {
        out["subresource"] = entry.subresource.as_str().into();
    }
    out
}
