//! Watch streams.
//!
//! A stream is: synthetic ADDED events of what is there (unless it starts from a version), a bookmark that ends them
//! where that was asked for, then changes as they come, bookmarks while it is quiet, and a clean end at
//! `timeoutSeconds`. A version before the window is answered with 200 and one ERROR event (410), as the real server
//! does. Events always carry whole objects, also where only metadata was asked for (recorded so).

use std::collections::VecDeque;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::StatusCode;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::json_response;
use super::path::{Query, Target};
use super::read::{check_options, parse_version};
use crate::api::Cluster;
use crate::object;
use crate::resource::Resource;
use crate::selector::Selector;
use crate::status::Status;
use crate::store::{Change, Expired, ObjectRef, Watch};

/// Frames sent in one piece at most.
const BATCH: usize = 64 * 1024;

/// Answers a watch.
pub(super) fn watch(
    cluster: &Cluster,
    resource: &'static Resource,
    target: &Target,
    query: &Query,
    shutdown: CancellationToken,
) -> Result<Response, Status> {
    check_options(query, true)?;
    let selector = Selector::parse(resource, query.get("labelSelector"), query.get("fieldSelector"))
        .map_err(Status::bad_request)?;
    let version = query.get("resourceVersion");
    let asked = parse_version(version).map_err(|text| Status::new(500, "", text, None))?;
    let bookmarks = query.flag("allowWatchBookmarks");
    let initial = query.optional_flag("sendInitialEvents");
    let seconds = query.number("timeoutSeconds").filter(|s| *s > 0);
    let timeout = Duration::from_secs(seconds.unwrap_or_else(|| rand::random_range(1800..3600)));
    let namespace = Some(target.namespace.clone()).filter(|ns| !ns.is_empty());

    let synthetic = initial.unwrap_or(asked == 0);
    let listing = cluster.store().list(resource, namespace.as_deref());
    let from = if synthetic || asked == 0 { listing.version } else { asked };
    let mut ready = VecDeque::new();
    if synthetic {
        for object in listing.items.iter().filter(|o| selector.matches(&o.value)) {
            ready.push_back(frame("ADDED", &object.json));
        }
        if bookmarks && (initial == Some(true) || version == "0") {
            ready.push_back(bookmark(resource, listing.version, true));
        }
    }
    let source = match cluster.store().watch(resource, from) {
        Ok(source) => Some(source),
        Err(expired) => {
            ready = VecDeque::from([gone(expired)]);
            None
        }
    };
    let now = Instant::now();
    let stream = Stream {
        resource,
        namespace,
        selector,
        source,
        ready,
        shutdown,
        ends: now + timeout,
        every: cluster.pace().bookmark,
        bookmark: bookmarks.then(|| first_bookmark(now, timeout, cluster.pace().bookmark)),
    };
    let frames = futures::stream::unfold(stream, |mut stream| async move {
        let bytes = stream.next().await?;
        Some((Ok::<_, std::convert::Infallible>(bytes), stream))
    });
    Ok(json_response(StatusCode::OK, Body::from_stream(frames)))
}

/// One bookmark comes shortly before the end, so that the client resumes from there.
fn first_bookmark(now: Instant, timeout: Duration, every: Duration) -> Instant {
    let early = Duration::from_millis(rand::random_range(1000..2000));
    now + every.min(timeout.saturating_sub(early))
}

struct Stream {
    resource: &'static Resource,
    namespace: Option<String>,
    selector: Selector,
    source: Option<Watch>,
    ready: VecDeque<Bytes>,
    shutdown: CancellationToken,
    ends: Instant,
    every: Duration,
    bookmark: Option<Instant>,
}

impl Stream {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.take_ready() {
                return Some(bytes);
            }
            let Some(source) = &mut self.source else { return None };
            let marked = self.bookmark.unwrap_or(self.ends);
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return None,
                change = source.next() => match change {
                    Ok(change) => self.show(&change),
                    Err(expired) => {
                        self.ready.push_back(gone(expired));
                        self.source = None;
                    }
                },
                () = tokio::time::sleep_until(marked.min(self.ends)) => {
                    if Instant::now() >= self.ends {
                        return None;
                    }
                    if let Some(version) = source.caught_up() {
                        self.ready.push_back(bookmark(self.resource, version, false));
                    }
                    let now = Instant::now();
                    let left = self.ends.saturating_duration_since(now);
                    self.bookmark = Some(if left > Duration::from_secs(2) {
                        first_bookmark(now, left, self.every)
                    } else {
                        self.ends
                    });
                }
            }
        }
    }

    /// Everything that is ready, in one piece up to a limit.
    fn take_ready(&mut self) -> Option<Bytes> {
        let first = self.ready.pop_front()?;
        if self.ready.is_empty() || first.len() >= BATCH {
            return Some(first);
        }
        let mut out = BytesMut::from(first);
        while out.len() < BATCH
            && let Some(next) = self.ready.pop_front()
        {
            out.put_slice(&next);
        }
        Some(out.freeze())
    }

    fn show(&mut self, change: &Change) {
        if self.namespace.as_deref().is_some_and(|ns| ns != &*change.key().namespace) {
            return;
        }
        let matches =
            |object: &Option<ObjectRef>| object.as_ref().is_some_and(|o| self.selector.matches(&o.value));
        let (before, after) = (matches(&change.before), matches(&change.after));
        let bytes = match (before, after) {
            (false, true) => frame("ADDED", &change.object().json),
            (true, true) => frame("MODIFIED", &change.object().json),
            (true, false) if change.is_removal() => frame("DELETED", &change.object().json),
            (true, false) => match &change.before {
                // It left the selector: its last matching state, at the version of the change.
                Some(before) => {
                    let mut left = before.value.clone();
                    object::meta_mut(&mut left)
                        .insert("resourceVersion".into(), change.version.to_string().into());
                    frame("DELETED", left.to_string().as_bytes())
                }
                None => return,
            },
            (false, false) => return,
        };
        self.ready.push_back(bytes);
    }
}

fn frame(kind: &str, object: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(object.len() + 40);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(object);
    out.put_slice(b"}\n");
    out.freeze()
}

fn bookmark(resource: &Resource, version: u64, ends_initial: bool) -> Bytes {
    let mut object = json!({
        "kind": resource.kind, "apiVersion": resource.api_version(),
        "metadata": {"resourceVersion": version.to_string()},
    });
    if ends_initial {
        object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    frame("BOOKMARK", object.to_string().as_bytes())
}

fn gone(expired: Expired) -> Bytes {
    let status = Status::new(410, "Expired", expired.to_string(), None);
    frame("ERROR", status.to_json().to_string().as_bytes())
}
