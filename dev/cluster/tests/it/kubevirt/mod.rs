//! VM -> VMI -> launcher pod on the `sim` driver, seen from outside: the journey, the refusals, the ends.

mod console;
mod disks;
mod journey;
mod recorded;
mod timelines;

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{LIMIT, Lab};

/// The token of the agents of these tests.
const TOKEN: &str = "0123abcd";
const NAMESPACE: &str = "ttlab";

fn path(resource: &str, name: &str) -> String {
    let group = match resource {
        "secrets" | "pods" | "persistentvolumeclaims" | "events" | "resourcequotas" => "/api/v1".to_owned(),
        "datavolumes" => "/apis/cdi.kubevirt.io/v1beta1".to_owned(),
        _ => "/apis/kubevirt.io/v1".to_owned(),
    };
    let tail = if name.is_empty() { String::new() } else { format!("/{name}") };
    format!("{group}/namespaces/{NAMESPACE}/{resource}{tail}")
}

fn user_data(machine: &str) -> String {
    let own = json!({
        "token": TOKEN, "session": "s", "machine": machine, "lab": "l", "prepare_timeout_s": 5,
    });
    let files =
        json!([{"path": "/opt/ttlab/machine.json", "permissions": "0600", "content": own.to_string()}]);
    format!("#cloud-config\n{}", json!({"write_files": files}))
}

/// A VM as the services make one.
fn vm(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": name, "labels": {"ttlab.io/lab": name}},
        "spec": {"runStrategy": "Once", "template": {
            "metadata": {"labels": {"ttlab.io/lab": name}},
            "spec": {
                "domain": {
                    "cpu": {"cores": 1}, "memory": {"guest": "64Mi"},
                    "devices": {
                        "disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "ci", "disk": {"bus": "virtio"}}],
                        "interfaces": [{"name": "default", "masquerade": {}}],
                        "logSerialConsole": false,
                    },
                },
                "networks": [{"name": "default", "pod": {}}],
                "terminationGracePeriodSeconds": 5,
                "volumes": [
                    {"name": "root", "containerDisk": {"image": "ttlab.local/debian-12@sha256:00"}},
                    {"name": "ci", "cloudInitNoCloud": {"secretRef": {"name": name}}},
                ],
            },
        }},
    });
    change(&mut vm);
    vm
}

fn secret(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
        "stringData": {"userdata": user_data("main")},
    })
}

async fn lab() -> Lab {
    Lab::start_in(
        tempfile::tempdir().unwrap(),
        &["--sim-boot", "30ms", "--sim-agent", "10ms", "--sim-prepare", "30ms"],
    )
    .await
}

/// Sets what played machines do from now on.
async fn set_rules(lab: &Lab, rules: Value) {
    let answer = lab.call(Method::PUT, "/sim/v1/rules", Some(rules)).await;
    assert_eq!(answer.code, StatusCode::OK, "{}", answer.json());
}

/// Makes the Secret and the VM.
async fn make(lab: &Lab, name: &str, change: impl FnOnce(&mut Value)) -> Value {
    lab.create(&path("secrets", ""), secret(name)).await;
    lab.create(&path("virtualmachines", ""), vm(name, change)).await
}

/// Waits for an object to be as wanted.
async fn until(lab: &Lab, resource: &str, name: &str, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + LIMIT;
    loop {
        let answer = lab.call(Method::GET, &path(resource, name), None).await;
        let value = answer.json();
        if answer.code == StatusCode::OK && fits(&value) {
            return value;
        }
        assert!(Instant::now() < deadline, "{resource}/{name} is not {what}: {value:#}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn until_gone(lab: &Lab, resource: &str, name: &str) {
    lab.until(&path(resource, name), StatusCode::NOT_FOUND).await;
}

async fn phase(lab: &Lab, name: &str, wanted: &str) -> Value {
    until(lab, "virtualmachineinstances", name, wanted, |vmi| vmi["status"]["phase"] == wanted).await
}

async fn printable(lab: &Lab, name: &str, wanted: &str) -> Value {
    until(lab, "virtualmachines", name, wanted, |vm| vm["status"]["printableStatus"] == wanted).await
}

async fn delete(lab: &Lab, resource: &str, name: &str) {
    let answer = lab.call(Method::DELETE, &path(resource, name), None).await;
    assert_eq!(answer.code, StatusCode::OK, "{}", answer.json());
}

/// The launcher pod of a VM, where there is one.
async fn pod(lab: &Lab, name: &str) -> Option<Value> {
    let query = format!("{}?labelSelector=vm.kubevirt.io/name%3D{name}", path("pods", ""));
    let list = lab.call(Method::GET, &query, None).await.json();
    list["items"].as_array().and_then(|items| items.first()).cloned()
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

fn is(object: &Value, kind: &str, status: &str) -> bool {
    condition(object, kind).is_some_and(|c| c["status"] == status)
}

/// Sends a request to a guest's agent and returns status line and body; `None` while nobody answers.
async fn ask(address: &str, request: &str) -> Option<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(format!("{address}:8899")).await.ok()?;
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

/// The phase that the agent tells.
async fn agent_phase(address: &str) -> Option<String> {
    let request = format!(
        "GET /ready HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
    );
    let answer = ask(address, &request).await?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    serde_json::from_str::<Value>(body).ok()?["phase"].as_str().map(str::to_owned)
}
