//! A small validator over the OpenAPI document of a real API server: types, required fields, enums, and no unknown field.
//!
//! A real server accepts an unknown field with a warning and drops it, which is how a misspelt field does nothing at all.

use serde_json::Value;

/// What is wrong with `value`, seen as the schema of this name.
pub(crate) fn faults(document: &Value, schema: &str, value: &Value) -> Vec<String> {
    let schemas = &document["components"]["schemas"];
    let mut faults = Vec::new();
    assert!(schemas[schema].is_object(), "{schema} is not in the document");
    check(schemas, &schemas[schema], value, schema, &mut faults);
    faults
}

fn resolve<'a>(schemas: &'a Value, schema: &'a Value) -> &'a Value {
    let target = match (&schema["$ref"], schema["allOf"].as_array()) {
        (Value::String(name), _) => name,
        (_, Some(all)) if all.len() == 1 => return resolve(schemas, &all[0]),
        _ => return schema,
    };
    let name = target.rsplit('/').next().unwrap();
    resolve(schemas, &schemas[name])
}

fn check(schemas: &Value, schema: &Value, value: &Value, path: &str, faults: &mut Vec<String>) {
    let schema = resolve(schemas, schema);
    if schema["x-kubernetes-int-or-string"] == true || schema["anyOf"].is_array() {
        if !(value.is_string() || value.is_i64()) {
            faults.push(format!("{path}: neither number nor text"));
        }
        return;
    }
    let right = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    if !right {
        faults.push(format!("{path}: {value} is no {}", schema["type"]));
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        faults.push(format!("{path}: {value} is none of {words:?}"));
    }
    if let Some(items) = value.as_array() {
        for (i, item) in items.iter().enumerate() {
            check(schemas, &schema["items"], item, &format!("{path}[{i}]"), faults);
        }
    }
    if let Some(fields) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                faults.push(format!("{path}.{name}: required"));
            }
        }
        for (name, field) in fields {
            let path = format!("{path}.{name}");
            if schema["properties"][name].is_object() {
                check(schemas, &schema["properties"][name], field, &path, faults);
            } else if schema["additionalProperties"].is_object() {
                check(schemas, &schema["additionalProperties"], field, &path, faults);
            } else if schema["properties"].is_object()
                && schema["x-kubernetes-preserve-unknown-fields"] != true
            {
                faults.push(format!("{path}: unknown field"));
            }
        }
    }
}
