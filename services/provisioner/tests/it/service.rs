//! The journey of a request.

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use lab_bus::event::Kind;
use lab_domain::{MachineName, id::object_name, token::TokenKey};
use lab_kubevirt::{DataVolume, labels};
use lab_proto::v1;
use lab_testkit::{NAMESPACE, wait_for};
use serde_json::json;

use crate::world::{IMAGE, LIMIT, World, digest, installation};

fn disk(fact: &Kind) -> (v1::DiskKind, &str) {
    let Kind::MachineProvisioned(f) = fact else { panic!("{fact:?}") };
    (f.disk(), f.disk_reason.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_session_gets_its_secret_and_its_machine() {
    let world = World::start().await;
    let _provisioner = world.provisioner("1h");
    let session = world.know(&world.digest);
    world.request(session).await;
    let fact = world.wait_fact(session, "machine-provisioned").await;
    assert_eq!(disk(&fact), (v1::DiskKind::Container, "golden_missing"));
    assert_eq!(
        world.book.facts_of(session),
        ["session-requested", "provisioning-started", "machine-provisioned"]
    );

    let main = MachineName::new("main").unwrap();
    let name = object_name(session, &main);
    let vm = world.vms().get(&name).await.unwrap();
    let secret = world.secrets().get(&name).await.unwrap();
    assert!(installation().identity(&vm.metadata).is_some_and(|i| i.session == session));
    assert!(installation().owns(&secret.metadata));
    let owners = secret.metadata.owner_references.unwrap();
    assert_eq!(Some(&owners[0].uid), vm.metadata.uid.as_ref());
    let key = TokenKey::new(b"a key of at least sixteen bytes".to_vec()).unwrap();
    assert_eq!(labels::annotation(&vm.metadata, labels::TOKEN_KEY), Some(key.id().as_str()));
    let userdata = String::from_utf8(secret.data.unwrap().remove("userdata").unwrap().0).unwrap();
    assert!(userdata.contains(&key.token(session, &main)));
    // The machine is one that KubeVirt can start.
    wait_for("the machine to run", LIMIT, async || {
        world.vms().get(&name).await.unwrap().printable_status() == Some("Running")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_golden_disk_is_taken_once_it_is_there() {
    let world = World::start().await;
    let _provisioner = world.provisioner("1h");
    let volumes: Api<DataVolume> = Api::namespaced(world.admin.clone(), NAMESPACE);
    let volume: DataVolume = serde_json::from_value(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {
            "name": format!("golden-{}", &IMAGE[..16]),
            "annotations": {labels::IMAGE_DIGEST: format!("sha256:{IMAGE}")},
        },
        "spec": {
            "source": {"registry": {"url": format!("docker://ttlab.local/debian-12@sha256:{IMAGE}")}},
            "storage": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
        },
    }))
    .unwrap();
    volumes.create(&PostParams::default(), &volume).await.unwrap();
    let name = volume.metadata.name.unwrap();
    wait_for("the import", LIMIT, async || volumes.get(&name).await.unwrap().is_filled()).await;
    let session = world.know(&world.digest);
    world.request(session).await;
    let fact = world.wait_fact(session, "machine-provisioned").await;
    assert_eq!(disk(&fact), (v1::DiskKind::Golden, "asked"));
    let vm = object_name(session, &MachineName::new("main").unwrap());
    wait_for("the machine to run", LIMIT, async || {
        world.vms().get(&vm).await.unwrap().printable_status() == Some("Running")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_event_is_lost_is_found_by_the_look() {
    let world = World::start().await;
    let _provisioner = world.provisioner("200ms");
    let session = world.know(&world.digest);
    world.wait_fact(session, "machine-provisioned").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_make_one_machine_each_and_a_killed_one_is_taken_over() {
    let world = World::start().await;
    let (one, _two) = (world.provisioner("200ms"), world.provisioner("200ms"));
    let sessions: Vec<_> = (0..12).map(|_| world.know(&world.digest)).collect();
    for session in &sessions {
        world.request(*session).await;
    }
    one.token.cancel();
    for session in &sessions {
        world.wait_fact(*session, "machine-provisioned").await;
        assert_eq!(world.book.fact(*session, "provision-failed"), None);
    }
    let all = world.vms().list(&kube::api::ListParams::default()).await.unwrap();
    assert_eq!(all.items.len(), sessions.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_quota_is_waited_for() {
    let world = World::start().await;
    let _provisioner = world.provisioner("300ms");
    let quotas: Api<ResourceQuota> = Api::namespaced(world.admin.clone(), NAMESPACE);
    let set = async |most: &str| {
        let hard = json!({"spec": {"hard": {"count/virtualmachines.kubevirt.io": most}}});
        quotas.patch("ttlab-machines", &PatchParams::default(), &Patch::Merge(hard)).await.unwrap();
    };
    set("0").await;
    let session = world.know(&world.digest);
    world.request(session).await;
    let name = object_name(session, &MachineName::new("main").unwrap());
    wait_for("the Secret", LIMIT, async || world.secrets().get_opt(&name).await.unwrap().is_some()).await;
    assert_eq!(world.vms().get_opt(&name).await.unwrap(), None);
    assert_eq!(world.book.fact(session, "provision-failed"), None);
    set("64").await;
    world.wait_fact(session, "machine-provisioned").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ended_before_its_request_was_heard_gets_nothing() {
    let world = World::start().await;
    let ended = world.know(&world.digest);
    world.end(ended);
    world.request(ended).await;
    let other = world.know(&world.digest);
    world.request(other).await;
    let _provisioner = world.provisioner("200ms");
    world.wait_fact(other, "machine-provisioned").await;
    assert_eq!(world.book.facts_of(ended), ["session-requested"]);
    assert_eq!(world.vms().list(&kube::api::ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lab_that_was_changed_just_now_is_read_again() {
    let world = World::start().await;
    let _provisioner = world.provisioner("1h");
    let first = world.know(&world.digest);
    world.request(first).await;
    world.wait_fact(first, "machine-provisioned").await;
    std::fs::write(world.dir.path().join("labs/try-it/prepare.sh"), "#!/bin/sh\nexit 0\n").unwrap();
    let changed = digest(world.dir.path());
    assert_ne!(changed, world.digest);
    let (new, old) = (world.know(&changed), world.know(&world.digest));
    world.request(new).await;
    world.request(old).await;
    world.wait_fact(new, "machine-provisioned").await;
    // Who started with the old content still gets it.
    world.wait_fact(old, "machine-provisioned").await;
}
