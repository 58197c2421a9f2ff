//! Collection by owner.
//!
//! An object goes when none of its owners exists any more (same uid, same namespace); references to absent owners are
//! taken out where another owner lives. An owner of a kind that the cluster does not know is left alone, as is its
//! dependent. Foreground deletion waits for the dependents that block it, orphaning frees them.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::Later;
use crate::admission::ControllerContext;
use crate::api::{Client, DeleteOptions, Propagation};
use crate::object::{self, OwnerReference};
use crate::resource::{self, TABLE};
use crate::status::Status;
use crate::store::{Change, Key, ObjectRef, Store};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// What to look at again.
#[derive(Debug, PartialEq)]
enum Look {
    /// Has this object lost its owners?
    Dependent(Key),
    /// May this owner, which is being deleted, go on?
    Owner(Key),
}

/// Runs until the shutdown.
pub(super) async fn run(context: ControllerContext, mut feed: UnboundedReceiver<Arc<Change>>) {
    let client = context.cluster.client("system:serviceaccount:kube-system:generic-garbage-collector");
    let mut later = Later::new(context.cluster.pace().collect);
    for resource in TABLE.iter().filter(|r| !r.review) {
        for object in client.list(resource, None).items {
            note(&object, &mut later);
        }
    }
    loop {
        tokio::select! {
            () = context.shutdown.cancelled() => return,
            change = feed.recv() => match change {
                Some(change) => follow(&client, &change, &mut later),
                None => return,
            },
            look = later.next() => match look {
                Look::Dependent(key) => check_dependent(&client, &key),
                Look::Owner(key) => check_owner(&client, &key, &mut later),
            },
        }
    }
}

fn note(object: &ObjectRef, later: &mut Later<Look>) {
    if !object::owner_references(&object.value).is_empty() {
        later.push(Look::Dependent(object.key.clone()));
    }
    let held = object::finalizers(&object.value);
    if object::deletion_timestamp(&object.value).is_some()
        && (held.contains(&FOREGROUND) || held.contains(&ORPHAN))
    {
        later.push(Look::Owner(object.key.clone()));
    }
}

fn follow(client: &Client, change: &Change, later: &mut Later<Look>) {
    let store = client.cluster().store();
    match &change.after {
        Some(after) => {
            let references = |o: &Option<ObjectRef>| o.as_ref().map(|o| object::owner_references(&o.value));
            let news =
                references(&change.before).unwrap_or_default() != object::owner_references(&after.value);
            let deleting = object::deletion_timestamp(&after.value).is_some();
            if news || deleting {
                note(after, later);
            }
        }
        None => {
            let gone = change.object();
            for dependent in store.dependents(gone.uid()) {
                later.push(Look::Dependent(dependent.key.clone()));
            }
            for owner in object::owner_references(&gone.value) {
                if let Some(owner) = store.by_uid(&owner.uid) {
                    note(&owner, later);
                }
            }
        }
    }
}

enum Owner {
    /// It lives.
    Solid,
    /// It lives, but waits for its dependents to go first.
    Waiting,
    /// It does not exist.
    Absent,
    /// Nobody can tell.
    Unknown,
}

fn look_up(store: &Store, dependent: &ObjectRef, reference: &OwnerReference) -> Owner {
    let Some(resource) = resource::find_kind(&reference.api_version, &reference.kind) else {
        return Owner::Unknown;
    };
    let namespace = if resource.namespaced { &*dependent.key.namespace } else { "" };
    let owner = store.get(&Key::new(resource, namespace, &reference.name));
    match owner.filter(|o| o.uid() == reference.uid) {
        None => Owner::Absent,
        Some(owner) => {
            let foreground = object::deletion_timestamp(&owner.value).is_some()
                && object::finalizers(&owner.value).contains(&FOREGROUND);
            if foreground { Owner::Waiting } else { Owner::Solid }
        }
    }
}

fn check_dependent(client: &Client, key: &Key) {
    let Some(object) = client.find(key) else { return };
    if object::deletion_timestamp(&object.value).is_some() {
        return;
    }
    let store = client.cluster().store();
    let references = object::owner_references(&object.value);
    let (mut solid, mut going) = (0, Vec::new());
    for reference in &references {
        match look_up(store, &object, reference) {
            Owner::Unknown => return,
            Owner::Solid => solid += 1,
            Owner::Waiting | Owner::Absent => going.push(reference.uid.clone()),
        }
    }
    if going.is_empty() {
        return;
    }
    let result = if solid > 0 {
        client.update(key, |current| without_owners(current, &going)).map(|_| ())
    } else {
        warn_of_other_namespace(client, &object, &references);
        let options = DeleteOptions {
            propagation: Some(Propagation::Background),
            uid: Some(object.uid().to_owned()),
            ..DeleteOptions::default()
        };
        client.delete(key, &options).map(|_| ())
    };
    report(key, result);
}

fn without_owners(object: &mut Value, uids: &[String]) -> Result<(), Status> {
    let meta = object::meta_mut(object);
    if let Some(list) = meta.get_mut("ownerReferences").and_then(Value::as_array_mut) {
        list.retain(|r| {
            let uid = r.get("uid").and_then(Value::as_str).unwrap_or_default();
            !uids.iter().any(|gone| gone == uid)
        });
        if list.is_empty() {
            meta.remove("ownerReferences");
        }
    }
    Ok(())
}

fn warn_of_other_namespace(client: &Client, object: &ObjectRef, references: &[OwnerReference]) {
    for reference in references {
        let elsewhere = client.cluster().store().by_uid(&reference.uid);
        if elsewhere.is_some_and(|o| o.key.namespace != object.key.namespace && !o.key.namespace.is_empty()) {
            let text = format!(
                "ownerRef [{}/{}, namespace: {ns}, name: {}, uid: {}] does not exist in namespace \"{ns}\"",
                reference.api_version,
                reference.kind,
                reference.name,
                reference.uid,
                ns = object.key.namespace,
            );
            let component = "garbage-collector-controller";
            client.event(&object.value, "Warning", "OwnerRefInvalidNamespace", &text, component);
        }
    }
}

fn check_owner(client: &Client, key: &Key, later: &mut Later<Look>) {
    let Some(owner) = client.find(key) else { return };
    if object::deletion_timestamp(&owner.value).is_none() {
        return;
    }
    let held = object::finalizers(&owner.value);
    let dependents = client.cluster().store().dependents(owner.uid());
    if held.contains(&ORPHAN) {
        for dependent in dependents {
            let uids = [owner.uid().to_owned()];
            let freed = client.update(&dependent.key, |current| without_owners(current, &uids));
            report(&dependent.key, freed.map(|_| ()));
        }
        release(client, key, ORPHAN);
    } else if held.contains(&FOREGROUND) {
        let blocks = |dependent: &&ObjectRef| {
            let references = object::owner_references(&dependent.value);
            references.iter().any(|r| r.uid == owner.uid() && r.block_owner_deletion)
        };
        let blocking: Vec<&ObjectRef> = dependents.iter().filter(blocks).collect();
        if blocking.is_empty() {
            release(client, key, FOREGROUND);
        }
        for dependent in blocking {
            later.push(Look::Dependent(dependent.key.clone()));
        }
    }
}

fn release(client: &Client, key: &Key, finalizer: &str) {
    let released = client.update(key, |current| {
        object::remove_finalizer(current, finalizer);
        Ok(())
    });
    report(key, released.map(|_| ()));
}

/// Gone meanwhile is what was wanted; another refusal is seen again at the next change.
fn report(key: &Key, result: Result<(), Status>) {
    if let Err(refusal) = result.or_else(|e| if e.is_not_found() { Ok(()) } else { Err(e) }) {
        tracing::debug!(object = %key, error = %refusal, "the collector was refused");
    }
}
