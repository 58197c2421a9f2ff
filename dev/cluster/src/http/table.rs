//! `meta.k8s.io/v1` Tables, which `kubectl get` asks for.

use serde_json::{Value, json};

use super::read::metadata_only;
use crate::object;
use crate::resource::{self, Resource};
use crate::store::ObjectRef;

const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some \
                    resources may allow a client to request the generation of an appropriate name automatically. Name is \
                    primarily intended for creation idempotence and configuration definition. Cannot be updated. More \
                    info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not \
                   guaranteed to be set in happens-before order across separate operations. Clients may not set this \
                   value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for \
                   lists. More info: \
                   https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const CONFIG_DATA: &str = "Data contains the configuration data. Each key must consist of alphanumeric characters, '-', \
                           '_' or '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The keys \
                           stored in Data must not overlap with the keys in the BinaryData field, this is enforced during \
                           validation process.";

/// A column beside the name.
struct Column {
    name: &'static str,
    kind: &'static str,
    description: String,
    priority: u8,
    cell: Cell,
}

enum Cell {
    /// The value at a dotted path; `null` where absent.
    Path(&'static str),
    /// The status of a condition.
    Condition(&'static str),
    /// The number of entries.
    Count(&'static str),
    /// Time since the creation.
    Age,
}

fn path(name: &'static str, at: &'static str) -> Column {
    let description = format!("Custom resource definition column (in JSONPath format): .{at}");
    Column { name, kind: "string", description, priority: 0, cell: Cell::Path(at) }
}

fn condition(name: &'static str, kind: &'static str, priority: u8) -> Column {
    let description = format!(
        "Custom resource definition column (in JSONPath format): .status.conditions[?(@.type=='{kind}')].status"
    );
    Column { name, kind: "string", description, priority, cell: Cell::Condition(kind) }
}

fn age(custom: bool) -> Column {
    let (kind, description) = if custom {
        ("date", "Custom resource definition column (in JSONPath format): .metadata.creationTimestamp")
    } else {
        ("string", AGE)
    };
    Column { name: "Age", kind, description: description.to_owned(), priority: 0, cell: Cell::Age }
}

fn described(mut column: Column, description: &str) -> Column {
    description.clone_into(&mut column.description);
    column
}

fn columns(resource: &Resource) -> Vec<Column> {
    let count = |name, at, text: &str| Column {
        name,
        kind: "string",
        description: text.to_owned(),
        priority: 0,
        cell: Cell::Count(at),
    };
    if *resource == resource::VIRTUAL_MACHINES {
        vec![
            age(true),
            described(path("Status", "status.printableStatus"), "Human Readable Status"),
            condition("Ready", "Ready", 0),
        ]
    } else if *resource == resource::VIRTUAL_MACHINE_INSTANCES {
        let mut ip = path("IP", "status.interfaces.0.ipAddress");
        ip.description =
            "Custom resource definition column (in JSONPath format): .status.interfaces[0].ipAddress".into();
        vec![
            age(true),
            path("Phase", "status.phase"),
            ip,
            path("NodeName", "status.nodeName"),
            condition("Ready", "Ready", 0),
            condition("Live-Migratable", "LiveMigratable", 1),
            condition("Paused", "Paused", 1),
        ]
    } else if *resource == resource::CONFIG_MAPS {
        vec![count("Data", "data", CONFIG_DATA), age(false)]
    } else if *resource == resource::SECRETS {
        let kind =
            described(path("Type", "type"), "Used to facilitate programmatic handling of secret data.");
        vec![kind, count("Data", "data", "Data contains the secret data."), age(false)]
    } else if *resource == resource::PODS || *resource == resource::NAMESPACES {
        let status = described(path("Status", "status.phase"), "The phase of the object.");
        vec![status, age(false)]
    } else if *resource == resource::PERSISTENT_VOLUME_CLAIMS {
        vec![
            described(path("Status", "status.phase"), "The phase of the claim."),
            described(path("Volume", "spec.volumeName"), "The volume that is bound."),
            age(false),
        ]
    } else if *resource == resource::DATA_VOLUMES {
        vec![
            described(path("Phase", "status.phase"), "The phase the data volume is in"),
            described(
                path("Progress", "status.progress"),
                "Transfer progress in percentage if known, N/A otherwise",
            ),
            age(true),
        ]
    } else {
        vec![age(resource.custom)]
    }
}

/// A Table of objects.
pub(super) fn render(resource: &Resource, objects: &[&ObjectRef], meta: Value) -> Value {
    let columns = columns(resource);
    let mut definitions =
        vec![json!({"name": "Name", "type": "string", "format": "name", "description": NAME, "priority": 0})];
    definitions.extend(columns.iter().map(|c| {
        json!({"name": c.name, "type": c.kind, "format": "", "description": c.description, "priority": c.priority})
    }));
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let mut cells = vec![json!(&*object.key.name)];
            cells.extend(columns.iter().map(|c| cell(&c.cell, &object.value)));
            json!({"cells": cells, "object": metadata_only(&object.value)})
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta,
        "columnDefinitions": definitions, "rows": rows,
    })
}

fn cell(cell: &Cell, value: &Value) -> Value {
    match cell {
        Cell::Path(at) => {
            let found = at.split('.').try_fold(value, |v, key| match key.parse::<usize>() {
                Ok(index) => v.get(index),
                Err(_) => v.get(key),
            });
            found.cloned().unwrap_or_default()
        }
        Cell::Condition(kind) => {
            let all = object::at(value, "status.conditions").and_then(Value::as_array);
            let mut all = all.into_iter().flatten();
            let found = all.find(|c| c.get("type").and_then(Value::as_str) == Some(kind));
            found.and_then(|c| c.get("status")).cloned().unwrap_or_default()
        }
        Cell::Count(at) => value.get(*at).and_then(Value::as_object).map_or(0, serde_json::Map::len).into(),
        Cell::Age => since(object::text_at(value, "metadata.creationTimestamp")).into(),
    }
}

/// `11s`, `5m30s`, `27m`, `3h`, `2d`, as kubectl shows ages.
fn since(created: &str) -> String {
    let parsed = time::OffsetDateTime::parse(created, &time::format_description::well_known::Rfc3339);
    let Ok(created) = parsed else { return "<unknown>".to_owned() };
    let seconds = (crate::clock::now() - created).whole_seconds().max(0);
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{minutes}m{}s", seconds % 60),
        120..10800 => format!("{minutes}m"),
        10800..172_800 => format!("{hours}h"),
        _ => format!("{}d", hours / 24),
    }
}
