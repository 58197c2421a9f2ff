//! Namespaces: what each one gets, and how one goes.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;

use super::Later;
use crate::admission::ControllerContext;
use crate::api::{Client, DeleteOptions};
use crate::object;
use crate::resource::{CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS, TABLE};
use crate::store::{Change, Key};

const ROOT_CA: &str = "kube-root-ca.crt";
const ROOT_CA_TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                            endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                            guaranteed across distributions of Kubernetes clusters.";

/// Runs until the shutdown.
pub(super) async fn run(context: ControllerContext, mut feed: UnboundedReceiver<Arc<Change>>) {
    let client = context.cluster.client("system:serviceaccount:kube-system:namespace-controller");
    let mut first = Later::new(context.cluster.pace().collect);
    let mut again = Later::new(context.cluster.pace().namespace);
    for namespace in client.list(&NAMESPACES, None).items {
        first.push(namespace.key.name.clone());
    }
    loop {
        let name = tokio::select! {
            () = context.shutdown.cancelled() => return,
            change = feed.recv() => {
                let Some(change) = change else { return };
                if *change.key().resource == NAMESPACES && !change.is_removal() {
                    first.push(change.key().name.clone());
                } else if change.is_removal() && *change.key().resource == CONFIG_MAPS
                    && &*change.key().name == ROOT_CA
                {
                    first.push(change.key().namespace.clone());
                }
                continue;
            }
            name = first.next() => name,
            name = again.next() => name,
        };
        if !look(&client, &name) {
            again.push(name);
        }
    }
}

/// Fills a new namespace, empties one that is being deleted. `false`: look again.
fn look(client: &Client, name: &str) -> bool {
    let key = Key::new(&NAMESPACES, "", name);
    let Some(namespace) = client.find(&key) else { return true };
    if object::deletion_timestamp(&namespace.value).is_none() {
        fill(client, name);
        return true;
    }
    let mut found = 0;
    for resource in TABLE.iter().filter(|r| r.namespaced && !r.review) {
        for object in client.list(resource, Some(name)).items {
            found += 1;
            if object::deletion_timestamp(&object.value).is_none()
                && let Err(refusal) = client.delete(&object.key, &DeleteOptions::default())
            {
                tracing::debug!(object = %object.key, error = %refusal, "not deleted with its namespace");
            }
        }
    }
    if found > 0 {
        return false;
    }
    client.finish_namespace(&key).is_ok()
}

fn fill(client: &Client, name: &str) {
    if client.find(&Key::new(&SERVICE_ACCOUNTS, name, "default")).is_none() {
        let account = json!({"metadata": {"name": "default"}});
        if let Err(refusal) = client.create(&SERVICE_ACCOUNTS, name, account) {
            tracing::debug!(namespace = name, error = %refusal, "no default account");
        }
    }
    if client.find(&Key::new(&CONFIG_MAPS, name, ROOT_CA)).is_none() {
        let map = json!({
            "metadata": {"name": ROOT_CA, "annotations": {"kubernetes.io/description": ROOT_CA_TEXT}},
            "data": {"ca.crt": ""},
        });
        if let Err(refusal) = client.create(&CONFIG_MAPS, name, map) {
            tracing::debug!(namespace = name, error = %refusal, "no root certificate");
        }
    }
}
