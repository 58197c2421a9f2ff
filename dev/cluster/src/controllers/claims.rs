//! PersistentVolumeClaims and volumes: binding of a claim to the volume that it names, and their protection in use.
//!
//! Nothing is provisioned here: a claim without a volume stays Pending until somebody (the importer) makes it Bound.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::Later;
use crate::admission::ControllerContext;
use crate::api::Client;
use crate::object;
use crate::resource::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS};
use crate::store::{Change, Key, ObjectRef};

const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

/// Runs until the shutdown.
pub(super) async fn run(context: ControllerContext, mut feed: UnboundedReceiver<Arc<Change>>) {
    let client = context.cluster.client("system:serviceaccount:kube-system:pvc-protection-controller");
    let mut later = Later::new(context.cluster.pace().collect / 5);
    for resource in [&PERSISTENT_VOLUMES, &PERSISTENT_VOLUME_CLAIMS] {
        for object in client.list(resource, None).items {
            later.push(object.key.clone());
        }
    }
    loop {
        tokio::select! {
            () = context.shutdown.cancelled() => return,
            change = feed.recv() => {
                let Some(change) = change else { return };
                note(&client, &change, &mut later);
            }
            key = later.next() => look(&client, &key),
        }
    }
}

fn note(client: &Client, change: &Change, later: &mut Later<Key>) {
    let key = change.key();
    if *key.resource == PERSISTENT_VOLUME_CLAIMS || *key.resource == PERSISTENT_VOLUMES {
        if !change.is_removal() {
            later.push(key.clone());
        }
        if *key.resource == PERSISTENT_VOLUMES {
            for claim in client.list(&PERSISTENT_VOLUME_CLAIMS, None).items {
                if object::text_at(&claim.value, "spec.volumeName") == &*key.name {
                    later.push(claim.key.clone());
                }
            }
        }
    } else if *key.resource == PODS && (change.is_removal() || is_over(&change.object().value)) {
        for name in claims_of(&change.object().value) {
            later.push(Key::new(&PERSISTENT_VOLUME_CLAIMS, &key.namespace, name));
        }
    }
}

fn is_over(pod: &Value) -> bool {
    matches!(object::text_at(pod, "status.phase"), "Succeeded" | "Failed")
}

fn claims_of(pod: &Value) -> Vec<&str> {
    let volumes = object::at(pod, "spec.volumes").and_then(Value::as_array);
    let claims = volumes.into_iter().flatten().map(|v| object::text_at(v, "persistentVolumeClaim.claimName"));
    claims.filter(|name| !name.is_empty()).collect()
}

fn look(client: &Client, key: &Key) {
    let Some(found) = client.find(key) else { return };
    let result = if *key.resource == PERSISTENT_VOLUMES {
        volume(client, &found)
    } else if object::deletion_timestamp(&found.value).is_some() {
        unprotect(client, &found)
    } else {
        bind(client, &found)
    };
    if let Err(refusal) = result.or_else(|e| if e.is_not_found() { Ok(()) } else { Err(e) }) {
        tracing::debug!(object = %key, error = %refusal, "a claim or volume was not changed");
    }
}

fn unprotect(client: &Client, claim: &ObjectRef) -> Result<(), crate::status::Status> {
    let pods = client.list(&PODS, Some(&claim.key.namespace)).items;
    let used = pods.iter().any(|p| !is_over(&p.value) && claims_of(&p.value).contains(&&*claim.key.name));
    if used || !object::finalizers(&claim.value).contains(&CLAIM_PROTECTION) {
        return Ok(());
    }
    client
        .update(&claim.key, |current| {
            object::remove_finalizer(current, CLAIM_PROTECTION);
            Ok(())
        })
        .map(|_| ())
}

fn bind(client: &Client, claim: &ObjectRef) -> Result<(), crate::status::Status> {
    let name = object::text_at(&claim.value, "spec.volumeName");
    if name.is_empty() || object::text_at(&claim.value, "status.phase") == "Bound" {
        return Ok(());
    }
    let Some(volume) = client.find(&Key::new(&PERSISTENT_VOLUMES, "", name)) else { return Ok(()) };
    client.update(&volume.key, |current| {
        object::child_mut(current, "spec").entry("claimRef").or_insert_with(|| {
            json!({
                "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": &*claim.key.namespace,
                "name": &*claim.key.name, "uid": claim.uid(), "resourceVersion": claim.version.to_string(),
            })
        });
        Ok(())
    })?;
    client.update_status(&volume.key, |current| {
        object::child_mut(current, "status").insert("phase".into(), "Bound".into());
        Ok(())
    })?;
    client.update(&claim.key, |current| {
        let annotations = object::meta_mut(current).entry("annotations").or_insert_with(|| json!({}));
        annotations["pv.kubernetes.io/bind-completed"] = "yes".into();
        Ok(())
    })?;
    let spec = &volume.value["spec"];
    client
        .update_status(&claim.key, |current| {
            current["status"] = json!({
                "phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"],
            });
            Ok(())
        })
        .map(|_| ())
}

fn volume(client: &Client, volume: &ObjectRef) -> Result<(), crate::status::Status> {
    let phase = object::text_at(&volume.value, "status.phase");
    if object::deletion_timestamp(&volume.value).is_some() {
        if phase == "Bound" {
            return Ok(());
        }
        return client
            .update(&volume.key, |current| {
                object::remove_finalizer(current, VOLUME_PROTECTION);
                Ok(())
            })
            .map(|_| ());
    }
    if phase != "Pending" {
        return Ok(());
    }
    client
        .update_status(&volume.key, |current| {
            let status = object::child_mut(current, "status");
            status.insert("phase".into(), "Available".into());
            status.insert("lastPhaseTransitionTime".into(), object::now().into());
            Ok(())
        })
        .map(|_| ())
}
