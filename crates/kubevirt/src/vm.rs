//! VirtualMachine and VirtualMachineInstance, the fields that we write.
//!
//! Everything is optional when read: a list by label may meet a machine that somebody else made with a fancier spec.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::{
    data_volume::DataVolumeTemplate,
    status::{VirtualMachineInstanceStatus, VirtualMachineStatus},
};

/// Spec of a VirtualMachine.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "kubevirt.io",
    version = "v1",
    kind = "VirtualMachine",
    plural = "virtualmachines",
    shortname = "vm",
    namespaced,
    status = "VirtualMachineStatus",
    schema = "disabled",
    derive = "PartialEq",
    doc = "A machine that KubeVirt keeps according to its run strategy."
)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineSpec {
    /// `Once` for ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_strategy: Option<String>,
    /// Disks that virt-controller makes with the VM and that go with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub data_volume_templates: Vec<DataVolumeTemplate>,
    /// The VMI to be made.
    pub template: Template,
}

/// What the VMI of a VirtualMachine looks like.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Template {
    /// Labels and annotations; they reach the VMI and the launcher pod.
    pub metadata: TemplateMeta,
    /// The VMI's spec.
    pub spec: VirtualMachineInstanceSpec,
}

/// Labels and annotations of a template.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateMeta {
    /// Name, where a template wants one (DataVolume templates do).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Spec of a VirtualMachineInstance.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "kubevirt.io",
    version = "v1",
    kind = "VirtualMachineInstance",
    plural = "virtualmachineinstances",
    shortname = "vmi",
    namespaced,
    status = "VirtualMachineInstanceStatus",
    schema = "disabled",
    derive = "PartialEq",
    doc = "One run of a machine. A new run is a new object with a new uid."
)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceSpec {
    /// The machine's hardware.
    pub domain: Domain,
    /// Networks that interfaces attach to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Network>,
    /// What the disks hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// Time between the power button and the plug, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// Makes `Ready` mean that the guest answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness_probe: Option<Probe>,
    /// `None` for ours: no cluster name is resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_policy: Option<String>,
    /// The resolvers that go with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_config: Option<DnsConfig>,
    /// Host name in the guest, at most 63 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

/// Hardware.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Domain {
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory as the guest sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// What the scheduler and quotas count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Disks, interfaces, serial line.
    pub devices: Devices,
}

/// Processors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cpu {
    /// Cores of the one socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
}

/// Memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// What the guest sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<Quantity>,
}

/// Requests of the launcher pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// Requests.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
}

/// Devices.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Devices {
    /// Disks, in boot order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Disk>,
    /// Interfaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Whether the serial line is copied into a container log; on by default, so it is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_serial_console: Option<bool>,
    /// The serial line itself; on by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_serial_console: Option<bool>,
    /// A screen, which nobody looks at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_graphics_device: Option<bool>,
    /// A source of randomness from the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rng: Option<Empty>,
}

/// `{}` on the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// A disk; its volume has the same name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disk {
    /// Name of the volume.
    pub name: String,
    /// A plain disk; absent for other people's cdroms and LUNs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskTarget>,
    /// Serial number that the guest sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

/// How a disk is attached.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskTarget {
    /// `virtio` for ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
}

/// An interface; its network has the same name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Interface {
    /// Name of the network.
    pub name: String,
    /// NAT behind the pod's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<Empty>,
    /// Bridge into the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<Empty>,
    /// Fixed hardware address, for session networks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
}

/// A network.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Network {
    /// Name that an interface refers to.
    pub name: String,
    /// The pod network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<Empty>,
    /// A network of a NetworkAttachmentDefinition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multus: Option<Multus>,
}

/// Reference to a NetworkAttachmentDefinition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Multus {
    /// Its name in the same namespace.
    pub network_name: String,
}

/// What a disk holds: exactly one of the sources.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// Name that a disk refers to.
    pub name: String,
    /// An image from a registry, copy on write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_disk: Option<ContainerDisk>,
    /// A copy-on-write layer over a PVC; lost with the VMI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<Ephemeral>,
    /// A DataVolume's PVC, written to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_volume: Option<DataVolumeRef>,
    /// A PVC, written to; ours never use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimRef>,
    /// cloud-init.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_init_no_cloud: Option<CloudInit>,
}

/// An image from a registry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerDisk {
    /// The image, by digest for ours.
    pub image: String,
}

/// Copy-on-write layer over a PVC.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ephemeral {
    /// The base.
    pub persistent_volume_claim: ClaimRef,
}

/// Reference to a PVC.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimRef {
    /// Its name.
    pub claim_name: String,
    /// Mounted read-only into the launcher pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// Reference to a DataVolume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeRef {
    /// Its name.
    pub name: String,
}

/// cloud-init, always through a Secret.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CloudInit {
    /// Holds `userdata`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalRef>,
    /// Holds `networkdata`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data_secret_ref: Option<LocalRef>,
}

/// Reference to an object of the same namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalRef {
    /// Its name.
    pub name: String,
}

/// A probe.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    /// What is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGet>,
    /// Seconds between two questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_seconds: Option<i32>,
    /// Seconds until no answer counts as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
    /// Bad answers in a row until it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_threshold: Option<i32>,
}

/// An HTTP question.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpGet {
    /// Path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Port.
    pub port: Port,
}

/// Resolvers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DnsConfig {
    /// Their addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
}

/// A port by number or, in other people's machines, by name.
pub type Port = k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
