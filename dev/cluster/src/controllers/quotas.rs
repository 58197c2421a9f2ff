//! `status` of ResourceQuotas, a moment after each change of what they count.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

use super::Later;
use crate::admission::ControllerContext;
use crate::api::Client;
use crate::quota;
use crate::resource::{EVENTS, RESOURCE_QUOTAS};
use crate::store::Change;

/// Runs until the shutdown.
pub(super) async fn run(context: ControllerContext, mut feed: UnboundedReceiver<Arc<Change>>) {
    let client = context.cluster.client("system:serviceaccount:kube-system:resourcequota-controller");
    let mut later: Later<Arc<str>> = Later::new(context.cluster.pace().quota);
    for quota in client.list(&RESOURCE_QUOTAS, None).items {
        later.push(quota.key.namespace.clone());
    }
    loop {
        tokio::select! {
            () = context.shutdown.cancelled() => return,
            change = feed.recv() => {
                let Some(change) = change else { return };
                let key = change.key();
                let has_quota = client.cluster().store().count(&RESOURCE_QUOTAS, &key.namespace) > 0;
                if has_quota && *key.resource != EVENTS {
                    later.push(key.namespace.clone());
                }
            }
            namespace = later.next() => correct(&client, &namespace),
        }
    }
}

fn correct(client: &Client, namespace: &str) {
    for quota in client.list(&RESOURCE_QUOTAS, Some(namespace)).items {
        let result = client.update_status(&quota.key, |current| {
            current["status"] = quota::status(client.cluster().store(), current);
            Ok(())
        });
        if let Err(refusal) = result {
            tracing::debug!(quota = %quota.key, error = %refusal, "the usage was not written");
        }
    }
}
