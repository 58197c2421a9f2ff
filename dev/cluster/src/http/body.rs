//! Request bodies: from bytes to an object that is known to be of the right kind.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, header};
use serde_json::Value;

use super::path::Query;
use crate::object;
use crate::resource::{self, Resource};
use crate::schema;
use crate::status::Status;

/// What happens to fields that the kind does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    pub(super) fn of(query: &Query) -> Self {
        match query.get("fieldValidation") {
            "Strict" => Self::Strict,
            "Ignore" => Self::Ignore,
            _ => Self::Warn,
        }
    }
}

/// The media type of a request, without parameters.
pub(super) fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// Reads the object of a POST or PUT.
pub(super) fn object(resource: &Resource, headers: &HeaderMap, body: &[u8]) -> Result<Value, Status> {
    let value: Value = match media_type(headers) {
        "" | "application/json" => parse(resource, body)?,
        "application/yaml" => std::str::from_utf8(body)
            .ok()
            .and_then(|text| serde_saphyr::from_str(text).ok())
            .ok_or_else(|| Status::bad_request("the body of the request is not YAML"))?,
        _ => return Err(Status::unsupported_media_type(ACCEPTED)),
    };
    check_kind(resource, &value)?;
    check_types(resource, &value)?;
    Ok(value)
}

/// JSON, with the refusal of the real server where it is none.
fn parse(resource: &Resource, body: &[u8]) -> Result<Value, Status> {
    let parsed = serde_json::from_slice::<Value>(body);
    parsed.map_err(|error| {
        let text = String::from_utf8_lossy(body);
        let shown = if text.is_empty() {
            "<empty>".to_owned()
        } else if text.chars().count() > 30 {
            format!("{} ...", text.chars().take(30).collect::<String>())
        } else {
            text.clone().into_owned()
        };
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {} ({shown})",
            resource.kind,
            go_error(&error, body),
        ))
    })
}

/// A parse error in the words of Go.
pub(super) fn go_error(error: &serde_json::Error, body: &[u8]) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let line_start: usize =
        body.split_inclusive(|b| *b == b'\n').take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
    let at = line_start + error.column().saturating_sub(1);
    let shown = body.get(at).map_or(' ', |b| char::from(*b));
    format!("invalid character '{shown}' looking for beginning of value")
}

fn check_kind(resource: &Resource, value: &Value) -> Result<(), Status> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if !value.is_object() {
        return Err(Status::bad_request("the body of the request is not an object"));
    }
    let wanted_version = resource.api_version();
    if !kind.is_empty() && kind != resource.kind {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        let known = resource::find_kind(api_version, kind).is_some();
        let message = if known && resource.group.is_empty() {
            format!(
                "{kind} in version {version:?} cannot be handled as a {}: converting ({version}.{kind}) to (core.{}): \
                 unknown conversion",
                resource.kind, resource.kind
            )
        } else {
            format!("the kind in the data ({kind}) does not match the expected kind ({})", resource.kind)
        };
        return Err(Status::bad_request(message));
    }
    let served = resource.versions().any(|v| resource::group_version(resource.group, v) == api_version);
    if !api_version.is_empty() && !served {
        return Err(Status::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({wanted_version})"
        )));
    }
    Ok(())
}

/// What a typed decoder would trip over.
fn check_types(resource: &Resource, value: &Value) -> Result<(), Status> {
    if *resource != resource::SECRETS {
        return Ok(());
    }
    for (_, item) in value.get("data").and_then(Value::as_object).into_iter().flatten() {
        let text = item.as_str().unwrap_or_default();
        if STANDARD.decode(text).is_err() {
            let bad = |b: &u8| !(b.is_ascii_alphanumeric() || b"+/=".contains(b));
            let at = text.bytes().position(|b| bad(&b)).unwrap_or(text.len());
            return Err(cannot_be_handled(resource, &format!("illegal base64 data at input byte {at}")));
        }
    }
    Ok(())
}

fn cannot_be_handled(resource: &Resource, text: &str) -> Status {
    Status::bad_request(format!(
        "{kind} in version \"{}\" cannot be handled as a {kind}: {text}",
        resource.version,
        kind = resource.kind
    ))
}

/// Drops fields that the kind does not have; refuses them or warns.
pub(super) fn prune(
    resource: &Resource,
    value: &mut Value,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let unknown: Vec<String> =
        schema::prune(resource, value).iter().map(|path| format!("unknown field \"{path}\"")).collect();
    if unknown.is_empty() || validation == FieldValidation::Ignore {
        return Ok(());
    }
    if validation == FieldValidation::Strict {
        return Err(cannot_be_handled(resource, &format!("strict decoding error: {}", unknown.join(", "))));
    }
    warnings.extend(unknown);
    Ok(())
}

/// The object must be the one of the path.
pub(super) fn check_address(object: &Value, namespace: &str, name: &str) -> Result<(), Status> {
    let own = object::namespace(object);
    if !own.is_empty() && own != namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let own = object::name(object);
    if !name.is_empty() && own != name {
        let shown = if own.is_empty() {
            "name must be provided".to_owned()
        } else {
            format!("the name of the object ({own}) does not match the name on the URL ({name})")
        };
        return Err(Status::bad_request(shown));
    }
    Ok(())
}
