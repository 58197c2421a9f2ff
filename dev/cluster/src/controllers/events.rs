//! Events go an hour after they were made, as on a real cluster.

use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::admission::ControllerContext;
use crate::api::{Client, DeleteOptions};
use crate::object;
use crate::resource::EVENTS;

const LIFE: time::Duration = time::Duration::hours(1);
const LOOK: Duration = Duration::from_secs(60);

/// Runs until the shutdown.
pub(super) async fn run(context: ControllerContext) {
    let client = context.cluster.client("system:apiserver");
    loop {
        sweep(&client, crate::clock::now());
        tokio::select! {
            () = context.shutdown.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

fn sweep(client: &Client, now: OffsetDateTime) {
    for event in client.list(&EVENTS, None).items {
        let made = object::text_at(&event.value, "metadata.creationTimestamp");
        let old = OffsetDateTime::parse(made, &Rfc3339).is_ok_and(|made| now - made > LIFE);
        if old && let Err(refusal) = client.delete(&event.key, &DeleteOptions::default()) {
            tracing::debug!(event = %event.key, error = %refusal, "an old event was not deleted");
        }
    }
}
