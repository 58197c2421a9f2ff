//! POST, PUT and PATCH.

use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::body::{self, FieldValidation};
use super::negotiate::Form;
use super::patch::{self, Patch};
use super::path::{Query, Target};
use super::read::{one, options_invalid};
use crate::api::{Cluster, Part, Writer};
use crate::defaults;
use crate::object;
use crate::resource::Resource;
use crate::status::{Cause, Status};
use crate::store::{Key, ObjectRef};

/// A write as it came in.
pub(super) struct Request<'a> {
    pub(super) resource: &'static Resource,
    pub(super) target: &'a Target,
    pub(super) query: &'a Query,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a [u8],
    pub(super) form: Form,
    pub(super) part: Part,
}

impl Request<'_> {
    fn namespace(&self) -> &str {
        if self.resource.namespaced { &self.target.namespace } else { "" }
    }
    fn key(&self) -> Key {
        Key::new(self.resource, self.namespace(), &self.target.name)
    }
    fn answer(&self, code: StatusCode, object: &ObjectRef) -> Response {
        one(code, self.resource, object, self.form)
    }
}

/// POST.
pub(super) fn create(
    cluster: &Cluster,
    request: &Request<'_>,
    writer: &mut Writer,
) -> Result<Response, Status> {
    let mut object = body::object(request.resource, request.headers, request.body)?;
    body::check_address(&object, request.namespace(), "")?;
    let validation = FieldValidation::of(request.query);
    body::prune(request.resource, &mut object, validation, &mut writer.warnings)?;
    let stored = cluster.create(request.resource, request.namespace(), object, writer)?;
    Ok(request.answer(StatusCode::CREATED, &stored))
}

/// PUT.
pub(super) fn replace(
    cluster: &Cluster,
    request: &Request<'_>,
    writer: &mut Writer,
) -> Result<Response, Status> {
    let resource = request.resource;
    let mut sent = body::object(resource, request.headers, request.body)?;
    body::check_address(&sent, request.namespace(), &request.target.name)?;
    let validation = FieldValidation::of(request.query);
    body::prune(resource, &mut sent, validation, &mut writer.warnings)?;
    if cluster.store().get(&request.key()).is_none() {
        return Err(Status::not_found(resource, &request.target.name));
    }
    if resource.custom && object::resource_version(&sent).is_empty() {
        let cause = Cause::invalid_value("0", "must be specified for an update", "metadata.resourceVersion");
        return Err(Status::invalid(resource.group, resource.kind, &request.target.name, vec![cause]));
    }
    let mut change = |_: &Value| {
        let mut next = sent.clone();
        defaults::always(resource, &mut next);
        Ok(next)
    };
    let stored = cluster.update(&request.key(), request.part, &mut change, writer)?;
    Ok(request.answer(StatusCode::OK, &stored))
}

/// PATCH of all four kinds.
pub(super) fn patch(
    cluster: &Cluster,
    request: &Request<'_>,
    writer: &mut Writer,
) -> Result<Response, Status> {
    let patch = Patch::read(request.resource, request.headers, request.body)?;
    let validation = FieldValidation::of(request.query);
    if let Patch::Apply(config) = &patch {
        return apply(cluster, request, config.clone(), writer);
    }
    let mut unknown = Vec::new();
    let mut change = |current: &Value| {
        let mut next = patch::patched(request.resource, &patch, current)?;
        body::check_address(&next, request.namespace(), &request.target.name)?;
        unknown.clear();
        body::prune(request.resource, &mut next, validation, &mut unknown)?;
        defaults::always(request.resource, &mut next);
        Ok(next)
    };
    let stored = cluster.update(&request.key(), request.part, &mut change, writer)?;
    writer.warnings.extend(unknown);
    Ok(request.answer(StatusCode::OK, &stored))
}

fn apply(
    cluster: &Cluster,
    request: &Request<'_>,
    mut config: Value,
    writer: &mut Writer,
) -> Result<Response, Status> {
    let manager = request.query.get("fieldManager").to_owned();
    if manager.is_empty() {
        let cause = Cause::required("is required for apply patch", "fieldManager");
        return Err(options_invalid("PatchOptions", vec![cause]));
    }
    if object::at(&config, "metadata.managedFields").is_some_and(|m| !m.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    if config.get("kind").is_none() || config.get("apiVersion").is_none() {
        return Err(Status::bad_request("apiVersion and kind must be set in an apply patch"));
    }
    if object::name(&config).is_empty() {
        object::meta_mut(&mut config).insert("name".into(), request.target.name.as_str().into());
    }
    body::check_address(&config, request.namespace(), &request.target.name)?;
    let validation = FieldValidation::of(request.query);
    body::prune(request.resource, &mut config, validation, &mut writer.warnings)?;
    defaults::always(request.resource, &mut config);
    let force = request.query.flag("force");
    let plain = Writer { manager: None, ..writer.clone() };
    loop {
        let mut applier = plain.clone();
        if cluster.store().get(&request.key()).is_some() {
            let stored = cluster.apply(&request.key(), &config, &manager, force, &mut applier)?;
            writer.warnings = applier.warnings;
            return Ok(request.answer(StatusCode::OK, &stored));
        }
        applier.manager = Some(manager.clone());
        match cluster.create_applied(request.resource, request.namespace(), config.clone(), &mut applier) {
            Err(refusal) if refusal.is_already_exists() => {}
            Err(refusal) => return Err(refusal),
            Ok(stored) => {
                writer.warnings = applier.warnings;
                return Ok(request.answer(StatusCode::CREATED, &stored));
            }
        }
    }
}

/// POST of `serviceaccounts/x/token`.
pub(super) fn token(cluster: &Cluster, request: &Request<'_>) -> Result<Response, Status> {
    let key = request.key();
    let account =
        cluster.store().get(&key).ok_or_else(|| Status::not_found(request.resource, &request.target.name))?;
    let sent: Value = serde_json::from_slice(request.body)
        .map_err(|error| Status::bad_request(format!("the token request cannot be read: {error}")))?;
    let asked = object::at(&sent, "spec.expirationSeconds").and_then(Value::as_i64).unwrap_or(3600);
    let seconds = asked.clamp(600, 1 << 32);
    let token =
        cluster.tokens().request(&key.namespace, &key.name, account.uid(), seconds).map_err(|error| {
            tracing::error!(%error, "a token could not be kept");
            Status::internal("the token could not be kept")
        })?;
    let until = crate::clock::now() + time::Duration::seconds(seconds);
    let answer = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": &*key.name, "namespace": &*key.namespace, "creationTimestamp": object::now()},
        "spec": {"audiences": ["https://kubernetes.default.svc"], "expirationSeconds": seconds,
                 "boundObjectRef": null},
        "status": {"token": token, "expirationTimestamp": object::timestamp(until)},
    });
    Ok(super::json_response(StatusCode::CREATED, answer.to_string()))
}
