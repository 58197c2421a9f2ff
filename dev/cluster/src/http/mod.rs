//! The HTTP door: who asks, what for, may they, and in which form.
//!
//! There are no routes: like the real server this one reads what a request is about off its path ([`path`]), asks
//! RBAC, and only then looks whether the thing exists. So a caller without rights learns nothing about what is there.

mod body;
mod discovery;
mod negotiate;
mod patch;
mod path;
mod read;
mod remove;
mod review;
mod table;
mod watch;
mod write;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use self::path::{Query, Target};
use crate::admission::SubresourceCall;
use crate::api::{Cluster, Part, User, Writer};
use crate::rbac::{Action, Rbac};
use crate::resource::{self, Resource};
use crate::status::{Details, Status};

/// What the real server takes as a body.
const BODY_BYTES: usize = 3 * 1024 * 1024;
const NO_SNIFF: (HeaderName, HeaderValue) =
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

struct Door {
    cluster: Cluster,
    rbac: Rbac,
    shutdown: CancellationToken,
}

/// The router; everything is decided by the path parser, not by routes.
pub(crate) fn app(cluster: Cluster, shutdown: CancellationToken) -> Router {
    let door = Arc::new(Door { cluster, rbac: Rbac::default(), shutdown });
    Router::new().fallback(handle).with_state(door)
}

async fn handle(State(door): State<Arc<Door>>, request: Request) -> Response {
    let query = Query::parse(request.uri());
    let target = Target::parse(request.method(), request.uri(), &query);
    let Some(user) = door.authenticate(request.headers()) else {
        return status_response(&Status::unauthorized());
    };
    if let Err(refusal) = door.authorize(&user, &target) {
        let mut response = status_response(&refusal);
        response.headers_mut().insert(NO_SNIFF.0, NO_SNIFF.1);
        return response;
    }
    if request.uri().path().starts_with("/sim/")
        && let Some(operator) = door.cluster.operator()
    {
        return operator.oneshot(request).await.into_response();
    }
    if !target.is_resource {
        return discovery::answer(&door.cluster, &target, &query, request.headers());
    }
    if target.group == discovery::SUBRESOURCES {
        return door.subresource(user, target, request).await;
    }
    let Some(resource) = target.known() else { return page_not_found() };
    match door.resource(user, &target, &query, resource, request).await {
        Ok(response) => response,
        Err(refusal) => status_response(&refusal),
    }
}

impl Door {
    /// The user behind the bearer token; browsers may carry it in a WebSocket protocol.
    fn authenticate(&self, headers: &HeaderMap) -> Option<User> {
        let bearer = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
        let from_header = bearer.and_then(|v| v.strip_prefix("Bearer ")).map(|t| t.trim().to_owned());
        let from_protocol = || {
            let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL);
            let mut offered = offered.iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(','));
            let encoded = offered
                .find_map(|p| p.trim().strip_prefix("base64url.bearer.authorization.k8s.io."))?
                .trim_end_matches('=');
            String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()
        };
        let token = from_header.or_else(from_protocol)?;
        self.cluster.tokens().user(&token, self.cluster.store())
    }

    fn authorize(&self, user: &User, target: &Target) -> Result<(), Status> {
        let action = Action {
            verb: target.verb.to_owned(),
            group: target.group.clone(),
            resource: target.qualified(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            path: (!target.is_resource).then(|| target.path.clone()),
        };
        if self.rbac.allows(self.cluster.store(), user, &action) {
            return Ok(());
        }
        let verb = target.verb;
        let Some(path) = action.path else { return Err(denied(user, target, &action)) };
        let text = format!("forbidden: User \"{}\" cannot {verb} path \"{path}\"", user.name);
        Err(Status::new(403, "Forbidden", text, Some(Details::default())))
    }

    async fn resource(
        &self,
        user: User,
        target: &Target,
        query: &Query,
        resource: &'static Resource,
        request: Request,
    ) -> Result<Response, Status> {
        let (parts, body) = request.into_parts();
        let headers = &parts.headers;
        let part = match target.subresource.as_str() {
            "" => Part::Main,
            "status" if resource.status => Part::Status,
            "finalize" if *resource == resource::NAMESPACES => Part::Finalize,
            "token" if *resource == resource::SERVICE_ACCOUNTS => Part::Main,
            _ => return Ok(page_not_found()),
        };
        let on_item =
            !target.name.is_empty() && !matches!(target.verb, "list" | "watch" | "deletecollection");
        let allowed = match parts.method {
            Method::GET | Method::HEAD => !resource.review,
            Method::POST if target.subresource == "token" => true,
            Method::POST => {
                !on_item && (target.namespace.is_empty() != resource.namespaced || resource.review)
            }
            Method::PUT | Method::PATCH => on_item && !resource.review,
            Method::DELETE => part == Part::Main && !resource.review,
            _ => false,
        };
        if !allowed || (target.verb == "deletecollection" && *resource == resource::NAMESPACES) {
            return Err(Status::method_not_allowed());
        }
        let form = negotiate::form(headers)?;
        match target.verb {
            "get" => return read::get(&self.cluster, resource, target, query, form),
            "list" => return read::list(&self.cluster, resource, target, query, form).await,
            "watch" => return watch::watch(&self.cluster, resource, target, query, self.shutdown.clone()),
            _ => {}
        }
        let bytes = read_body(body).await?;
        if resource.review {
            return review::answer(&self.cluster, &self.rbac, &user, resource, &bytes);
        }
        let mut writer = Writer {
            manager: Some(manager(query, headers)),
            user,
            dry_run: !query.get("dryRun").is_empty(),
            warnings: Vec::new(),
        };
        let write = write::Request { resource, target, query, headers, body: &bytes, form, part };
        let result = match target.verb {
            "create" if target.subresource == "token" => write::token(&self.cluster, &write),
            "create" => write::create(&self.cluster, &write, &mut writer),
            "update" => write::replace(&self.cluster, &write, &mut writer),
            "patch" => write::patch(&self.cluster, &write, &mut writer),
            "delete" => remove::delete(&self.cluster, resource, target, query, &bytes, form, &mut writer),
            _ => remove::delete_collection(&self.cluster, resource, target, query, &bytes, form, &mut writer),
        };
        let mut response = result.unwrap_or_else(|refusal| status_response(&refusal));
        for warning in &writer.warnings {
            let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
                response.headers_mut().append(header::WARNING, value);
            }
        }
        Ok(response)
    }

    /// KubeVirt's subresources: the real ones are served by virt-api, which wants `*/*`.
    async fn subresource(&self, user: User, target: Target, request: Request) -> Response {
        let Some(handler) = self.cluster.subresources() else { return page_not_found() };
        if !discovery::SUBRESOURCE_VERSIONS.contains(&target.version.as_str()) {
            return page_not_found();
        }
        if !discovery::is_subresource(&target.qualified()) {
            return plain(StatusCode::NOT_FOUND, "404: Page Not Found");
        }
        if negotiate::refuses_plain(request.headers()) {
            return plain(StatusCode::NOT_ACCEPTABLE, "406: Not Acceptable\n\nAvailable representations: ");
        }
        let call = SubresourceCall {
            version: target.version,
            resource: target.resource,
            namespace: target.namespace,
            name: target.name,
            subresource: target.subresource,
            user,
            request,
        };
        let mut response = handler.call(call).await;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            response.headers_mut().insert(NO_SNIFF.0, NO_SNIFF.1);
            let uncached = HeaderValue::from_static("no-cache, private");
            response.headers_mut().entry(header::CACHE_CONTROL).or_insert(uncached);
        }
        response
    }
}

/// 403 of RBAC.
fn denied(user: &User, target: &Target, action: &Action) -> Status {
    let dotted = if target.group.is_empty() {
        target.resource.clone()
    } else {
        format!("{}.{}", target.resource, target.group)
    };
    let listing = matches!(target.verb, "list" | "watch" | "deletecollection" | "create");
    let name = if listing { "" } else { target.name.as_str() };
    let what = if name.is_empty() { dotted } else { format!("{dotted} \"{name}\"") };
    let place = if target.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", target.namespace)
    };
    let message = format!(
        "{what} is forbidden: User \"{}\" cannot {} resource \"{}\" in API group \"{}\" {place}",
        user.name, target.verb, action.resource, target.group
    );
    let details = Details {
        name: name.to_owned(),
        group: target.group.clone(),
        kind: target.resource.clone(),
        ..Details::default()
    };
    Status::new(403, "Forbidden", message, Some(details))
}

/// `fieldManager`, or the first part of the user agent.
fn manager(query: &Query, headers: &HeaderMap) -> String {
    let named = query.get("fieldManager");
    if !named.is_empty() {
        return named.to_owned();
    }
    let agent = headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    match agent.split('/').next().unwrap_or_default() {
        "" => "unknown".to_owned(),
        known => known.to_owned(),
    }
}

async fn read_body(body: Body) -> Result<Bytes, Status> {
    let collected = Limited::new(body, BODY_BYTES).collect().await.map_err(|_| {
        let message = format!("limit is {BODY_BYTES}");
        Status::new(413, "RequestEntityTooLarge", format!("Request entity too large: {message}"), None)
    })?;
    Ok(collected.to_bytes())
}

/// A refusal as a response.
pub fn status_response(status: &Status) -> Response {
    let code = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(code, status.to_json().to_string());
    if let Some(seconds) = status.details().and_then(|d| d.retry_after_seconds) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The plain 404 of paths that do not exist.
pub fn page_not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

pub(crate) fn json_response(code: StatusCode, body: impl Into<Body>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private")),
    ];
    (code, headers, body.into()).into_response()
}

/// A plain text answer.
pub fn plain(code: StatusCode, text: impl Into<Body>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private")),
        NO_SNIFF,
    ];
    (code, headers, text.into()).into_response()
}
