//! What is in the cluster from the start: system namespaces and roles, and the manifests of `--deploy`.
//!
//! Manifests are created, or brought to what the file says where they exist (labels, annotations and everything
//! but `status` replaced). Kinds that this cluster does not serve are named in a warning and left out.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::api::{Client, Cluster};
use crate::object;
use crate::resource::{self, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES, Resource};
use crate::store::Key;

const SYSTEM: &str = "system:apiserver";

/// Makes what every cluster has.
pub(crate) fn bootstrap(cluster: &Cluster, namespace: &str) -> anyhow::Result<()> {
    let client = cluster.client(SYSTEM);
    for name in ["default", "kube-system", "kube-public", "kubevirt", namespace] {
        put(&client, &NAMESPACES, "", json!({"metadata": {"name": name}}), false)?;
    }
    for (name, rules) in system_roles() {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        put(&client, &CLUSTER_ROLES, "", role, true)?;
        if ["cluster-admin", "admin", "edit", "view"].contains(&name) {
            continue;
        }
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": CLUSTER_ROLES.group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": CLUSTER_ROLES.group, "kind": "Group", "name": "system:authenticated"}],
        });
        put(&client, &CLUSTER_ROLE_BINDINGS, "", binding, true)?;
    }
    Ok(())
}

fn system_roles() -> Vec<(&'static str, Value)> {
    let health = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let open_id = [
        "/.well-known/openid-configuration",
        "/.well-known/openid-configuration/",
        "/openid/v1/jwks",
        "/openid/v1/jwks/",
    ];
    let discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    vec![
        (
            "cluster-admin",
            json!([
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]),
        ),
        (
            "kubevirt.io:default",
            json!([
                {"verbs": ["get", "list"], "apiGroups": ["kubevirt.io"], "resources": ["kubevirts"]},
                {"verbs": ["get", "list"], "apiGroups": ["subresources.kubevirt.io"],
                 "resources": ["version", "guestfs"]},
            ]),
        ),
        (
            "system:basic-user",
            json!([
                {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
                 "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
                {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
            ]),
        ),
        (
            "instancetype.kubevirt.io:view",
            json!([
                {"verbs": ["get", "list", "watch"], "apiGroups": ["instancetype.kubevirt.io"],
                 "resources": ["virtualmachineclusterinstancetypes", "virtualmachineclusterpreferences"]},
            ]),
        ),
        ("system:public-info-viewer", json!([{"verbs": ["get"], "nonResourceURLs": health}])),
        (
            "system:service-account-issuer-discovery",
            json!([
                {"verbs": ["get"], "nonResourceURLs": open_id},
            ]),
        ),
        (
            "system:openid",
            json!([
                {"verbs": ["get"], "nonResourceURLs": ["/.well-known", "/.well-known/*"]},
            ]),
        ),
        ("system:discovery", json!([{"verbs": ["get"], "nonResourceURLs": discovery}])),
    ]
}

/// Loads every `*.yaml`, `*.yml` and `*.json` below `dir`: Namespaces first, then in order of file and place.
pub(crate) fn load(cluster: &Cluster, dir: &Path) -> anyhow::Result<()> {
    let mut files = Vec::new();
    collect(dir, &mut files)?;
    files.sort();
    let mut objects = Vec::new();
    for file in &files {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        for document in documents(&text).with_context(|| format!("in {}", file.display()))? {
            objects.push((file, document));
        }
    }
    objects.sort_by_key(|(_, o)| o.get("kind").and_then(Value::as_str) != Some("Namespace"));
    let client = cluster.client(SYSTEM);
    for (file, object) in objects {
        let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        let Some(resource) = resource::find_kind(api_version, kind) else {
            let file = file.display();
            tracing::warn!(%file, kind, api_version, "a manifest of a kind that is not served is left out");
            continue;
        };
        let namespace = object::namespace(&object).to_owned();
        let described = format!("{kind} {} of {}", object::name(&object), file.display());
        put(&client, resource, &namespace, object, true).with_context(|| described)?;
    }
    Ok(())
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json") {
            files.push(path);
        }
    }
    Ok(())
}

/// The documents of a YAML stream; `List` objects are taken apart, empty ones left out.
pub(crate) fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut out = Vec::new();
    for (i, document) in split(text).into_iter().enumerate() {
        let value: Value =
            serde_saphyr::from_str(&document).with_context(|| format!("document {}", i + 1))?;
        if value.get("kind").and_then(Value::as_str) == Some("List") {
            out.extend(value.get("items").and_then(Value::as_array).cloned().unwrap_or_default());
        } else if value.is_object() {
            out.push(value);
        }
    }
    Ok(out)
}

/// Splits at `---` lines and drops documents that hold only comments.
fn split(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        if line.trim_end() == "---" || line.starts_with("--- ") {
            documents.push(String::new());
        } else if let Some(last) = documents.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    let holds = |d: &String| d.lines().any(|l| !l.trim().is_empty() && !l.trim_start().starts_with('#'));
    documents.into_iter().filter(holds).collect()
}

/// Creates the object, or (`replace`) brings the existing one to it.
fn put(
    client: &Client,
    resource: &'static Resource,
    namespace: &str,
    object: Value,
    replace: bool,
) -> anyhow::Result<()> {
    let key = Key::new(resource, namespace, object::name(&object));
    if client.find(&key).is_none() {
        client.create(resource, namespace, object)?;
        return Ok(());
    }
    if !replace {
        return Ok(());
    }
    client.update(&key, |current| {
        let Some(wanted) = object.as_object() else { return Ok(()) };
        for (field, value) in wanted {
            if field == "metadata" {
                for part in ["labels", "annotations"] {
                    for (k, v) in value.get(part).and_then(Value::as_object).into_iter().flatten() {
                        object::meta_mut(current).entry(part).or_insert_with(|| json!({}))[k] = v.clone();
                    }
                }
            } else if *resource == NAMESPACES || field == "status" || field == "stringData" {
                // A Namespace's spec is the server's; stringData would be encoded anew: `data` holds it already.
            } else {
                current[field] = value.clone();
            }
        }
        crate::defaults::always(resource, current);
        Ok(())
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_documents_is_taken_apart() {
        let text = "# only a comment\n---\napiVersion: v1\nkind: List\nitems:\n- kind: A\n- kind: B\n--- # x\nkind: C\n";
        let kinds: Vec<Value> = documents(text).unwrap().iter().map(|d| d["kind"].clone()).collect();
        assert_eq!(kinds, ["A", "B", "C"]);
        assert!(documents("kind: [").is_err());
    }
}
