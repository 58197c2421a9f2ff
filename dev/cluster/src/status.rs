//! `metav1.Status`: every refusal of the API server, with the texts of the real one.
//!
//! The constructors name the case, so that a handler reads as what it refuses and the wording stands here once.

use serde::Serialize;

use crate::resource::Resource;

/// One entry of `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Machine-readable reason, e.g. `FieldValueInvalid`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field it is about.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Cause {
    /// A cause of the given reason, text and field.
    pub fn new(reason: &str, message: impl Into<String>, field: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into(), field: field.into() }
    }
    /// `FieldValueInvalid` whose text is used as it is.
    pub fn invalid(message: impl Into<String>, field: impl Into<String>) -> Self {
        Self::new("FieldValueInvalid", message, field)
    }
    /// `Required value[: text]`.
    pub fn required(text: &str, field: impl Into<String>) -> Self {
        let message =
            if text.is_empty() { "Required value".to_owned() } else { format!("Required value: {text}") };
        Self::new("FieldValueRequired", message, field)
    }
    /// `Invalid value: <value>: text`; `value` is JSON text.
    pub fn invalid_value(value: &str, text: &str, field: impl Into<String>) -> Self {
        Self::new("FieldValueInvalid", format!("Invalid value: {value}: {text}"), field)
    }
    /// `Forbidden: text`.
    pub fn forbidden(text: &str, field: impl Into<String>) -> Self {
        Self::new("FieldValueForbidden", format!("Forbidden: {text}"), field)
    }
}

/// `details` of a Status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Details {
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Group of the resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Plural of the resource, or the kind where it is a validation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// uid, on a successful delete.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Single findings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// When to try again.
    #[serde(rename = "retryAfterSeconds", skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
}

/// A refusal. Boxed inside so that `Result<_, Status>` stays small.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} {}: {}", .0.code, .0.reason, .0.message)]
pub struct Status(Box<Body>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Body {
    code: u16,
    reason: String,
    message: String,
    details: Option<Details>,
    continue_token: Option<String>,
}

impl Status {
    /// A refusal of any kind; prefer the named constructors.
    pub fn new(code: u16, reason: &str, message: impl Into<String>, details: Option<Details>) -> Self {
        Self(Box::new(Body {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            details,
            continue_token: None,
        }))
    }

    /// HTTP status code.
    pub fn code(&self) -> u16 {
        self.0.code
    }
    /// `reason`.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }
    /// `message`.
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// `details`.
    pub fn details(&self) -> Option<&Details> {
        self.0.details.as_ref()
    }
    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.0.code == 404
    }
    /// Whether the object was changed meanwhile.
    pub fn is_conflict(&self) -> bool {
        self.0.code == 409 && self.0.reason == "Conflict"
    }
    /// Whether the object exists already.
    pub fn is_already_exists(&self) -> bool {
        self.0.reason == "AlreadyExists"
    }
    /// Adds the continue token that an expired list offers.
    pub(crate) fn with_continue(mut self, token: String) -> Self {
        self.0.continue_token = Some(token);
        self
    }

    /// The body as it goes over the wire.
    pub fn to_json(&self) -> serde_json::Value {
        let mut body = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.0.message, "code": self.0.code,
        });
        if let Some(token) = &self.0.continue_token {
            body["metadata"]["continue"] = token.as_str().into();
        }
        if !self.0.reason.is_empty() {
            body["reason"] = self.0.reason.as_str().into();
        }
        if let Some(details) = &self.0.details {
            body["details"] = serde_json::to_value(details).unwrap_or_default();
        }
        body
    }

    fn about(resource: &Resource, name: &str) -> Details {
        Details {
            name: name.to_owned(),
            group: resource.group.to_owned(),
            kind: resource.plural.to_owned(),
            ..Details::default()
        }
    }

    /// 404: the object does not exist.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {} not found", resource.qualified(), quoted(name));
        Self::new(404, "NotFound", message, Some(Self::about(resource, name)))
    }
    /// 409: the name is taken.
    pub fn already_exists(resource: &Resource, name: &str, terminating: bool) -> Self {
        let before = if terminating { "object is being deleted: " } else { "" };
        let message = format!("{before}{} {} already exists", resource.qualified(), quoted(name));
        Self::new(409, "AlreadyExists", message, Some(Self::about(resource, name)))
    }
    /// 409: the resourceVersion is not the current one.
    pub fn modified(resource: &Resource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }
    /// 409 with a text of its own.
    pub fn conflict(resource: &Resource, name: &str, text: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {}: {text}", resource.qualified(), quoted(name));
        Self::new(409, "Conflict", message, Some(Self::about(resource, name)))
    }
    /// 403: an admission step refuses the object.
    pub fn forbidden(resource: &Resource, name: &str, text: &str) -> Self {
        let message = if name.is_empty() {
            format!("{} is forbidden: {text}", resource.qualified())
        } else {
            format!("{} {} is forbidden: {text}", resource.qualified(), quoted(name))
        };
        Self::new(403, "Forbidden", message, Some(Self::about(resource, name)))
    }
    /// 422: validation failed. `kind` and `name` are those of the object.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let each = |c: &Cause| format!("{}: {}", c.field, c.message);
        let all: Vec<String> = dedup(causes.iter().map(each));
        let text = match all.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let shown = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let details = Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes,
            ..Details::default()
        };
        Self::new(422, "Invalid", format!("{shown} {} is invalid: {text}", quoted(name)), Some(details))
    }
    /// 422: a webhook denies the request; the text follows the webhook's name.
    pub fn denied_by_webhook(webhook: &str, text: &str, causes: Vec<Cause>) -> Self {
        let details = Details { causes, ..Details::default() };
        let message = format!("admission webhook \"{webhook}\" denied the request: {text}");
        Self::new(422, "Invalid", message, Some(details))
    }
    /// 400 without details.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message, None)
    }
    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized", None)
    }
    /// 405.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message, Some(Details::default()))
    }
    /// 415 for a body.
    pub fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(415, "UnsupportedMediaType", message, None)
    }
    /// 500.
    pub fn internal(text: &str) -> Self {
        let causes = vec![Cause::new("", text, "")];
        let details = Details { causes, ..Details::default() };
        Self::new(500, "InternalError", format!("Internal error occurred: {text}"), Some(details))
    }
}

/// Go's `%q` for the plain strings that names are.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn dedup(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = Vec::new();
    for text in texts {
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    seen
}
