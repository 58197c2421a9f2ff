//! The states that a watcher sees, and the objects that a reader gets, against what was recorded on the real thing.

use std::sync::{Arc, Mutex};

use http_body_util::BodyExt as _;
use serde_json::json;
use tokio_util::task::TaskTracker;

use super::recorded::{differences, live_story, plain, read, story};
use super::*;

/// What watches of VMs, instances and pods told.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(String, Value)>>>);

impl Seen {
    /// Begins to watch; everything from now on is kept.
    async fn begin(lab: &Lab) -> Self {
        let seen = Self::default();
        let tracker = TaskTracker::new();
        for resource in ["virtualmachines", "virtualmachineinstances", "pods"] {
            let list = lab.call(Method::GET, &path(resource, ""), None).await.json();
            let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            let at = format!("{}?watch=true&resourceVersion={version}", path(resource, ""));
            let request = lab
                .request(Method::GET, &at)
                .header("Authorization", format!("Bearer {}", lab.admin))
                .body(axum::body::Body::empty())
                .unwrap();
            let mut body = lab.send(request).await.into_body();
            let kept = seen.clone();
            tracker.spawn(async move {
                let mut line = Vec::new();
                while let Some(Ok(frame)) = body.frame().await {
                    for byte in frame.into_data().unwrap_or_default() {
                        if byte != b'\n' {
                            line.push(byte);
                            continue;
                        }
                        let event: Value = serde_json::from_slice(&std::mem::take(&mut line)).unwrap();
                        let kind = event["type"].as_str().unwrap().to_owned();
                        kept.0.lock().unwrap().push((kind, event["object"].clone()));
                    }
                }
            });
        }
        seen
    }

    fn all(&self) -> Vec<(String, Value)> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until the story of an object is as recorded; else shows both.
    async fn tells(&self, kind: &str, name: &str, recorded: &[String]) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let live = live_story(&self.all(), kind, name);
            if live == recorded {
                return;
            }
            let shown = |story: &[String]| story.join("\n    ");
            assert!(
                Instant::now() < deadline,
                "{kind} {name}\n  recorded:\n    {}\n  live:\n    {}",
                shown(recorded),
                shown(&live)
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The VM of these recordings.
fn recorded_vm(name: &str, volumes: Value) -> Value {
    let disks: Vec<Value> = volumes
        .as_array()
        .unwrap()
        .iter()
        .map(|volume| json!({"name": volume["name"], "disk": {"bus": "virtio"}}))
        .collect();
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name, "labels": {}},
        "spec": {"runStrategy": "Always", "template": {
            "metadata": {"labels": {"kubevirt.io/vm": name}},
            "spec": {
                "domain": {"devices": {"disks": disks}, "resources": {"requests": {"memory": "128Mi"}}},
                "volumes": volumes,
            },
        }},
    })
}

fn container_disk() -> Value {
    json!({"name": "root", "containerDisk": {"image": "quay.io/kubevirt/cirros-container-disk-demo:v1.9.0"}})
}

fn rule(name: &str, behaviour: Value) -> Value {
    json!({"labels": {"kubevirt.io/vm": name}, "behaviour": behaviour})
}

/// A GET as recorded against the live object.
async fn reads_as(lab: &Lab, recording: &str, resource: &str, name: &str) {
    let Some(recorded) = read(recording) else { return };
    let names = [("t10", NAMESPACE), ("fake1", "ttlab-node")];
    let recorded = plain(&recorded["response"]["body"], &names);
    let live = plain(&lab.call(Method::GET, &path(resource, name), None).await.json(), &[]);
    let found = differences(&recorded, &live);
    assert!(found.is_empty(), "{recording}\n{}", found.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn vm_without_a_node_starts_and_is_deleted_as_recorded() {
    let (Some(start), Some(end)) =
        (read("1001-timeline-vm-start-no-node"), read("1012-timeline-vm-delete-unscheduled"))
    else {
        return;
    };
    let lab = lab().await;
    let why = "no nodes available to schedule pods";
    set_rules(&lab, json!({"rules": [rule("a1", json!({"unschedulable": why}))]})).await;
    let seen = Seen::begin(&lab).await;
    let ci = json!({"name": "ci", "cloudInitNoCloud": {"secretRef": {"name": "vm-userdata"}}});
    lab.create(&path("virtualmachines", ""), recorded_vm("a1", json!([container_disk(), ci]))).await;
    for (kind, of, name) in [
        ("VirtualMachine", "VM", "a1"),
        ("VirtualMachineInstance", "VMI", "a1"),
        ("Pod", "Pod", "virt-launcher-a1"),
    ] {
        seen.tells(kind, name, &start_as_halted(story(&start, of, name, "create VM a1"))).await;
    }
    reads_as(&lab, "1002-get-vm-unschedulable", "virtualmachines", "a1").await;
    reads_as(&lab, "1003-get-vmi-unschedulable", "virtualmachineinstances", "a1").await;
    let seen = Seen::begin(&lab).await;
    delete(&lab, "virtualmachines", "a1").await;
    for (kind, of, name) in [("VirtualMachine", "VM", "a1"), ("VirtualMachineInstance", "VMI", "a1")] {
        seen.tells(kind, name, &story(&end, of, name, "DELETE VM a1")).await;
    }
}

/// In one recording of several the VM says `Starting` before it has seen its instance, else `Stopped`.
fn start_as_halted(story: Vec<String>) -> Vec<String> {
    let early = |line: &String| line.starts_with("Starting Ready=VMINotExists");
    story
        .into_iter()
        .map(|line| if early(&line) { line.replace("Starting", "Stopped") } else { line })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn vm_starts_runs_and_is_halted_as_recorded() {
    let Some(recorded) = read("1089-timeline-vm-halt") else { return };
    let lab = lab().await;
    let seen = Seen::begin(&lab).await;
    lab.create(&path("virtualmachines", ""), recorded_vm("h1", json!([container_disk()]))).await;
    until(&lab, "virtualmachines", "h1", "ready", |vm| vm["status"]["ready"] == true).await;
    let halt = json!({"spec": {"runStrategy": "Halted"}});
    assert_eq!(
        lab.call(Method::PATCH, &path("virtualmachines", "h1"), Some(halt)).await.code,
        StatusCode::OK
    );
    for (kind, of, name) in [("VirtualMachine", "VM", "h1"), ("VirtualMachineInstance", "VMI", "h1")] {
        seen.tells(kind, name, &story(&recorded, of, name, "create VM h1")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn running_vm_is_edited_and_deleted_as_recorded() {
    let Some(recorded) = read("1081-timeline-delete-running-vm") else { return };
    let lab = lab().await;
    lab.create(&path("secrets", ""), secret("vm-userdata")).await;
    let ci = json!({"name": "ci", "cloudInitNoCloud": {"secretRef": {"name": "vm-userdata"}}});
    lab.create(&path("virtualmachines", ""), recorded_vm("r1", json!([container_disk(), ci]))).await;
    until(&lab, "virtualmachines", "r1", "ready", |vm| vm["status"]["ready"] == true).await;
    let grace = json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}});
    assert_eq!(
        lab.call(Method::PATCH, &path("virtualmachines", "r1"), Some(grace)).await.code,
        StatusCode::OK
    );
    until(&lab, "virtualmachines", "r1", "marked", |vm| is(vm, "RestartRequired", "True")).await;
    reads_as(&lab, "1077-vm-restartrequired", "virtualmachines", "r1").await;
    let seen = Seen::begin(&lab).await;
    delete(&lab, "virtualmachines", "r1").await;
    for (kind, of, name) in [
        ("VirtualMachine", "VM", "r1"),
        ("VirtualMachineInstance", "VMI", "r1"),
        ("Pod", "Pod", "virt-launcher-r1"),
    ] {
        seen.tells(kind, name, &story(&recorded, of, name, "DELETE VM r1")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn launcher_that_fails_before_the_guest_ran_is_backed_off_as_recorded() {
    let Some(recorded) = read("1100-vm-crashloop-1") else { return };
    let lab = lab().await;
    set_rules(&lab, json!({"rules": [rule("f1", json!({"launcher_fails": true}))]})).await;
    lab.create(&path("virtualmachines", ""), recorded_vm("f1", json!([container_disk()]))).await;
    let vm = printable(&lab, "f1", "CrashLoopBackOff").await;
    assert_eq!(vm["status"]["startFailure"]["consecutiveFailCount"], 1);
    until_gone(&lab, "virtualmachineinstances", "f1").await;
    until(&lab, "virtualmachines", "f1", "without its instance", |vm| {
        condition(vm, "Ready").is_some_and(|c| c["reason"] == "VMINotExists")
    })
    .await;
    assert!(recorded["response"]["body"]["status"]["startFailure"].is_object());
    reads_as(&lab, "1100-vm-crashloop-1", "virtualmachines", "f1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_that_crashed_after_it_ran_is_replaced_at_once_as_recorded() {
    if read("1085-timeline-vmi-failed-always").is_none() {
        return;
    }
    let lab = lab().await;
    let crash = json!({"labels": {"kubevirt.io/vm": "c1"}, "times": 1, "behaviour": {"dies_after_ms": 300}});
    let never = rule("c1", json!({"unschedulable": "no nodes available to schedule pods"}));
    set_rules(&lab, json!({"rules": [crash]})).await;
    lab.create(&path("virtualmachines", ""), recorded_vm("c1", json!([container_disk()]))).await;
    let first = phase(&lab, "c1", "Running").await;
    set_rules(&lab, json!({"rules": [never]})).await;
    until(&lab, "virtualmachineinstances", "c1", "another", |vmi| {
        vmi["metadata"]["uid"] != first["metadata"]["uid"] && vmi["status"]["phase"] == "Scheduling"
    })
    .await;
    let vm = printable(&lab, "c1", "ErrorUnschedulable").await;
    assert!(vm["status"].get("startFailure").is_none(), "it had run: no back-off");
}

#[tokio::test(flavor = "multi_thread")]
async fn vm_on_a_missing_claim_reads_as_recorded() {
    if read("1015-get-vm-missing-pvc").is_none() {
        return;
    }
    let lab = lab().await;
    let late = json!({"claimName": "late-pvc"});
    let direct = json!([{"name": "root", "persistentVolumeClaim": late}]);
    let ephemeral = json!([{"name": "root", "ephemeral": {"persistentVolumeClaim": late}}]);
    lab.create(&path("virtualmachines", ""), recorded_vm("p1", direct)).await;
    lab.create(&path("virtualmachines", ""), recorded_vm("p2", ephemeral)).await;
    printable(&lab, "p1", "ErrorPvcNotFound").await;
    printable(&lab, "p2", "ErrorPvcNotFound").await;
    reads_as(&lab, "1015-get-vm-missing-pvc", "virtualmachines", "p1").await;
    reads_as(&lab, "1016-get-vmi-missing-pvc", "virtualmachineinstances", "p1").await;
    reads_as(&lab, "1017-get-vm-missing-pvc-ephemeral", "virtualmachines", "p2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn launcher_pod_is_made_as_recorded() {
    let Some(recorded) = read("1064-pod-full") else { return };
    let lab = lab().await;
    // The Secret is missing: the pod stays as it was made, and is only placed.
    let ci = json!({"name": "ci", "cloudInitNoCloud": {"secretRef": {"name": "vm-userdata"}}});
    lab.create(&path("virtualmachines", ""), recorded_vm("r1", json!([container_disk(), ci]))).await;
    until(&lab, "virtualmachineinstances", "r1", "placed", |vmi| vmi["status"]["qosClass"] == "Burstable")
        .await;
    let names = [("t10", NAMESPACE), ("fake1", "ttlab-node")];
    let mut recorded = plain(&recorded["response"]["body"], &names);
    let mut live = plain(&pod(&lab, "r1").await.unwrap(), &[]);
    for pod in [&mut recorded, &mut live] {
        let map = pod.as_object_mut().unwrap();
        map.remove("status");
        map.remove("apiVersion");
        map.remove("kind");
        pod["metadata"].as_object_mut().unwrap().remove("generation");
    }
    let found = differences(&recorded, &live);
    assert!(found.is_empty(), "{}", found.join("\n"));
}
