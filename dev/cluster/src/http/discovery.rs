//! Paths that are no resource: discovery in both forms, version, health.
//!
//! What is listed is what is served: less than a real cluster has, but each entry reads as there.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use super::path::{Query, Target};
use super::{json_response, page_not_found, plain, status_response};
use crate::api::Cluster;
use crate::resource::{self, Resource, TABLE, group_version};
use crate::status::Status;

/// The group of KubeVirt's own API server.
pub(super) const SUBRESOURCES: &str = "subresources.kubevirt.io";
pub(super) const SUBRESOURCE_VERSIONS: [&str; 2] = ["v1", "v1alpha3"];
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// All that the real group lists; the handler answers for those it has.
const KUBEVIRT_SUBRESOURCES: [&str; 31] = [
    "expand-vm-spec",
    "virtualmachineinstances/vnc",
    "virtualmachineinstances/vnc/screenshot",
    "virtualmachineinstances/console",
    "virtualmachineinstances/portforward",
    "virtualmachineinstances/backup",
    "virtualmachineinstances/redefine-checkpoint",
    "virtualmachineinstances/pause",
    "virtualmachineinstances/unpause",
    "virtualmachineinstances/freeze",
    "virtualmachineinstances/unfreeze",
    "virtualmachineinstances/reset",
    "virtualmachineinstances/softreboot",
    "virtualmachines/start",
    "virtualmachines/stop",
    "virtualmachines/restart",
    "virtualmachines/migrate",
    "virtualmachines/expand-spec",
    "virtualmachines/objectgraph",
    "virtualmachines/evacuate/cancel",
    "virtualmachineinstances/guestosinfo",
    "virtualmachineinstances/userlist",
    "virtualmachineinstances/filesystemlist",
    "virtualmachineinstances/addvolume",
    "virtualmachineinstances/removevolume",
    "virtualmachineinstances/objectgraph",
    "virtualmachineinstances/sev/fetchcertchain",
    "virtualmachineinstances/sev/querylaunchmeasurement",
    "virtualmachineinstances/sev/setupsession",
    "virtualmachineinstances/sev/injectlaunchsecret",
    "virtualmachineinstances/evacuate/cancel",
];

/// Whether KubeVirt has such a subresource.
pub(super) fn is_subresource(qualified: &str) -> bool {
    KUBEVIRT_SUBRESOURCES.contains(&qualified)
}

/// Answers a path that is no resource.
pub(super) fn answer(cluster: &Cluster, target: &Target, query: &Query, headers: &HeaderMap) -> Response {
    if target.verb != "get" {
        return if is_known(&target.path) {
            status_response(&Status::method_not_allowed())
        } else {
            page_not_found()
        };
    }
    let parts: Vec<&str> = target.path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["healthz" | "readyz" | "livez"] => health(parts[0], query),
        ["version"] => json_response(StatusCode::OK, version().to_string()),
        ["api"] if wants_aggregated(headers) => aggregated(core_groups()),
        ["api"] => json_response(StatusCode::OK, api_versions(headers).to_string()),
        ["apis"] if wants_aggregated(headers) => aggregated(named_groups(cluster)),
        ["apis"] => json_response(StatusCode::OK, group_list(cluster).to_string()),
        ["api", "v1"] => json_response(StatusCode::OK, resource_list("", "v1").to_string()),
        ["apis", group] => match group_entry(cluster, group) {
            Some(mut entry) => {
                entry["kind"] = "APIGroup".into();
                entry["apiVersion"] = "v1".into();
                json_response(StatusCode::OK, entry.to_string())
            }
            None => page_not_found(),
        },
        ["apis", group, version] if serves(cluster, group, version) => {
            let mut response = json_response(StatusCode::OK, resource_list(group, version).to_string());
            if *group == SUBRESOURCES {
                let nosniff = HeaderValue::from_static("nosniff");
                response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
            }
            response
        }
        _ => page_not_found(),
    }
}

fn is_known(path: &str) -> bool {
    ["/api", "/apis", "/version", "/healthz", "/livez", "/readyz"].contains(&path)
}

fn health(kind: &str, query: &Query) -> Response {
    let verbose = query.optional_flag("verbose").is_some();
    let text = if verbose {
        format!("[+]ping ok\n[+]log ok\n[+]etcd ok\n{kind} check passed\n")
    } else {
        "ok".into()
    };
    plain(StatusCode::OK, text)
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35", "gitVersion": "v1.36.2",
        "gitCommit": "98b35193b2ac7a23a673325f5e9b830ecd5ba406", "gitTreeState": "clean",
        "buildDate": "2026-12-01T12:00:00Z", "goVersion": "go1.26.4", "compiler": "gc", "platform": "linux/amd64",
    })
}

fn api_versions(headers: &HeaderMap) -> Value {
    let host = headers.get(header::HOST).and_then(|v| v.to_str().ok()).unwrap_or("127.0.0.1");
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}],
    })
}

/// The named groups in their order, each with its versions, the preferred one first.
fn groups(cluster: &Cluster) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut groups: Vec<(&'static str, Vec<&'static str>)> = Vec::new();
    for resource in TABLE.iter().filter(|r| !r.group.is_empty()) {
        if let Some((_, versions)) = groups.iter_mut().find(|(g, _)| *g == resource.group) {
            versions.extend(resource.versions().filter(|v| !versions.contains(v)).collect::<Vec<_>>());
        } else {
            groups.push((resource.group, resource.versions().collect()));
        }
    }
    if cluster.subresources().is_some() {
        groups.push((SUBRESOURCES, SUBRESOURCE_VERSIONS.to_vec()));
    }
    groups
}

fn serves(cluster: &Cluster, group: &str, version: &str) -> bool {
    groups(cluster).iter().any(|(g, versions)| *g == group && versions.contains(&version))
}

fn group_entry(cluster: &Cluster, group: &str) -> Option<Value> {
    let (name, versions) = groups(cluster).into_iter().find(|(g, _)| *g == group)?;
    let entry = |v: &&str| json!({"groupVersion": group_version(name, v), "version": v});
    Some(json!({
        "name": name,
        "versions": versions.iter().map(entry).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(entry),
    }))
}

fn group_list(cluster: &Cluster) -> Value {
    let names: Vec<&str> = groups(cluster).into_iter().map(|(g, _)| g).collect();
    let entries: Vec<Value> = names.into_iter().filter_map(|g| group_entry(cluster, g)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": entries})
}

/// Subresources of stored kinds: name and verbs.
fn subresources(resource: &Resource) -> Vec<(&'static str, &'static str, &'static [&'static str])> {
    let mut list: Vec<(&'static str, &'static str, &'static [&'static str])> = Vec::new();
    if *resource == resource::NAMESPACES {
        list.push(("finalize", resource.kind, &["update"]));
    }
    if resource.status {
        list.push(("status", resource.kind, &["get", "patch", "update"]));
    }
    if *resource == resource::SERVICE_ACCOUNTS {
        list.push(("token", "TokenRequest", &["create"]));
    }
    list
}

fn resource_list(group: &str, version: &str) -> Value {
    let mut entries = Vec::new();
    for resource in TABLE.iter().filter(|r| r.group == group && r.serves(version)) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": resource.verbs(),
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        entries.push(entry);
        for (name, kind, verbs) in subresources(resource) {
            let mut entry = json!({
                "name": format!("{}/{name}", resource.plural), "singularName": "",
                "namespaced": resource.namespaced, "kind": kind, "verbs": verbs,
            });
            if name == "token" {
                entry["group"] = "authentication.k8s.io".into();
                entry["version"] = "v1".into();
            }
            entries.push(entry);
        }
    }
    if group == SUBRESOURCES {
        entries.extend(KUBEVIRT_SUBRESOURCES.iter().map(
            |name| json!({"name": name, "singularName": "", "namespaced": true, "kind": "", "verbs": null}),
        ));
    }
    let mut list = json!({
        "kind": "APIResourceList", "groupVersion": group_version(group, version), "resources": entries,
    });
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    list
}

fn wants_aggregated(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    accept.split(',').any(|clause| {
        let has = |wanted: &str| clause.split(';').any(|part| part.trim() == wanted);
        has("g=apidiscovery.k8s.io") && has("v=v2") && has("as=APIGroupDiscoveryList")
    })
}

fn core_groups() -> Vec<Value> {
    vec![json!({
        "metadata": {},
        "versions": [{"version": "v1", "resources": aggregated_resources("", "v1"), "freshness": "Current"}],
    })]
}

fn named_groups(cluster: &Cluster) -> Vec<Value> {
    let entry = |(group, versions): (&str, Vec<&str>)| {
        let versions: Vec<Value> = versions
            .into_iter()
            .map(|v| {
                json!({"version": v, "resources": aggregated_resources(group, v), "freshness": "Current"})
            })
            .collect();
        json!({"metadata": {"name": group}, "versions": versions})
    };
    groups(cluster).into_iter().map(entry).collect()
}

/// KubeVirt's subresources under the resource that they belong to, in the order in which they come up.
fn kubevirt_resources() -> Vec<Value> {
    let nothing = json!({"group": "", "version": "", "kind": ""});
    let mut out: Vec<Value> = Vec::new();
    for name in KUBEVIRT_SUBRESOURCES {
        let (resource, subresource) = name.split_once('/').map_or((name, None), |(r, s)| (r, Some(s)));
        if !out.iter().any(|entry| entry["resource"] == resource) {
            out.push(json!({
                "resource": resource, "responseKind": nothing, "scope": "Namespaced", "singularResource": "",
                "verbs": null,
            }));
        }
        let entry = out.iter_mut().find(|entry| entry["resource"] == resource);
        if let (Some(entry), Some(subresource)) = (entry, subresource) {
            let sub = json!({"subresource": subresource, "responseKind": nothing, "verbs": null});
            match entry["subresources"].as_array_mut() {
                Some(list) => list.push(sub),
                None => entry["subresources"] = json!([sub]),
            }
        }
    }
    out
}

fn aggregated_resources(group: &str, version: &str) -> Vec<Value> {
    if group == SUBRESOURCES {
        return kubevirt_resources();
    }
    let mut out = Vec::new();
    for resource in TABLE.iter().filter(|r| r.group == group && r.serves(version)) {
        // Built-in kinds leave group and version of their kind empty, custom ones name them.
        let kind = |kind: &str| {
            if resource.custom {
                json!({"group": group, "version": version, "kind": kind})
            } else {
                json!({"group": "", "version": "", "kind": kind})
            }
        };
        let mut entry = json!({
            "resource": resource.plural, "responseKind": kind(resource.kind),
            "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": resource.singular, "verbs": resource.verbs(),
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        let subs: Vec<Value> = subresources(resource)
            .into_iter()
            .map(|(name, sub_kind, verbs)| {
                let shown = if name == "token" {
                    json!({"group": "authentication.k8s.io", "version": "v1", "kind": sub_kind})
                } else {
                    kind(sub_kind)
                };
                json!({"subresource": name, "responseKind": shown, "verbs": verbs})
            })
            .collect();
        if !subs.is_empty() {
            entry["subresources"] = json!(subs);
        }
        out.push(entry);
    }
    out
}

fn aggregated(items: Vec<Value>) -> Response {
    let body = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
    .to_string();
    let etag = format!("\"{}\"", hex::encode_upper(Sha512::digest(body.as_bytes())));
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    response
}
