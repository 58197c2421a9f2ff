//! What a request is about, read off its path and query as the real server does.

use http::{Method, Uri};

use crate::resource::{self, Resource};

/// The query, decoded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(uri: &Uri) -> Self {
        let pairs = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        Self(pairs.into_owned().collect())
    }
    /// The first value of a parameter, empty where absent.
    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str()).unwrap_or_default()
    }
    /// Whether a flag is set (`1`, `true`, or bare).
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.optional_flag(key).unwrap_or_default()
    }
    /// A flag, and whether it was given at all.
    pub(crate) fn optional_flag(&self, key: &str) -> Option<bool> {
        let (_, value) = self.0.iter().find(|(k, _)| k == key)?;
        Some(!matches!(value.as_str(), "0" | "false" | "False" | "f" | "F" | "FALSE"))
    }
    /// A number, where it is one.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.get(key).parse().ok()
    }
}

/// What a request is about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub(crate) verb: &'static str,
    /// Set for paths below `/api/v1` and `/apis/GROUP/VERSION` that name a resource.
    pub(crate) is_resource: bool,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Everything after the name.
    pub(crate) subresource: String,
    pub(crate) path: String,
}

impl Target {
    pub(crate) fn parse(method: &Method, uri: &Uri, query: &Query) -> Self {
        let path = uri.path().to_owned();
        let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let mut target = Self { verb: plain_verb(method), path: path.clone(), ..Self::default() };
        match parts.first().copied() {
            Some("api") if parts.len() > 2 => {
                target.version = parts[1].to_owned();
                parts.drain(..2);
            }
            Some("apis") if parts.len() > 3 => {
                target.group = parts[1].to_owned();
                target.version = parts[2].to_owned();
                parts.drain(..3);
            }
            Some(_) | None => return target,
        }
        target.is_resource = true;
        let mut watched = false;
        if parts.first() == Some(&"watch") && parts.len() > 1 {
            watched = true;
            parts.remove(0);
        }
        if parts[0] == "namespaces" && parts.len() > 1 {
            target.namespace = decode(parts[1]);
            // `/namespaces/x` and its own subresources are about the Namespace, the rest is inside it.
            if parts.len() > 2 && !matches!(parts[2], "status" | "finalize") {
                parts.drain(..2);
            }
        }
        target.resource = parts[0].to_owned();
        target.name = parts.get(1).map(|p| decode(p)).unwrap_or_default();
        target.subresource = parts.get(2..).unwrap_or_default().join("/");
        target.verb = target.resource_verb(method, query, watched);
        if matches!(target.verb, "list" | "watch" | "deletecollection") && target.name.is_empty() {
            let selected = query.get("fieldSelector").strip_prefix("metadata.name=");
            target.name = selected.filter(|n| !n.contains([',', '='])).unwrap_or_default().to_owned();
        }
        target
    }

    fn resource_verb(&self, method: &Method, query: &Query, watched: bool) -> &'static str {
        let on_item = !self.name.is_empty();
        match *method {
            Method::GET | Method::HEAD if watched || (!on_item && query.flag("watch")) => "watch",
            Method::GET | Method::HEAD if on_item => "get",
            Method::GET | Method::HEAD => "list",
            Method::DELETE if !on_item => "deletecollection",
            _ => write_verb(method),
        }
    }

    /// The stored resource it names, where that is served in this version.
    pub(crate) fn known(&self) -> Option<&'static Resource> {
        resource::find(&self.group, &self.resource).filter(|r| r.serves(&self.version))
    }

    /// `secrets` or `virtualmachineinstances/console`, as rules and refusals name it.
    pub(crate) fn qualified(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

fn plain_verb(method: &Method) -> &'static str {
    if *method == Method::GET || *method == Method::HEAD { "get" } else { write_verb(method) }
}

fn write_verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

fn decode(part: &str) -> String {
    if !part.contains('%') {
        return part.to_owned();
    }
    let joined = part.replace('+', "%2B");
    url::form_urlencoded::parse(joined.as_bytes()).next().map(|(k, _)| k.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(method: Method, path: &str) -> Target {
        let uri: Uri = path.parse().unwrap();
        Target::parse(&method, &uri, &Query::parse(&uri))
    }

    #[test]
    fn paths_are_read_as_the_real_server_reads_them() {
        for (method, path, wanted) in [
            (Method::GET, "/api/v1/namespaces/t/secrets/s", "get||secrets|t|s|"),
            (Method::GET, "/api/v1/namespaces/t/secrets?watch=1", "watch||secrets|t||"),
            (Method::GET, "/api/v1/namespaces/t/secrets/s?watch=1", "get||secrets|t|s|"),
            (Method::GET, "/api/v1/watch/namespaces/t/secrets", "watch||secrets|t||"),
            (Method::GET, "/api/v1/namespaces/t", "get||namespaces|t|t|"),
            (Method::PUT, "/api/v1/namespaces/t/finalize", "update||namespaces|t|t|finalize"),
            (Method::GET, "/api/v1/namespaces", "list||namespaces|||"),
            (Method::DELETE, "/api/v1/namespaces/t/configmaps", "deletecollection||configmaps|t||"),
            (Method::GET, "/apis/kubevirt.io/v1/virtualmachines", "list|kubevirt.io|virtualmachines|||"),
            (
                Method::PUT,
                "/apis/subresources.kubevirt.io/v1/namespaces/t/virtualmachines/v/start",
                "update|subresources.kubevirt.io|virtualmachines|t|v|start",
            ),
        ] {
            let t = target(method, path);
            let got = [t.verb, &t.group, &t.resource, &t.namespace, &t.name, &t.subresource].join("|");
            assert_eq!(got, wanted, "{path}");
            assert!(t.is_resource);
        }
        assert!(!target(Method::GET, "/apis/kubevirt.io/v1").is_resource);
        assert!(!target(Method::GET, "/healthz").is_resource);
    }
}
