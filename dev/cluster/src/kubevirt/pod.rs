//! The launcher pod of an instance, as virt-controller renders it: a pure function.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::names::{CREATED_BY, GENERATION, LAUNCHER_IMAGE, OVERHEAD_KI, TOPOLOGY};
use super::template::bytes;
use crate::object;

/// A label value that fits: what is too long is cut and told apart by a hash.
fn fitted(name: &str, limit: usize) -> String {
    if name.len() <= limit {
        return name.to_owned();
    }
    let hash = hex::encode(Sha256::digest(name.as_bytes()));
    let mut end = limit - 9;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{}", &name[..end], &hash[..8])
}

/// The pod of an instance.
pub(super) fn launcher(vmi: &Value) -> Value {
    let (name, uid) = (object::name(vmi), object::uid(vmi));
    let grace = grace_seconds(vmi);
    let pod_grace = grace.map_or(60, |s| s + 30);
    let mut labels = vmi.pointer("/metadata/labels").and_then(Value::as_object).cloned().unwrap_or_default();
    for (key, value) in [
        ("kubevirt.io", "virt-launcher".to_owned()),
        (CREATED_BY, uid.to_owned()),
        ("vm.kubevirt.io/name", name.chars().take(63).collect()),
        ("vmi.kubevirt.io/id", fitted(name, 63)),
    ] {
        labels.insert(key.into(), value.into());
    }
    let requests = compute_requests(vmi);
    let spec = object::at(vmi, "spec").cloned().unwrap_or_default();
    json!({
        "metadata": {
            "generateName": format!("virt-launcher-{name}-"),
            "labels": labels,
            "annotations": annotations(vmi),
            "ownerReferences": [object::controller_reference(vmi)],
        },
        "spec": {
            "volumes": volumes(&spec),
            "initContainers": init_containers(&spec, uid),
            "containers": [compute(vmi, &spec, grace, &requests)],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": pod_grace,
            "dnsPolicy": spec.get("dnsPolicy").cloned().unwrap_or_else(|| json!("ClusterFirst")),
            "dnsConfig": spec.get("dnsConfig").cloned().unwrap_or_default(),
            "nodeSelector": {
                "kubernetes.io/arch": "amd64",
                "kubevirt.io/schedulable": "true",
                "machine-type.node.kubevirt.io/q35": "true",
            },
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "automountServiceAccountToken": false,
            "securityContext": {"runAsUser": 107, "runAsGroup": 107, "runAsNonRoot": true, "fsGroup": 107},
            "hostname": hostname(vmi),
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "node-labeller.kubevirt.io/obsolete-host-model", "operator": "DoesNotExist"}]},
            ]}}},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "priority": 0,
            "readinessGates": [{"conditionType": "kubevirt.io/virtual-machine-unpaused"}],
            "enableServiceLinks": false,
            "preemptionPolicy": "PreemptLowerPriority",
        },
    })
}

/// `terminationGracePeriodSeconds` of the instance, where it names one.
pub(super) fn grace_seconds(vmi: &Value) -> Option<i64> {
    object::at(vmi, "spec.terminationGracePeriodSeconds").and_then(Value::as_i64)
}

fn hostname(vmi: &Value) -> String {
    let wanted = match object::text_at(vmi, "spec.hostname") {
        "" => object::name(vmi),
        named => named,
    };
    let dns: String = wanted.split('.').next().unwrap_or_default().chars().take(63).collect();
    dns.trim_end_matches('-').to_owned()
}

fn annotations(vmi: &Value) -> Value {
    let (name, namespace) = (object::name(vmi), object::namespace(vmi));
    let freezer = |flag: &str| {
        // With the blanks that its Go template has.
        format!(r#"["/usr/bin/virt-freezer", "{flag}", "--name", "{name}", "--namespace", "{namespace}"]"#)
    };
    let mut all = json!({
        "descheduler.alpha.kubernetes.io/request-evict-only": "",
        "kubectl.kubernetes.io/default-container": "compute",
        "kubevirt.io/domain": name,
        "kubevirt.io/memory-overhead-bytes": (OVERHEAD_KI * 1024).to_string(),
        "kubevirt.io/migrationTransportUnix": "true",
        "post.hook.backup.velero.io/command": freezer("--unfreeze"),
        "post.hook.backup.velero.io/container": "compute",
        "pre.hook.backup.velero.io/command": freezer("--freeze"),
        "pre.hook.backup.velero.io/container": "compute",
        "pre.hook.backup.velero.io/timeout": "60s",
    });
    for key in [TOPOLOGY, GENERATION] {
        if let Some(value) = object::annotation(vmi, key) {
            all[key] = value.into();
        }
    }
    let interfaces = object::at(vmi, "spec.domain.devices.interfaces").and_then(Value::as_array);
    if interfaces.into_iter().flatten().any(|interface| interface.get("masquerade").is_some()) {
        all["istio.io/reroute-virtual-interfaces"] = "k6t-eth0".into();
        all["traffic.sidecar.istio.io/kubevirtInterfaces"] = "k6t-eth0".into();
    }
    if let Some(networks) = multus(vmi) {
        all["k8s.v1.cni.cncf.io/networks"] = networks.into();
    }
    all
}

/// The secondary networks, as Multus reads them: interface names are a hash of the network's name.
fn multus(vmi: &Value) -> Option<String> {
    let networks = object::at(vmi, "spec.networks")?.as_array()?;
    let list: Vec<String> = networks
        .iter()
        .filter_map(|network| {
            let name = network.get("name")?.as_str()?;
            let reference = network.pointer("/multus/networkName")?.as_str()?;
            let (namespace, attachment) =
                reference.split_once('/').unwrap_or((object::namespace(vmi), reference));
            let hash = hex::encode(Sha256::digest(name.as_bytes()));
            let interface = format!("pod{}", &hash[..11]);
            Some(format!(r#"{{"name":"{attachment}","namespace":"{namespace}","interface":"{interface}"}}"#))
        })
        .collect();
    (!list.is_empty()).then(|| format!("[{}]", list.join(",")))
}

fn spec_volumes(spec: &Value) -> impl Iterator<Item = &Value> {
    spec.get("volumes").and_then(Value::as_array).into_iter().flatten()
}

fn volumes(spec: &Value) -> Vec<Value> {
    let empty = |name: &str| json!({"name": name, "emptyDir": {}});
    let mut all: Vec<Value> =
        ["private", "public", "sockets", "virt-bin-share-dir", "libvirt-runtime", "ephemeral-disks"]
            .map(empty)
            .to_vec();
    let mut images = false;
    for volume in spec_volumes(spec) {
        let name = object::text_at(volume, "name");
        if let Some(secret) = volume.pointer("/cloudInitNoCloud/secretRef/name") {
            all.push(json!({"name": format!("{name}-udata"), "secret": {"secretName": secret, "defaultMode": 420}}));
        }
        if let Some(secret) = volume.pointer("/cloudInitNoCloud/networkDataSecretRef/name") {
            all.push(json!({"name": format!("{name}-ndata"), "secret": {"secretName": secret, "defaultMode": 420}}));
        }
    }
    for volume in spec_volumes(spec) {
        let name = object::text_at(volume, "name");
        if let Some(image) = volume.pointer("/containerDisk/image") {
            images = true;
            let policy = volume.pointer("/containerDisk/imagePullPolicy").cloned().unwrap_or_default();
            all.push(json!({"name": name, "image": {"reference": image, "pullPolicy": policy}}));
        }
        if let Some((claim, read_only)) = claim_of(volume) {
            let mut source = json!({"claimName": claim});
            if read_only {
                source["readOnly"] = true.into();
            }
            all.push(json!({"name": name, "persistentVolumeClaim": source}));
        }
    }
    if images {
        all.push(json!({"name": "launcher-volume", "image": {"reference": LAUNCHER_IMAGE, "pullPolicy": "IfNotPresent"}}));
    }
    all.push(empty("hotplug-disks"));
    all
}

/// The claim that a volume uses, and whether read-only. A DataVolume's claim has its name.
pub(super) fn claim_of(volume: &Value) -> Option<(&str, bool)> {
    for path in ["/persistentVolumeClaim", "/ephemeral/persistentVolumeClaim"] {
        if let Some(source) = volume.pointer(path) {
            let read_only = source.get("readOnly").and_then(Value::as_bool).unwrap_or_default();
            return Some((source.get("claimName")?.as_str()?, read_only));
        }
    }
    let data_volume = volume.pointer("/dataVolume/name").and_then(Value::as_str)?;
    Some((data_volume, false))
}

fn restricted() -> Value {
    json!({"capabilities": {"drop": ["ALL"]}, "runAsUser": 107, "runAsNonRoot": true, "allowPrivilegeEscalation": false})
}

fn init_containers(spec: &Value, uid: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let serial_log =
        object::at(spec, "domain.devices.logSerialConsole").and_then(Value::as_bool) != Some(false);
    let serial =
        object::at(spec, "domain.devices.autoattachSerialConsole").and_then(Value::as_bool) != Some(false);
    if serial_log && serial {
        all.push(json!({
            "name": "guest-console-log", "image": LAUNCHER_IMAGE, "command": ["/usr/bin/virt-tail"],
            "args": ["--logfile", format!("/var/run/kubevirt-private/{uid}/virt-serial0-log")],
            "env": [{"name": "VIRT_LAUNCHER_LOG_VERBOSITY", "value": "2"}],
            "resources": {"limits": {"cpu": "15m", "memory": "60M"}, "requests": {"cpu": "5m", "memory": "35M"}},
            "restartPolicy": "Always",
            "volumeMounts": [{"name": "private", "readOnly": true, "mountPath": "/var/run/kubevirt-private"}],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent", "securityContext": restricted(),
        }));
    }
    for volume in spec_volumes(spec) {
        let Some(image) = volume.pointer("/containerDisk/image") else { continue };
        all.push(json!({
            "name": format!("volume{}", object::text_at(volume, "name")), "image": image,
            "command": ["/container-disk-binary/usr/bin/container-disk"], "args": ["--no-op"],
            "resources": {
                "limits": {"cpu": "10m", "memory": "40M"},
                "requests": {"cpu": "1m", "ephemeral-storage": "50M", "memory": "1M"},
            },
            "volumeMounts": [{"name": "launcher-volume", "readOnly": true, "mountPath": "/container-disk-binary"}],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "imagePullPolicy": volume.pointer("/containerDisk/imagePullPolicy").cloned().unwrap_or_default(),
            "securityContext": restricted(),
        }));
    }
    all
}

fn compute_requests(vmi: &Value) -> Value {
    let guest = object::at(vmi, "spec.domain.memory.guest").and_then(bytes).unwrap_or_default();
    let cores = object::at(vmi, "spec.domain.cpu.cores").and_then(Value::as_u64).unwrap_or(1);
    json!({
        "cpu": format!("{}m", 100 * cores),
        "devices.kubevirt.io/kvm": "1", "devices.kubevirt.io/tun": "1", "devices.kubevirt.io/vhost-net": "1",
        "ephemeral-storage": "50M",
        "memory": format!("{}Ki", guest / 1024 + OVERHEAD_KI),
    })
}

fn compute(vmi: &Value, spec: &Value, grace: Option<i64>, requests: &Value) -> Value {
    let launcher_grace = grace.map_or(45, |s| s + 15).to_string();
    let command = [
        "/usr/bin/virt-launcher-monitor",
        "--qemu-timeout",
        "347s",
        "--name",
        object::name(vmi),
        "--uid",
        object::uid(vmi),
        "--namespace",
        object::namespace(vmi),
        "--kubevirt-share-dir",
        "/var/run/kubevirt",
        "--ephemeral-disk-dir",
        "/var/run/kubevirt-ephemeral-disks",
        "--container-disk-dir",
        "/var/run/kubevirt/container-disks",
        "--grace-period-seconds",
        &launcher_grace,
        "--hook-sidecars",
        "0",
        "--ovmf-path",
        "/usr/share/edk2/ovmf",
        "--disk-memory-limit",
        "2097152000",
        "--hypervisor",
        "kvm",
        "--run-as-nonroot",
        "--image-volume",
        "--libvirt-hook-server-and-client",
        "--upgrade-ordinal-ifaces",
    ];
    let mut container = json!({
        "name": "compute", "image": LAUNCHER_IMAGE, "command": command,
        "env": [
            {"name": "XDG_CACHE_HOME", "value": "/var/run/kubevirt-private"},
            {"name": "XDG_CONFIG_HOME", "value": "/var/run/kubevirt-private"},
            {"name": "XDG_RUNTIME_DIR", "value": "/var/run"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        ],
        "resources": {
            "limits": {"devices.kubevirt.io/kvm": "1", "devices.kubevirt.io/tun": "1", "devices.kubevirt.io/vhost-net": "1"},
            "requests": requests,
        },
        "volumeMounts": mounts(spec),
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "FallbackToLogsOnError",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}, "runAsUser": 107, "runAsGroup": 107,
            "runAsNonRoot": true, "allowPrivilegeEscalation": false,
        },
    });
    if let Some(probe) = spec.get("readinessProbe") {
        container["readinessProbe"] = probe.clone();
    }
    container
}

fn mounts(spec: &Value) -> Vec<Value> {
    let mut all = vec![
        json!({"name": "private", "mountPath": "/var/run/kubevirt-private"}),
        json!({"name": "public", "mountPath": "/var/run/kubevirt"}),
        json!({"name": "ephemeral-disks", "mountPath": "/var/run/kubevirt-ephemeral-disks"}),
        json!({"name": "libvirt-runtime", "mountPath": "/var/run/libvirt"}),
        json!({"name": "sockets", "mountPath": "/var/run/kubevirt/sockets"}),
    ];
    for volume in spec_volumes(spec) {
        let name = object::text_at(volume, "name");
        for (source, suffix, keys) in [
            ("/cloudInitNoCloud/secretRef", "udata", ["userdata", "userData"]),
            ("/cloudInitNoCloud/networkDataSecretRef", "ndata", ["networkdata", "networkData"]),
        ] {
            if volume.pointer(source).is_none() {
                continue;
            }
            for key in keys {
                all.push(json!({
                    "name": format!("{name}-{suffix}"), "readOnly": true, "subPath": key,
                    "mountPath": format!("/var/run/kubevirt-private/secret/{name}/{key}"),
                }));
            }
        }
    }
    for (index, volume) in spec_volumes(spec).enumerate() {
        let name = object::text_at(volume, "name");
        if volume.get("containerDisk").is_some() {
            all.push(json!({
                "name": name, "readOnly": true,
                "mountPath": format!("/var/run/kubevirt-image-volume/disk_{index}"),
            }));
        }
        if claim_of(volume).is_some() {
            all.push(
                json!({"name": name, "mountPath": format!("/var/run/kubevirt-private/vmi-disks/{name}")}),
            );
        }
    }
    all.push(json!({
        "name": "hotplug-disks", "mountPath": "/var/run/kubevirt/hotplug-disks",
        "mountPropagation": "HostToContainer",
    }));
    all
}
