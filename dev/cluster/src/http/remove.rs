//! DELETE of one object and of collections.

use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::json_response;
use super::negotiate::Form;
use super::path::{Query, Target};
use super::read::{collection, one, options_invalid};
use crate::api::{Cluster, DeleteOptions, Deleted, Propagation, Writer};
use crate::resource::Resource;
use crate::selector::Selector;
use crate::status::{Cause, Details, Status, quoted};
use crate::store::{Key, ObjectRef};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Body {
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    grace_period_seconds: Option<i64>,
    preconditions: Option<Preconditions>,
    dry_run: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// Options from the body or, without one, from the query; and whether nothing shall be stored.
fn options(query: &Query, body: &[u8]) -> Result<(DeleteOptions, bool), Status> {
    let body: Body = if body.iter().all(u8::is_ascii_whitespace) {
        Body {
            propagation_policy: Some(query.get("propagationPolicy").to_owned()).filter(|p| !p.is_empty()),
            orphan_dependents: query.optional_flag("orphanDependents"),
            grace_period_seconds: query.get("gracePeriodSeconds").parse().ok(),
            ..Body::default()
        }
    } else {
        serde_json::from_slice(body)
            .map_err(|error| Status::bad_request(format!("the delete options cannot be read: {error}")))?
    };
    let dry_run = !query.get("dryRun").is_empty() || !body.dry_run.is_empty();
    let policy = body.propagation_policy.as_deref();
    if let (Some(policy), Some(_)) = (policy, body.orphan_dependents) {
        let text = "orphanDependents and deletionPropagation cannot be both set";
        let cause = Cause::invalid_value(&quoted(policy), text, "propagationPolicy");
        return Err(options_invalid("DeleteOptions", vec![cause]));
    }
    let propagation = match (policy, body.orphan_dependents) {
        (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
        (None, None) => None,
        (Some(other), _) => {
            let text = format!(
                "Unsupported value: {}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
                quoted(other)
            );
            let cause = Cause::new("FieldValueNotSupported", text, "propagationPolicy");
            return Err(options_invalid("DeleteOptions", vec![cause]));
        }
    };
    let preconditions = body.preconditions.unwrap_or_default();
    let options = DeleteOptions {
        propagation,
        grace: body.grace_period_seconds,
        uid: preconditions.uid,
        version: preconditions.resource_version,
    };
    Ok((options, dry_run))
}

/// DELETE of one object.
pub(super) fn delete(
    cluster: &Cluster,
    resource: &'static Resource,
    target: &Target,
    query: &Query,
    body: &[u8],
    form: Form,
    writer: &mut Writer,
) -> Result<Response, Status> {
    let (options, dry_run) = options(query, body)?;
    writer.dry_run |= dry_run;
    let key = Key::new(resource, if resource.namespaced { &target.namespace } else { "" }, &target.name);
    match cluster.delete(&key, &options, writer)? {
        Deleted::Marked(object) => Ok(one(StatusCode::OK, resource, &object, form)),
        Deleted::Gone(object) if resource.returns_deleted => Ok(one(StatusCode::OK, resource, &object, form)),
        Deleted::Gone(object) => {
            let details = Details {
                name: target.name.clone(),
                group: resource.group.to_owned(),
                kind: resource.plural.to_owned(),
                uid: object.uid().to_owned(),
                ..Details::default()
            };
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            });
            Ok(json_response(StatusCode::OK, status.to_string()))
        }
    }
}

/// DELETE of a collection: everything that matches, answered with what was deleted.
pub(super) fn delete_collection(
    cluster: &Cluster,
    resource: &'static Resource,
    target: &Target,
    query: &Query,
    body: &[u8],
    form: Form,
    writer: &mut Writer,
) -> Result<Response, Status> {
    let (options, dry_run) = options(query, body)?;
    writer.dry_run |= dry_run;
    let selector = Selector::parse(resource, query.get("labelSelector"), query.get("fieldSelector"))
        .map_err(Status::bad_request)?;
    let namespace = Some(target.namespace.as_str()).filter(|ns| !ns.is_empty());
    let listing = cluster.store().list(resource, namespace);
    let items: Vec<ObjectRef> = listing.items.into_iter().filter(|o| selector.matches(&o.value)).collect();
    for object in &items {
        match cluster.delete(&object.key, &options, writer) {
            Ok(_) => {}
            Err(refusal) if refusal.is_not_found() => {}
            Err(refusal) => return Err(refusal),
        }
    }
    let mut meta = json!({"resourceVersion": listing.version.to_string()});
    if resource.custom {
        meta["continue"] = "".into();
    }
    Ok(collection(resource, &items, meta, form))
}
