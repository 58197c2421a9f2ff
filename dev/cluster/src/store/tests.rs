use serde_json::json;

use super::*;
use crate::resource::{PODS, SECRETS};

fn secret(name: &str, label: &str) -> (Key, Value) {
    let value = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": "n", "uid": format!("uid-{name}"), "labels": {"l": label}},
    });
    (Key::new(&SECRETS, "n", name), value)
}

#[test]
fn objects_and_versions_survive_a_kill_and_a_torn_line() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), 10).unwrap();
    let (key, value) = secret("a", "1");
    let first = store.create(key.clone(), value.clone()).unwrap();
    store.replace(&key, first.version, value).unwrap();
    let (gone, value) = secret("gone", "1");
    let created = store.create(gone.clone(), value).unwrap();
    store.remove(&gone, created.version, None).unwrap();
    let version = store.version();
    drop(store);
    let path = dir.path().join("objects.log");
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    std::io::Write::write_all(&mut file, b"{\"rv\":99,\"r\":\"/secr").unwrap();

    let store = Store::open(dir.path(), 10).unwrap();
    assert_eq!(store.version(), version);
    let back = store.get(&key).unwrap();
    assert_eq!((back.uid(), back.version), ("uid-a", first.version + 1));
    assert!(store.get(&gone).is_none());
    assert!(store.watch(&SECRETS, version - 1).is_err(), "windows do not survive");
    assert!(store.watch(&SECRETS, version).is_ok());
    let (key, value) = secret("b", "1");
    assert_eq!(store.create(key, value).unwrap().version, version + 1);
}

#[test]
fn compaction_keeps_what_is_alive_and_the_version() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), 10).unwrap();
    for i in 0..40 {
        let (key, value) = secret(&format!("s{i}"), "1");
        let object = store.create(key.clone(), value).unwrap();
        if i % 2 == 0 {
            store.remove(&key, object.version, None).unwrap();
        }
    }
    let version = store.version();
    store.state().compact().unwrap();
    let (key, value) = secret("after", "1");
    store.create(key, value).unwrap();
    drop(store);
    let store = Store::open(dir.path(), 10).unwrap();
    assert_eq!(store.version(), version + 1);
    assert_eq!(store.list(&SECRETS, Some("n")).items.len(), 21);
    assert_eq!(store.count(&SECRETS, "n"), 21);
}

#[tokio::test]
async fn a_watch_sees_every_change_once_and_expires_when_left_behind() {
    let store = Store::in_memory(4);
    let mut slow = store.watch(&SECRETS, store.version()).unwrap();
    let mut quick = store.watch(&SECRETS, store.version()).unwrap();
    for i in 0..10 {
        let (key, value) = secret(&format!("s{i}"), "1");
        let object = store.create(key, value).unwrap();
        assert_eq!(quick.next().await.unwrap().version, object.version);
    }
    let expired = slow.next().await.unwrap_err();
    assert_eq!(expired.asked, 1);
    assert_eq!(expired.to_string(), format!("too old resource version: 1 ({})", store.version() - 4));
}

#[test]
fn an_older_state_is_rebuilt_from_the_window() {
    let store = Store::in_memory(100);
    let (a, value) = secret("a", "1");
    let first = store.create(a.clone(), value.clone()).unwrap();
    let (b, other) = secret("b", "1");
    let second = store.create(b.clone(), other).unwrap();
    let then = store.version();
    store.replace(&a, first.version, value).unwrap();
    store.remove(&b, second.version, None).unwrap();
    let (c, value) = secret("c", "1");
    store.create(c, value).unwrap();
    let names = |listing: Listing| {
        let pairs = listing.items.iter().map(|o| (o.key.name.to_string(), o.version));
        pairs.collect::<Vec<_>>()
    };
    let old = store.list_at(&SECRETS, Some("n"), then).unwrap();
    assert_eq!(names(old), [("a".to_owned(), first.version), ("b".to_owned(), second.version)]);
    assert_eq!(store.list(&SECRETS, None).items.len(), 2);
    assert!(store.list(&PODS, None).items.is_empty());
}

#[test]
fn a_stale_write_changes_nothing() {
    let store = Store::in_memory(10);
    let (key, value) = secret("a", "1");
    let first = store.create(key.clone(), value.clone()).unwrap();
    store.replace(&key, first.version, value.clone()).unwrap();
    let before = store.version();
    assert!(matches!(store.replace(&key, first.version, value.clone()), Err(WriteError::Changed(_))));
    assert!(matches!(store.create(key, value), Err(WriteError::Exists(_))));
    assert_eq!(store.version(), before);
}

#[test]
fn owners_and_dependents_are_indexed() {
    let store = Store::in_memory(10);
    let (key, mut value) = secret("a", "1");
    value["metadata"]["ownerReferences"] = json!([{"uid": "owner", "kind": "Pod", "name": "p"}]);
    let object = store.create(key.clone(), value.clone()).unwrap();
    assert_eq!(store.dependents("owner").len(), 1);
    assert_eq!(store.by_uid("uid-a").unwrap().version, object.version);
    value["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    store.replace(&key, object.version, value).unwrap();
    assert!(store.dependents("owner").is_empty());
}
