//! What was sent between the recordings and is neither recorded nor in `SETUP.json`, as far as later answers show it.

use serde_json::{Value, json};

/// A request to be sent before a recording.
pub(crate) struct Step {
    pub(crate) before: u32,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Value,
}

fn step(before: u32, method: &'static str, path: &str, body: Value) -> Step {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    Step { before, method, path: path.to_owned(), content_type, body }
}

fn config_map(name: &str, keys: usize) -> Value {
    let data: serde_json::Map<String, Value> = (0..keys).map(|i| (format!("k{i}"), json!("v"))).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn named(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}})
}

fn vms(namespace: &str) -> String {
    format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines")
}

fn container_disk() -> Value {
    json!({"containerDisk": {"image": "quay.io/kubevirt/cirros-container-disk-demo:v1.9.0"}})
}

fn halted(name: &str) -> Value {
    vm(name, "Halted", &json!({}), container_disk())
}

/// A VM as the recordings make theirs.
fn vm(name: &str, strategy: &str, devices: &Value, mut volume: Value) -> Value {
    volume["name"] = "root".into();
    let mut devices = devices.clone();
    devices["disks"] = json!([{"name": "root", "disk": {"bus": "virtio"}}]);
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name, "labels": {}},
        "spec": {"runStrategy": strategy, "template": {
            "metadata": {"labels": {"kubevirt.io/vm": name}},
            "spec": {
                "domain": {
                    "devices": devices,
                    "resources": {"requests": {"memory": "128Mi"}},
                },
                "volumes": [volume],
            },
        }},
    })
}

fn namespace(before: u32, name: &str) -> Step {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    step(before, "POST", "/api/v1/namespaces", body)
}

fn user_data() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "vm-userdata"},
        "stringData": {"userdata": "#cloud-config\nhostname: a\n"},
    })
}

/// All of them, in order.
pub(crate) fn steps() -> Vec<Step> {
    let system = "/api/v1/namespaces/kube-system/configmaps";
    let t2 = "/api/v1/namespaces/t2/secrets";
    let t3 = "/api/v1/namespaces/t3/secrets";
    let after = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "zz-after-"}});
    let binding = |role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "limited", "namespace": "t8"}],
        })
    };
    vec![
        step(122, "POST", system, config_map("extension-apiserver-authentication", 6)),
        step(122, "POST", system, config_map("kube-apiserver-legacy-service-account-token-tracking", 1)),
        step(122, "POST", system, config_map("openshift-service-ca.crt", 1)),
        step(
            201,
            "POST",
            "/api/v1/namespaces",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t2"}}),
        ),
        step(
            214,
            "POST",
            t2,
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "gen-"}, "type": "Opaque",
                "data": {"userdata": "I2Nsb3VkLWNvbmZpZwo="},
            }),
        ),
        step(224, "PATCH", "/api/v1/namespaces/t2/secrets/s1", json!({"data": {"extra": null}})),
        step(
            231,
            "PATCH",
            "/api/v1/namespaces/t2/secrets/s1",
            json!({"metadata": {"labels": {"j": "1", "k2": null}}}),
        ),
        step(
            330,
            "PATCH",
            "/api/v1/namespaces/t2/secrets/s1",
            json!({"metadata": {"labels": {"j": "1", "k": "v", "put": null}}}),
        ),
        // The series 400 was recorded beside the series 300: some of its objects were there already.
        step(
            330,
            "POST",
            "/api/v1/namespaces",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t4"}}),
        ),
        step(330, "POST", "/api/v1/namespaces/t4/secrets", named("pre1", json!({"app": "lab"}))),
        step(330, "POST", "/api/v1/namespaces/t4/secrets", named("pre2", json!({"app": "lab"}))),
        step(330, "POST", t3, named("z", json!({}))),
        step(451, "POST", t3, after.clone()),
        step(451, "POST", t3, after.clone()),
        step(451, "POST", t3, after),
        step(501, "DELETE", "/api/v1/namespaces/t5/configmaps/d0", Value::Null),
        step(605, "POST", "/apis/kubevirt.io/v1/namespaces/t6/virtualmachines", halted("gcvm2")),
        step(
            712,
            "POST",
            "/api/v1/namespaces/t7/resourcequotas",
            json!({
                "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "vms-zero"},
                "spec": {"hard": {"count/virtualmachines.kubevirt.io": "0"}},
            }),
        ),
        // Of the series from 1000 on nothing that prepared the ground was kept.
        namespace(1000, "t10"),
        step(1000, "POST", "/api/v1/namespaces/t10/secrets", user_data()),
        step(1086, "POST", &vms("t10"), vm("h1", "Always", &json!({}), container_disk())),
        namespace(1200, "t12"),
        step(
            1202,
            "POST",
            &vms("t12"),
            vm("pend", "Always", &json!({}), json!({"persistentVolumeClaim": {"claimName": "none"}})),
        ),
        step(1204, "POST", &vms("t12"), vm("con", "Always", &json!({}), container_disk())),
        step(1230, "POST", &vms("t12"), vm("con2", "Always", &json!({}), container_disk())),
        step(
            1240,
            "POST",
            &vms("t12"),
            vm("nocon", "Always", &json!({"autoattachSerialConsole": false}), container_disk()),
        ),
        step(1250, "POST", &vms("t12"), vm("st", "Halted", &json!({}), container_disk())),
        namespace(1300, "t13"),
        step(
            1303,
            "POST",
            &vms("t13"),
            vm(
                "e1",
                "Always",
                &json!({}),
                json!({"ephemeral": {"persistentVolumeClaim": {"claimName": "golden"}}}),
            ),
        ),
        step(1311, "DELETE", "/api/v1/namespaces/t13/persistentvolumeclaims/golden", Value::Null),
        namespace(1313, "t13q"),
        step(
            1313,
            "POST",
            "/api/v1/namespaces/t13q/resourcequotas",
            json!({
                "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}},
            }),
        ),
        namespace(1317, "t13m"),
        namespace(1323, "t13pr"),
        namespace(1327, "t13pb"),
        namespace(1331, "t13s"),
        namespace(1401, "t14"),
        namespace(1500, "t15"),
        step(1500, "POST", "/api/v1/namespaces/t15/secrets", user_data()),
        step(804, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/t8/rolebindings", binding("r")),
    ]
}
