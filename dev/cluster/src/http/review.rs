//! Reviews: who am I, what may I do. Nothing of them is stored.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::json_response;
use crate::api::{Cluster, User};
use crate::object;
use crate::rbac::{Action, Rbac};
use crate::resource::Resource;
use crate::status::Status;

/// Answers a POST of a review.
pub(super) fn answer(
    cluster: &Cluster,
    rbac: &Rbac,
    user: &User,
    resource: &Resource,
    body: &[u8],
) -> Result<Response, Status> {
    let sent: Value = serde_json::from_slice(body)
        .map_err(|error| Status::bad_request(format!("the review cannot be read: {error}")))?;
    let spec = sent.get("spec").cloned().unwrap_or_else(|| json!({}));
    let mut answer = json!({
        "kind": resource.kind, "apiVersion": resource.api_version(), "metadata": {}, "spec": spec,
    });
    match resource.kind {
        "SelfSubjectReview" => {
            answer["metadata"] = json!({"creationTimestamp": object::now()});
            answer["status"] = json!({"userInfo": info(user)});
            if let Some(map) = answer.as_object_mut() {
                map.remove("spec");
            }
        }
        "SelfSubjectRulesReview" => {
            answer["status"] = rbac.rules(cluster.store(), user, object::text_at(&spec, "namespace"));
            answer["spec"] = json!({});
        }
        "TokenReview" => {
            let found = cluster.tokens().user(object::text_at(&spec, "token"), cluster.store());
            answer["status"] = match found {
                Some(user) => json!({"authenticated": true, "user": info(&user)}),
                None => json!({"error": "invalid bearer token"}),
            };
        }
        _ => {
            let other = subject(&spec);
            let asked = if resource.kind.starts_with("Self") { user } else { &other };
            let allowed = rbac.allows(cluster.store(), asked, &action(&spec));
            answer["status"] = json!({"allowed": allowed});
        }
    }
    Ok(json_response(StatusCode::CREATED, answer.to_string()))
}

fn info(user: &User) -> Value {
    let groups: Vec<&str> = user.groups.iter().map(|g| &**g).collect();
    json!({"username": &*user.name, "uid": &*user.uid, "groups": groups})
}

fn subject(spec: &Value) -> User {
    let groups = spec.get("groups").and_then(Value::as_array);
    User {
        name: object::text_at(spec, "user").into(),
        uid: object::text_at(spec, "uid").into(),
        groups: groups.into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect(),
    }
}

fn action(spec: &Value) -> Action {
    let of = |path: &str| object::text_at(spec, path).to_owned();
    if spec.get("nonResourceAttributes").is_some() {
        let path = Some(of("nonResourceAttributes.path"));
        return Action { verb: of("nonResourceAttributes.verb"), path, ..Action::default() };
    }
    let (resource, sub) = (of("resourceAttributes.resource"), of("resourceAttributes.subresource"));
    Action {
        verb: of("resourceAttributes.verb"),
        group: of("resourceAttributes.group"),
        resource: if sub.is_empty() { resource } else { format!("{resource}/{sub}") },
        namespace: of("resourceAttributes.namespace"),
        name: of("resourceAttributes.name"),
        path: None,
    }
}
