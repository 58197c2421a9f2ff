//! Claims and DataVolumes: what is missing, what is filled.

use serde_json::json;

use super::*;

fn data_volume(name: &str) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": name, "annotations": {"ttlab.io/image-digest": "sha256:00"}},
        "spec": {
            "source": {"registry": {"url": "docker://ttlab.local/debian-12@sha256:00"}},
            "storage": {"resources": {"requests": {"storage": "1Gi"}}},
        },
    })
}

fn ephemeral(claim: &str) -> impl FnOnce(&mut Value) {
    let volume = json!({"name": "root", "ephemeral": {"persistentVolumeClaim": {"claimName": claim, "readOnly": true}}});
    move |vm| vm["spec"]["template"]["spec"]["volumes"][0] = volume
}

#[tokio::test(flavor = "multi_thread")]
async fn data_volume_becomes_a_bound_claim_with_its_annotations() {
    let lab = lab().await;
    lab.create(&path("datavolumes", ""), data_volume("golden-0")).await;
    let claim = until(&lab, "persistentvolumeclaims", "golden-0", "there", |_| true).await;
    assert_eq!(claim["metadata"]["annotations"]["ttlab.io/image-digest"], "sha256:00");
    let volume =
        until(&lab, "datavolumes", "golden-0", "done", |dv| dv["status"]["phase"] == "Succeeded").await;
    assert_eq!(volume["status"]["progress"], "100.0%");
    let claim =
        until(&lab, "persistentvolumeclaims", "golden-0", "bound", |pvc| pvc["status"]["phase"] == "Bound")
            .await;
    assert_eq!(claim["status"]["accessModes"], json!(["ReadWriteMany"]));
    assert_eq!(claim["metadata"]["annotations"]["cdi.kubevirt.io/storage.pod.phase"], "Succeeded");
    make(&lab, "e1", ephemeral("golden-0")).await;
    phase(&lab, "e1", "Running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vm_on_a_missing_claim_goes_on_when_it_appears_but_not_an_ephemeral_one() {
    let lab = lab().await;
    make(&lab, "p2", ephemeral("late")).await;
    make(&lab, "p1", |vm| {
        vm["spec"]["template"]["spec"]["volumes"][0] =
            json!({"name": "root", "persistentVolumeClaim": {"claimName": "late"}});
    })
    .await;
    let vm = printable(&lab, "p1", "ErrorPvcNotFound").await;
    let why = condition(&vm, "Synchronized").unwrap();
    assert_eq!(why["message"], format!("PVC {NAMESPACE}/late does not exist, waiting for it to appear"));
    let vm = printable(&lab, "p2", "ErrorPvcNotFound").await;
    assert_eq!(
        condition(&vm, "Synchronized").unwrap()["message"],
        "failed to render launch manifest: didn't find PVC late"
    );
    assert!(pod(&lab, "p2").await.is_none());
    lab.create(&path("datavolumes", ""), data_volume("late")).await;
    phase(&lab, "p1", "Running").await;
    let vm = printable(&lab, "p2", "ErrorPvcNotFound").await;
    assert!(is(&vm, "Synchronized", "False"), "an ephemeral one never recovers by itself");
    delete(&lab, "virtualmachines", "p2").await;
    until_gone(&lab, "virtualmachines", "p2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vm_with_a_data_volume_of_its_own_is_provisioned_first_and_takes_it_along() {
    let lab = lab().await;
    make(&lab, "dv1", |vm| {
        let volume = data_volume("dv1-root");
        vm["spec"]["dataVolumeTemplates"] =
            json!([{"metadata": {"name": "dv1-root"}, "spec": volume["spec"]}]);
        vm["spec"]["template"]["spec"]["volumes"][0] =
            json!({"name": "root", "dataVolume": {"name": "dv1-root"}});
    })
    .await;
    printable(&lab, "dv1", "Provisioning").await;
    phase(&lab, "dv1", "Running").await;
    let claim = until(&lab, "persistentvolumeclaims", "dv1-root", "there", |_| true).await;
    assert_eq!(claim["metadata"]["ownerReferences"][0]["kind"], "DataVolume");
    delete(&lab, "virtualmachines", "dv1").await;
    for (resource, name) in
        [("virtualmachines", "dv1"), ("datavolumes", "dv1-root"), ("persistentvolumeclaims", "dv1-root")]
    {
        until_gone(&lab, resource, name).await;
    }
}
