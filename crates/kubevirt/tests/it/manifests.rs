//! Snapshots of everything we create, and their check against the real schema.

use lab_domain::{Digest, InstallationId, SessionId, disk::DiskReason};
use lab_kubevirt::{
    Installation,
    manifest::{Machine, RootDisk, SessionNetwork, Subject, disk_of, owner_patch},
};
use serde_json::{Value, json};

use crate::{openapi, read};

fn machine(disk: RootDisk, disk_reason: DiskReason) -> Machine {
    let session: SessionId = "0198f6c4-7b1c-7c3e-8f00-000000abcdef".parse().unwrap();
    Machine {
        subject: Subject {
            installation: Installation {
                environment: "dev".parse().unwrap(),
                id: InstallationId("6f1c9a52-2f0e-4d0b-9b51-74746c616276".parse().unwrap()),
            },
            session,
            machine: "main".parse().unwrap(),
            lab: "systemd-repair".parse().unwrap(),
        },
        lab_digest: Digest::new("cd".repeat(32)).unwrap(),
        image: image(),
        hostname: "main-00abcdef".to_owned(),
        cpus: 1,
        memory: "512Mi".to_owned(),
        disk,
        disk_reason,
        token_key: "0badcafe".to_owned(),
        resolvers: vec!["1.1.1.1".parse().unwrap(), "9.9.9.9".parse().unwrap()],
        session_network: None,
    }
}

fn image() -> Digest {
    Digest::new("ab".repeat(32)).unwrap()
}

fn on_golden() -> Machine {
    machine(RootDisk::Golden { claim: "golden-abababababababab".to_owned() }, DiskReason::Asked)
}

fn on_container() -> Machine {
    let image = format!("ttlab.local/debian-12@sha256:{}", image());
    machine(RootDisk::Container { image }, DiskReason::GoldenMissing)
}

fn on_data_volume() -> Machine {
    let url = format!("docker://ttlab.local/debian-12@sha256:{}", image());
    machine(RootDisk::DataVolume { url, size: "2Gi".to_owned() }, DiskReason::Asked)
}

fn in_a_session_network() -> Machine {
    let network = SessionNetwork { attachment: "lab-net".to_owned(), mac: "02:00:00:00:00:01".to_owned() };
    Machine { session_network: Some(network), ..on_golden() }
}

#[test]
fn the_vm_on_a_golden_disk() {
    insta::assert_yaml_snapshot!(on_golden().virtual_machine(false));
}

#[test]
fn the_vm_on_a_container_disk() {
    insta::assert_yaml_snapshot!(on_container().virtual_machine(false).spec.template.spec.volumes);
}

#[test]
fn the_vm_on_a_disk_of_its_own() {
    let vm = on_data_volume().virtual_machine(false);
    insta::assert_yaml_snapshot!((vm.spec.data_volume_templates, vm.spec.template.spec.volumes));
}

#[test]
fn the_vm_in_a_session_network() {
    let vm = in_a_session_network().virtual_machine(true);
    let spec = vm.spec.template.spec;
    insta::assert_yaml_snapshot!((spec.domain.devices.interfaces, spec.networks, spec.volumes));
}

#[test]
fn the_secret() {
    insta::assert_yaml_snapshot!(on_golden().subject.secret(
        "0badcafe",
        "#cloud-config\n{}\n",
        Some("version: 2\n")
    ));
}

#[test]
fn the_owner_patch_names_both_uids() {
    let patch = owner_patch("lab-x-main", "vm-uid", "secret-uid");
    assert_eq!(
        patch,
        json!({"metadata": {"uid": "secret-uid", "ownerReferences": [
            {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "lab-x-main", "uid": "vm-uid"}]}})
    );
}

#[test]
fn an_existing_vm_tells_its_disk() {
    let choice = disk_of(&on_container().virtual_machine(false)).unwrap();
    assert_eq!(choice.kind.as_str(), "container");
    assert_eq!(choice.reason, DiskReason::GoldenMissing);
    let mut bare = on_container().virtual_machine(false);
    bare.metadata.annotations = None;
    assert_eq!(disk_of(&bare), None);
}

#[test]
fn every_vm_fits_the_schema_of_a_real_cluster() {
    let Some(document) = read("openapi/kubevirt.io-v1.json") else { return };
    for machine in [on_golden(), on_container(), on_data_volume(), in_a_session_network()] {
        let vm = serde_json::to_value(machine.virtual_machine(true)).unwrap();
        let faults = openapi::faults(&document, "io.kubevirt.v1.VirtualMachine", &vm);
        assert_eq!(faults, Vec::<String>::new());
    }
}

#[test]
fn the_schema_check_sees_what_a_server_would_drop() {
    let Some(document) = read("openapi/kubevirt.io-v1.json") else { return };
    let mut vm = serde_json::to_value(on_golden().virtual_machine(false)).unwrap();
    let spec = &mut vm["spec"]["template"]["spec"];
    spec["domain"]["devices"]["logSerialConsol"] = json!(false);
    spec["terminationGracePeriodSeconds"] = json!("5");
    spec["volumes"][0]["ephemeral"]["persistentVolumeClaim"]["claimName"] = Value::Null;
    spec["domain"].as_object_mut().unwrap().remove("devices");
    let faults = openapi::faults(&document, "io.kubevirt.v1.VirtualMachine", &vm);
    assert_eq!(faults.len(), 3, "{faults:?}");
}
