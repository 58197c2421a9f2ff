//! From VM to guest and back to nothing.

use http::{Method, StatusCode};
use serde_json::json;
use tokio::time::Instant;

use super::*;

async fn ready(address: &str) {
    let deadline = Instant::now() + LIMIT;
    while agent_phase(address).await.as_deref() != Some("ready") {
        assert!(Instant::now() < deadline, "the agent on {address} is never ready");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn vm_becomes_a_guest_that_answers_and_deleting_it_leaves_nothing() {
    let lab = lab().await;
    make(&lab, "a", |_| ()).await;
    let vmi = phase(&lab, "a", "Running").await;
    let vmi = if is(&vmi, "Ready", "True") {
        vmi
    } else {
        until(&lab, "virtualmachineinstances", "a", "ready", |vmi| is(vmi, "Ready", "True")).await
    };
    let address = vmi["status"]["interfaces"][0]["ipAddress"].as_str().unwrap().to_owned();
    let pod = pod(&lab, "a").await.unwrap();
    assert_eq!(pod["status"]["podIP"], address.as_str());
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(
        pod["metadata"]["labels"]["ttlab.io/lab"], "a",
        "policies select pods by the template's labels"
    );
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], vmi["metadata"]["uid"]);
    let phases: Vec<_> =
        vmi["status"]["phaseTransitionTimestamps"].as_array().unwrap().iter().map(|p| &p["phase"]).collect();
    assert_eq!(phases, ["Pending", "Scheduling", "Scheduled", "Running"]);
    let vm = until(&lab, "virtualmachines", "a", "ready", |vm| vm["status"]["ready"] == true).await;
    assert_eq!(vm["status"]["printableStatus"], "Running");
    ready(&address).await;
    delete(&lab, "virtualmachines", "a").await;
    until_gone(&lab, "virtualmachines", "a").await;
    for resource in ["virtualmachineinstances"] {
        until_gone(&lab, resource, "a").await;
    }
    assert!(super::pod(&lab, "a").await.is_none());
    assert_eq!(agent_phase(&address).await, None, "the guest is gone");
    let left = std::fs::read_dir(lab.dir.path().join("state/sim/machines")).unwrap().count();
    assert_eq!(left, 0, "nothing of the machine is on disk");
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_probe_makes_ready_mean_that_the_guest_answers() {
    let lab = lab().await;
    let rules = json!({"rules": [{"lab": "slow", "behaviour": {"agent_ms": 1500}}]});
    set_rules(&lab, rules).await;
    make(&lab, "slow", |vm| {
        vm["spec"]["template"]["spec"]["readinessProbe"] =
            json!({"httpGet": {"path": "/healthz", "port": 8899}, "periodSeconds": 1});
    })
    .await;
    let vmi = phase(&lab, "slow", "Running").await;
    let shown = until(&lab, "virtualmachineinstances", "slow", "told why it is not ready", |vmi| {
        condition(vmi, "Ready").is_some_and(|c| c["reason"] == "ContainersNotReady")
    })
    .await;
    assert!(!is(&shown, "Ready", "True"), "{vmi:#}");
    let vm = printable(&lab, "slow", "Running").await;
    assert_eq!(vm["status"].get("ready"), None);
    until(&lab, "virtualmachineinstances", "slow", "ready", |vmi| is(vmi, "Ready", "True")).await;
    until(&lab, "virtualmachines", "slow", "ready", |vm| vm["status"]["ready"] == true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_secret_holds_the_start_until_it_appears() {
    let lab = lab().await;
    lab.create(&path("virtualmachines", ""), vm("late", |_| ())).await;
    phase(&lab, "late", "Scheduling").await;
    lab.until_that(&path("events", ""), |answer| {
        String::from_utf8_lossy(&answer.body)
            .contains(r#"MountVolume.SetUp failed for volume \"ci-udata\" : secret \"late\" not found"#)
    })
    .await;
    let vm = printable(&lab, "late", "Starting").await;
    assert_eq!(vm["status"]["created"], true);
    lab.create(&path("secrets", ""), secret("late")).await;
    phase(&lab, "late", "Running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_on_pods_shows_in_a_condition_and_passes_when_it_is_lifted() {
    let lab = lab().await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}});
    lab.create(&path("resourcequotas", ""), quota).await;
    // A quota whose status was never computed limits nothing.
    until(&lab, "resourcequotas", "q", "computed", |quota| quota["status"].get("hard").is_some()).await;
    make(&lab, "q1", |_| ()).await;
    let vmi =
        until(&lab, "virtualmachineinstances", "q1", "refused", |vmi| is(vmi, "Synchronized", "False")).await;
    let refused = condition(&vmi, "Synchronized").unwrap();
    assert_eq!(refused["reason"], "FailedCreate");
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.starts_with("failed to create virtual machine pod: pods \"virt-launcher-q1-"),
        "{message}"
    );
    assert!(
        message
            .ends_with("is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0")
    );
    let vm = printable(&lab, "q1", "Starting").await;
    assert!(is(&vm, "Synchronized", "False"));
    delete(&lab, "resourcequotas", "q").await;
    phase(&lab, "q1", "Running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_that_cannot_be_placed_is_unschedulable() {
    let lab = lab().await;
    make(&lab, "huge", |vm| vm["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = json!("64Ti"))
        .await;
    printable(&lab, "huge", "ErrorUnschedulable").await;
    delete(&lab, "virtualmachines", "huge").await;
    until_gone(&lab, "virtualmachines", "huge").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn image_that_cannot_be_pulled_is_named() {
    let lab = lab().await;
    let rules = json!({"rules": [{"lab": "img", "behaviour": {"image_pull_error": "not found"}}]});
    set_rules(&lab, rules).await;
    make(&lab, "img", |_| ()).await;
    printable(&lab, "img", "ErrImagePull").await;
    printable(&lab, "img", "ImagePullBackOff").await;
    delete(&lab, "virtualmachines", "img").await;
    until_gone(&lab, "virtualmachines", "img").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn power_off_inside_leaves_the_finished_instance_of_a_once_vm() {
    let lab = lab().await;
    let rules = json!({"rules": [
        {"lab": "off", "behaviour": {"dies_after_ms": 100, "dies_as": "poweroff"}},
        {"lab": "crash", "behaviour": {"dies_after_ms": 100, "dies_as": "crash"}},
    ]});
    set_rules(&lab, rules).await;
    make(&lab, "off", |_| ()).await;
    make(&lab, "crash", |_| ()).await;
    let vmi = phase(&lab, "off", "Succeeded").await;
    printable(&lab, "off", "Stopped").await;
    phase(&lab, "crash", "Failed").await;
    printable(&lab, "crash", "Stopped").await;
    let later = until(&lab, "virtualmachineinstances", "off", "without an address", |vmi| {
        vmi["status"]["interfaces"][0].get("ipAddress").is_none()
    })
    .await;
    assert_eq!(later["metadata"]["uid"], vmi["metadata"]["uid"]);
    for name in ["off", "crash"] {
        delete(&lab, "virtualmachines", name).await;
        until_gone(&lab, "virtualmachines", name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_instance_of_a_once_vm_is_made_anew_with_another_uid() {
    let lab = lab().await;
    make(&lab, "again", |_| ()).await;
    let first = phase(&lab, "again", "Running").await;
    delete(&lab, "virtualmachineinstances", "again").await;
    let second = until(&lab, "virtualmachineinstances", "again", "another", |vmi| {
        vmi["metadata"]["uid"] != first["metadata"]["uid"] && vmi["status"]["phase"] == "Running"
    })
    .await;
    assert_ne!(second["status"]["interfaces"][0]["ipAddress"], first["status"]["interfaces"][0]["ipAddress"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_that_ignores_the_power_button_takes_the_grace_and_ends_failed() {
    let lab = lab().await;
    let rules = json!({"rules": [{"lab": "deaf", "behaviour": {"ignores_power_button": true}}]});
    set_rules(&lab, rules).await;
    make(&lab, "deaf", |vm| vm["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1)).await;
    phase(&lab, "deaf", "Running").await;
    delete(&lab, "virtualmachines", "deaf").await;
    let shown = printable(&lab, "deaf", "Terminating").await;
    assert!(shown["metadata"].get("deletionTimestamp").is_some());
    let vmi = until(&lab, "virtualmachineinstances", "deaf", "terminating", |vmi| {
        condition(vmi, "Ready").is_some_and(|c| c["reason"] == "PodTerminating")
    })
    .await;
    assert_eq!(vmi["status"]["phase"], "Running", "it runs until it is shot");
    until_gone(&lab, "virtualmachines", "deaf").await;
    let events = lab.call(Method::GET, &path("events", ""), None).await;
    assert!(String::from_utf8_lossy(&events.body).contains("The VirtualMachineInstance crashed."));
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_go_on_over_a_restart_of_the_cluster() {
    let lab = lab().await;
    make(&lab, "on", |_| ()).await;
    let before = phase(&lab, "on", "Running").await;
    let address = before["status"]["interfaces"][0]["ipAddress"].as_str().unwrap().to_owned();
    ready(&address).await;
    let lab = lab.restart().await;
    ready(&address).await;
    let after = phase(&lab, "on", "Running").await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    delete(&lab, "virtualmachines", "on").await;
    until_gone(&lab, "virtualmachines", "on").await;
    assert_eq!(agent_phase(&address).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn start_stop_and_restart_are_answered_as_recorded() {
    let lab = lab().await;
    make(&lab, "h1", |vm| vm["spec"]["runStrategy"] = json!("Halted")).await;
    printable(&lab, "h1", "Stopped").await;
    let put = async |verb: &str| {
        let path =
            format!("/apis/subresources.kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachines/h1/{verb}");
        let request = lab
            .request(Method::PUT, &path)
            .header("Authorization", format!("Bearer {}", lab.admin))
            .header("Accept", "*/*")
            .body(axum::body::Body::empty())
            .unwrap();
        let answer = Lab::read(lab.send(request).await).await;
        (answer.code, answer.json()["message"].as_str().unwrap_or_default().to_owned())
    };
    let (code, message) = put("restart").await;
    assert_eq!(code, StatusCode::CONFLICT);
    assert!(message.ends_with("RunStategy Halted does not support manual restart requests"), "{message}");
    assert_eq!(put("start").await.0, StatusCode::ACCEPTED);
    let first = phase(&lab, "h1", "Running").await;
    let (code, message) = put("start").await;
    assert_eq!(code, StatusCode::CONFLICT);
    assert_eq!(
        message,
        "Operation cannot be fulfilled on virtualmachine.kubevirt.io \"h1\": VM is already running"
    );
    assert_eq!(put("restart").await.0, StatusCode::ACCEPTED);
    until(&lab, "virtualmachineinstances", "h1", "another", |vmi| {
        vmi["metadata"]["uid"] != first["metadata"]["uid"] && vmi["status"]["phase"] == "Running"
    })
    .await;
    until(&lab, "virtualmachines", "h1", "served", |vm| vm["status"].get("stateChangeRequests").is_none())
        .await;
    assert_eq!(put("stop").await.0, StatusCode::ACCEPTED);
    until_gone(&lab, "virtualmachineinstances", "h1").await;
    let vm = printable(&lab, "h1", "Stopped").await;
    assert_eq!(vm["spec"]["runStrategy"], "Halted");
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_that_is_too_strict_for_launchers_is_named_in_a_condition() {
    let lab = lab().await;
    let strict = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let namespace = format!("/api/v1/namespaces/{NAMESPACE}");
    assert_eq!(lab.call(Method::PATCH, &namespace, Some(strict)).await.code, StatusCode::OK);
    make(&lab, "ps1", |_| ()).await;
    let vmi =
        until(&lab, "virtualmachineinstances", "ps1", "refused", |vmi| is(vmi, "Synchronized", "False"))
            .await;
    let message = condition(&vmi, "Synchronized").unwrap()["message"].as_str().unwrap();
    let wanted =
        format!("failed to create pod for vmi {NAMESPACE}/ps1, it needs a privileged namespace to run: pods");
    assert!(
        message.starts_with(&wanted) && message.contains("violates PodSecurity \"restricted:latest\""),
        "{message}"
    );
    let fits = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    assert_eq!(lab.call(Method::PATCH, &namespace, Some(fits)).await.code, StatusCode::OK);
    phase(&lab, "ps1", "Running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_that_could_not_be_placed_or_pulled_goes_on_when_the_reason_is_gone() {
    let lab = lab().await;
    let rules = json!({"rules": [
        {"lab": "place", "behaviour": {"unschedulable": "no room"}},
        {"lab": "pull", "behaviour": {"image_pull_error": "not found"}},
    ]});
    set_rules(&lab, rules).await;
    make(&lab, "place", |_| ()).await;
    make(&lab, "pull", |_| ()).await;
    printable(&lab, "place", "ErrorUnschedulable").await;
    printable(&lab, "pull", "ImagePullBackOff").await;
    set_rules(&lab, json!({})).await;
    phase(&lab, "place", "Running").await;
    phase(&lab, "pull", "Running").await;
}
