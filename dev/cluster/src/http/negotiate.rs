//! In which form an answer goes out: the object, a Table, or metadata only.

use http::{HeaderMap, header};

use crate::status::{Details, Status};

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The object itself.
    Full,
    /// `meta.k8s.io/v1` Table.
    Table,
    /// `meta.k8s.io/v1` PartialObjectMetadata (List).
    Metadata,
}

/// What the `Accept` header allows, or 406.
pub(crate) fn form(headers: &HeaderMap) -> Result<Form, Status> {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("*/*");
    if accept.trim().is_empty() {
        return Ok(Form::Full);
    }
    for clause in accept.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if !matches!(media, "application/json" | "application/*" | "*/*") {
            continue;
        }
        let (mut kind, mut version, mut group) = ("", "", "");
        for part in parts {
            match part.split_once('=') {
                Some(("as", value)) => kind = value,
                Some(("v", value)) => version = value,
                Some(("g", value)) => group = value,
                Some(_) | None => {}
            }
        }
        let meta = group == "meta.k8s.io" && version == "v1";
        match kind {
            "" => return Ok(Form::Full),
            "Table" if meta => return Ok(Form::Table),
            "PartialObjectMetadata" | "PartialObjectMetadataList" if meta => return Ok(Form::Metadata),
            _ => {}
        }
    }
    Err(not_acceptable())
}

fn not_acceptable() -> Status {
    let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                   application/vnd.kubernetes.protobuf";
    Status::new(406, "NotAcceptable", message, Some(Details::default()))
}

/// Whether a client insists on JSON where only anything goes (KubeVirt's subresources refuse that).
pub(crate) fn refuses_plain(headers: &HeaderMap) -> bool {
    let Some(accept) = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()) else { return false };
    !accept.split(',').any(|c| c.split(';').next().is_some_and(|m| m.trim() == "*/*"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn accept_headers_choose_the_form() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        for (accept, wanted) in [
            ("application/json", Some(Form::Full)),
            ("*/*", Some(Form::Full)),
            (table, Some(Form::Table)),
            ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Some(Form::Full)),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Some(Form::Metadata)),
            ("text/html", None),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(form(&headers).ok(), wanted, "{accept}");
        }
        assert_eq!(form(&HeaderMap::new()).ok(), Some(Form::Full));
    }
}
