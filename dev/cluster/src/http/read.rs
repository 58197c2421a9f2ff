//! GET of one object and of lists.

use std::time::Duration;

use axum::response::Response;
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use bytes::{BufMut as _, Bytes, BytesMut};
use http::StatusCode;
use serde_json::{Value, json};

use super::json_response;
use super::negotiate::Form;
use super::path::{Query, Target};
use super::table;
use crate::api::Cluster;
use crate::resource::Resource;
use crate::selector::Selector;
use crate::status::{Cause, Details, Status, quoted};
use crate::store::{Key, Listing, ObjectRef};

/// What a list looks like to somebody who asks for an older state than the window reaches.
const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a \
                       new list without the continue parameter, or use the continue token in this response to retrieve \
                       the remainder of the results. Continuing with the provided token results in an inconsistent \
                       list - objects that were created, modified, or deleted between the time the first chunk was \
                       returned and now may show up in the list.";
/// How long the real server waits for a version that does not exist yet.
const FUTURE_WAIT: Duration = Duration::from_secs(3);

/// Continue tokens are read as leniently as Go reads them.
const TOKEN: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// GET of one object.
pub(super) fn get(
    cluster: &Cluster,
    resource: &'static Resource,
    target: &Target,
    query: &Query,
    form: Form,
) -> Result<Response, Status> {
    parse_version(query.get("resourceVersion"))
        .map_err(|text| Status::bad_request(format!("invalid resource version: {text}")))?;
    let key = Key::new(resource, if resource.namespaced { &target.namespace } else { "" }, &target.name);
    let object = cluster.store().get(&key).ok_or_else(|| Status::not_found(resource, &target.name))?;
    Ok(one(StatusCode::OK, resource, &object, form))
}

/// One object in the form asked for.
pub(super) fn one(code: StatusCode, resource: &Resource, object: &ObjectRef, form: Form) -> Response {
    match form {
        Form::Full => json_response(code, object.json.clone()),
        Form::Metadata => json_response(code, metadata_only(&object.value).to_string()),
        Form::Table => json_response(code, table::render(resource, &[object], json!({})).to_string()),
    }
}

/// `PartialObjectMetadata` of an object.
pub(super) fn metadata_only(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_default(),
    })
}

/// GET of a collection.
pub(super) async fn list(
    cluster: &Cluster,
    resource: &'static Resource,
    target: &Target,
    query: &Query,
    form: Form,
) -> Result<Response, Status> {
    check_options(query, false)?;
    let selector = Selector::parse(resource, query.get("labelSelector"), query.get("fieldSelector"))
        .map_err(Status::bad_request)?;
    let namespace = Some(target.namespace.as_str()).filter(|ns| !ns.is_empty());
    let page = Page::choose(cluster, resource, namespace, query).await?;
    let mut items: Vec<ObjectRef> =
        page.listing.items.into_iter().filter(|o| page.start.as_ref().is_none_or(|s| s.admits(o))).collect();
    items.retain(|o| selector.matches(&o.value));
    let mut meta = json!({"resourceVersion": page.listing.version.to_string()});
    if page.limit > 0 && items.len() > page.limit {
        let rest = items.len() - page.limit;
        items.truncate(page.limit);
        if let Some(last) = items.last() {
            meta["continue"] = token(page.listing.version, last, namespace.is_some()).into();
        }
        if selector.is_empty() {
            meta["remainingItemCount"] = rest.into();
        }
    } else if resource.custom {
        meta["continue"] = "".into();
    }
    Ok(collection(resource, &items, meta, form))
}

/// A collection in the form asked for.
pub(super) fn collection(resource: &Resource, items: &[ObjectRef], meta: Value, form: Form) -> Response {
    let body = match form {
        Form::Full => full_list(resource, items, &meta),
        Form::Metadata => {
            let items: Vec<Value> = items.iter().map(|o| metadata_only(&o.value)).collect();
            let list = json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": meta, "items": items,
            });
            Bytes::from(list.to_string())
        }
        Form::Table => {
            let items: Vec<&ObjectRef> = items.iter().collect();
            Bytes::from(table::render(resource, &items, meta).to_string())
        }
    };
    json_response(StatusCode::OK, body)
}

/// Put together from the texts made at write time; built-in kinds leave `kind` and `apiVersion` out of their items.
fn full_list(resource: &Resource, items: &[ObjectRef], meta: &Value) -> Bytes {
    let mut out = BytesMut::with_capacity(256 + items.iter().map(|o| o.json.len() + 1).sum::<usize>());
    let head = format!(
        "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"items\":[",
        resource.kind,
        resource.api_version()
    );
    out.put_slice(head.as_bytes());
    for (i, object) in items.iter().enumerate() {
        if i > 0 {
            out.put_u8(b',');
        }
        if resource.custom {
            out.put_slice(&object.json);
        } else {
            bare_item(&mut out, &object.value);
        }
    }
    out.put_slice(b"]}");
    out.freeze()
}

fn bare_item(out: &mut BytesMut, object: &Value) {
    let fields = object.as_object().into_iter().flatten();
    let mut separator = b'{';
    for (key, value) in fields.filter(|(key, _)| *key != "kind" && *key != "apiVersion") {
        out.put_u8(separator);
        separator = b',';
        // Writing plain JSON into memory cannot fail.
        let _ = serde_json::to_writer(&mut (&mut *out).writer(), key);
        out.put_u8(b':');
        let _ = serde_json::to_writer(&mut (&mut *out).writer(), value);
    }
    if separator == b'{' {
        out.put_u8(b'{');
    }
    out.put_u8(b'}');
}

/// Which state to show, from where, and how much of it.
struct Page {
    listing: Listing,
    start: Option<Start>,
    limit: usize,
}

/// The key after which a continued list goes on.
struct Start {
    text: String,
    namespaced: bool,
}

impl Start {
    fn admits(&self, object: &ObjectRef) -> bool {
        key_text(object, self.namespaced).as_str() >= self.text.as_str()
    }
}

/// `name`, or `namespace/name` where a list spans namespaces.
fn key_text(object: &ObjectRef, in_namespace: bool) -> String {
    if in_namespace || object.key.namespace.is_empty() {
        object.key.name.to_string()
    } else {
        format!("{}/{}", object.key.namespace, object.key.name)
    }
}

fn token(version: u64, last: &ObjectRef, in_namespace: bool) -> String {
    let start = format!("/{}\0", key_text(last, in_namespace));
    token_from(&version.to_string(), &start)
}

fn token_from(version: &str, start: &str) -> String {
    let start = Value::from(start);
    TOKEN.encode(format!("{{\"v\":\"meta.k8s.io/v1\",\"rv\":{version},\"start\":{start}}}"))
}

impl Page {
    async fn choose(
        cluster: &Cluster,
        resource: &'static Resource,
        namespace: Option<&str>,
        query: &Query,
    ) -> Result<Self, Status> {
        let store = cluster.store();
        let limit = query.number("limit").and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
        let version = query.get("resourceVersion");
        let token = query.get("continue");
        if !token.is_empty() {
            return Self::next(cluster, resource, namespace, token, version, limit);
        }
        let asked = parse_version(version)
            .map_err(|text| Status::bad_request(format!("invalid resource version: {text}")))?;
        let exact = query.get("resourceVersionMatch") == "Exact"
            || (limit > 0 && query.get("resourceVersionMatch").is_empty() && asked > 0);
        if asked > store.version() {
            tokio::time::sleep(FUTURE_WAIT).await;
            if asked > store.version() {
                return Err(too_large(asked, store.version()));
            }
        }
        if exact {
            let listing = store.list_at(resource, namespace, asked).map_err(|_| {
                Status::new(410, "Expired", "The resourceVersion for the provided list is too old.", None)
            })?;
            return Ok(Self { listing, start: None, limit });
        }
        // resourceVersion=0 is served from the cache of the real server, which does not page.
        let limit = if version == "0" { 0 } else { limit };
        Ok(Self { listing: store.list(resource, namespace), start: None, limit })
    }

    fn next(
        cluster: &Cluster,
        resource: &'static Resource,
        namespace: Option<&str>,
        token: &str,
        version: &str,
        limit: usize,
    ) -> Result<Self, Status> {
        if !version.is_empty() && version != "0" {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let bad = |text: String| Status::bad_request(format!("invalid continue token: {text}"));
        let (version, start) = read_token(token).map_err(bad)?;
        let store = cluster.store();
        let text = start.trim_start_matches('/').to_owned();
        let listing = match u64::try_from(version) {
            Err(_) => store.list(resource, namespace),
            Ok(version) => store.list_at(resource, namespace, version).map_err(|_| {
                Status::new(410, "Expired", EXPIRED, None).with_continue(token_from("-1", &text))
            })?,
        };
        Ok(Self { listing, start: Some(Start { text, namespaced: namespace.is_some() }), limit })
    }
}

fn read_token(token: &str) -> Result<(i64, String), String> {
    let bytes = TOKEN.decode(token.trim_end_matches('=')).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            base64::DecodeError::InvalidLength(at) => at,
            base64::DecodeError::InvalidPadding => 0,
        };
        format!("continue key is not valid: illegal base64 data at input byte {at}")
    })?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| {
        let first = bytes.first().copied().unwrap_or_default();
        let shown = if first.is_ascii_graphic() {
            char::from(first).to_string()
        } else {
            format!("\\u{:04x}", u32::from(first))
        };
        format!("continue key is not valid: invalid character '{shown}' looking for beginning of value")
    })?;
    let version = value.get("rv").and_then(Value::as_i64).unwrap_or_default();
    let start = value.get("start").and_then(Value::as_str).unwrap_or_default();
    if value.get("v").and_then(Value::as_str) != Some("meta.k8s.io/v1") {
        let shown = quoted(value.get("v").and_then(Value::as_str).unwrap_or_default());
        return Err(format!(
            "continue key is not valid: server does not recognize this encoded version {shown}"
        ));
    }
    if version == 0 || start.is_empty() {
        return Err(
            "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"
                .into(),
        );
    }
    Ok((version, start.to_owned()))
}

/// A resourceVersion; the empty one is 0.
pub(super) fn parse_version(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        let shown = quoted(text);
        format!("resourceVersion: Invalid value: {shown}: strconv.ParseUint: parsing {shown}: invalid syntax")
    })
}

fn too_large(asked: u64, current: u64) -> Status {
    let details = Details {
        causes: vec![Cause::new("ResourceVersionTooLarge", "Too large resource version", "")],
        retry_after_seconds: Some(1),
        ..Details::default()
    };
    let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
    Status::new(504, "Timeout", message, Some(details))
}

/// The combinations of list options that the real server refuses.
pub(super) fn check_options(query: &Query, watch: bool) -> Result<(), Status> {
    let matching = query.get("resourceVersionMatch");
    let version = query.get("resourceVersion");
    let mut causes = Vec::new();
    let mut forbid = |field: &str, text: &str| causes.push(Cause::forbidden(text, field));
    match query.optional_flag("sendInitialEvents") {
        Some(_) if !watch => forbid("sendInitialEvents", "sendInitialEvents is forbidden for list"),
        Some(_) if matching.is_empty() => forbid(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        None if watch && !matching.is_empty() => forbid(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        Some(_) | None => {}
    }
    if !watch && !matching.is_empty() {
        if !query.get("continue").is_empty() {
            forbid("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
        }
        if version.is_empty() {
            let text = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            forbid("resourceVersionMatch", text);
        } else if matching == "Exact" && version == "0" {
            let text = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            forbid("resourceVersionMatch", text);
        }
    }
    if !matches!(matching, "" | "Exact" | "NotOlderThan") {
        let text = format!(
            "Unsupported value: {}: supported values: \"Exact\", \"NotOlderThan\", \"\"",
            quoted(matching)
        );
        causes.push(Cause::new("FieldValueNotSupported", text, "resourceVersionMatch"));
    }
    if causes.is_empty() { Ok(()) } else { Err(options_invalid("ListOptions", causes)) }
}

/// 422 about the options of a request.
pub(super) fn options_invalid(kind: &str, causes: Vec<Cause>) -> Status {
    Status::invalid("meta.k8s.io", kind, "", causes)
}
