//! What we create, as pure functions: the cloud-init Secret, the VirtualMachine, the owner patch.
//!
//! Order of creation: Secret, VM, then the VM becomes the Secret's owner. A Secret made with an owner that does not exist yet
//! is collected within a third of a second.

use std::{collections::BTreeMap, net::IpAddr};

use k8s_openapi::{
    ByteString,
    api::core::v1::Secret,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use kube::Resource as _;
use lab_domain::{
    Digest, DiskKind, LabId, MachineName, SessionId,
    disk::{Choice, DiskReason},
    id::object_name,
};
use serde_json::{Value, json};

use crate::{
    VirtualMachine, VirtualMachineInstanceSpec, VirtualMachineSpec,
    data_volume::{DataVolumeSpec, DataVolumeTemplate, Registry, Source, Storage, StorageResources},
    golden,
    labels::{self, Installation},
    vm::{
        ClaimRef, CloudInit, ContainerDisk, Cpu, DataVolumeRef, Devices, Disk, DiskTarget, DnsConfig, Domain,
        Empty, Ephemeral, HttpGet, Interface, LocalRef, Memory, Multus, Network, Probe, Resources, Template,
        TemplateMeta, Volume,
    },
};

/// Port of the agent in the guest.
pub const AGENT_PORT: u16 = 8899;
/// Path of the agent that answers without a token.
pub const HEALTH_PATH: &str = "/healthz";
/// Key of the user-data in the Secret.
pub const USERDATA: &str = "userdata";
/// Key of the network-data in the Secret.
pub const NETWORKDATA: &str = "networkdata";
/// A student has said End: the machine gets this long to power off.
const TERMINATION_GRACE_S: i64 = 5;

const ROOT: &str = "root";
const CLOUD_INIT: &str = "cloudinit";
const POD_NETWORK: &str = "default";
const SESSION_NETWORK: &str = "session";

/// Whose an object is: what its name and labels say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Installation and environment.
    pub installation: Installation,
    /// The session.
    pub session: SessionId,
    /// The machine's name within it.
    pub machine: MachineName,
    /// The lab.
    pub lab: LabId,
}

/// One machine to be made.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Whose.
    pub subject: Subject,
    /// The lab's exact content.
    pub lab_digest: Digest,
    /// Digest of the image that its root disk is made of.
    pub image: Digest,
    /// Host name in the guest, the same that cloud-init gives it.
    pub hostname: String,
    /// Processors.
    pub cpus: u32,
    /// Memory, as Kubernetes writes it: `512Mi`.
    pub memory: String,
    /// The root disk.
    pub disk: RootDisk,
    /// Why that disk.
    pub disk_reason: DiskReason,
    /// Id of the key that made its token.
    pub token_key: String,
    /// The only resolvers that it may ask.
    pub resolvers: Vec<IpAddr>,
    /// Its place in the session's own network.
    pub session_network: Option<SessionNetwork>,
}

/// The root disk and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootDisk {
    /// Copy-on-write layer over the golden PVC of this name.
    Golden {
        /// The PVC.
        claim: String,
    },
    /// This image.
    Container {
        /// Image reference, by digest.
        image: String,
    },
    /// A disk of its own, filled by CDI.
    DataVolume {
        /// `docker://…`.
        url: String,
        /// Its size, for example `2Gi`.
        size: String,
    },
}

impl RootDisk {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> DiskKind {
        match self {
            Self::Golden { .. } => DiskKind::Golden,
            Self::Container { .. } => DiskKind::Container,
            Self::DataVolume { .. } => DiskKind::DataVolume,
        }
    }
}

/// A machine's place in its session's own network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionNetwork {
    /// NetworkAttachmentDefinition.
    pub attachment: String,
    /// Fixed hardware address, by which network-data names the interface.
    pub mac: String,
}

impl Subject {
    /// Name of its VM, VMI and Secret.
    #[must_use]
    pub fn object_name(&self) -> String {
        object_name(self.session, &self.machine)
    }

    fn labels(&self) -> BTreeMap<String, String> {
        self.installation.labels(self.session, &self.lab, Some(&self.machine))
    }

    /// The cloud-init Secret, whose token was made with the key of that id. It has no owner yet: see the module's words on
    /// order.
    #[must_use]
    pub fn secret(&self, token_key: &str, userdata: &str, networkdata: Option<&str>) -> Secret {
        let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
        let mut data = BTreeMap::from([(USERDATA.to_owned(), bytes(userdata))]);
        if let Some(text) = networkdata {
            data.insert(NETWORKDATA.to_owned(), bytes(text));
        }
        Secret {
            metadata: ObjectMeta {
                name: Some(self.object_name()),
                labels: Some(self.labels()),
                annotations: Some(BTreeMap::from([(labels::TOKEN_KEY.to_owned(), token_key.to_owned())])),
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".to_owned()),
            data: Some(data),
            ..Secret::default()
        }
    }
}

impl Machine {
    /// The VirtualMachine. `networkdata` says whether the Secret has that key.
    #[must_use]
    pub fn virtual_machine(&self, networkdata: bool) -> VirtualMachine {
        let annotations = BTreeMap::from([
            (labels::DISK.to_owned(), self.disk.kind().to_string()),
            (labels::DISK_REASON.to_owned(), self.disk_reason.to_string()),
            (labels::TOKEN_KEY.to_owned(), self.token_key.clone()),
            (labels::IMAGE_DIGEST.to_owned(), golden::digest_annotation(&self.image)),
            (labels::LAB_DIGEST.to_owned(), self.lab_digest.to_string()),
        ]);
        let mut vm = VirtualMachine::new(
            &self.subject.object_name(),
            VirtualMachineSpec {
                // Not Always: a machine that the student powers off stays off, and readiness says so.
                run_strategy: Some("Once".to_owned()),
                data_volume_templates: self.data_volumes(),
                template: Template {
                    // Network policies select the launcher pod by these.
                    metadata: TemplateMeta { labels: self.subject.labels(), ..TemplateMeta::default() },
                    spec: self.instance(networkdata),
                },
            },
        );
        vm.metadata.labels = Some(self.subject.labels());
        vm.metadata.annotations = Some(annotations);
        vm
    }

    fn instance(&self, networkdata: bool) -> VirtualMachineInstanceSpec {
        let (interfaces, networks) = self.network();
        let memory = Quantity(self.memory.clone());
        let disk = |name: &str| Disk {
            name: name.to_owned(),
            disk: Some(DiskTarget { bus: Some("virtio".to_owned()) }),
            ..Disk::default()
        };
        VirtualMachineInstanceSpec {
            domain: Domain {
                cpu: Some(Cpu { cores: Some(self.cpus) }),
                memory: Some(Memory { guest: Some(memory.clone()) }),
                resources: Some(Resources { requests: BTreeMap::from([("memory".to_owned(), memory)]) }),
                devices: Devices {
                    disks: vec![disk(ROOT), disk(CLOUD_INIT)],
                    interfaces,
                    // On by default: it would copy what students type into container logs.
                    log_serial_console: Some(false),
                    autoattach_serial_console: Some(true),
                    autoattach_graphics_device: Some(false),
                    // Machines of one golden disk start with the same seed file; this makes their random state differ.
                    rng: Some(Empty {}),
                },
            },
            networks,
            volumes: vec![self.root_volume(), self.cloud_init(networkdata)],
            termination_grace_period_seconds: Some(TERMINATION_GRACE_S),
            readiness_probe: Some(Probe {
                http_get: Some(HttpGet {
                    path: Some(HEALTH_PATH.to_owned()),
                    port: IntOrString::Int(i32::from(AGENT_PORT)),
                }),
                period_seconds: Some(5),
                timeout_seconds: Some(5),
                failure_threshold: Some(3),
            }),
            dns_policy: Some("None".to_owned()),
            dns_config: Some(DnsConfig {
                nameservers: self.resolvers.iter().map(ToString::to_string).collect(),
            }),
            hostname: Some(self.hostname.clone()),
        }
    }

    fn network(&self) -> (Vec<Interface>, Vec<Network>) {
        // Named, because the default on the pod network is bridge.
        let mut interfaces = vec![Interface {
            name: POD_NETWORK.to_owned(),
            masquerade: Some(Empty {}),
            ..Interface::default()
        }];
        let mut networks =
            vec![Network { name: POD_NETWORK.to_owned(), pod: Some(Empty {}), ..Network::default() }];
        if let Some(own) = &self.session_network {
            interfaces.push(Interface {
                name: SESSION_NETWORK.to_owned(),
                bridge: Some(Empty {}),
                mac_address: Some(own.mac.clone()),
                ..Interface::default()
            });
            networks.push(Network {
                name: SESSION_NETWORK.to_owned(),
                multus: Some(Multus { network_name: own.attachment.clone() }),
                ..Network::default()
            });
        }
        (interfaces, networks)
    }

    fn root_volume(&self) -> Volume {
        let volume = Volume { name: ROOT.to_owned(), ..Volume::default() };
        match &self.disk {
            RootDisk::Golden { claim } => Volume {
                ephemeral: Some(Ephemeral {
                    persistent_volume_claim: ClaimRef { claim_name: claim.clone(), read_only: Some(true) },
                }),
                ..volume
            },
            RootDisk::Container { image } => {
                Volume { container_disk: Some(ContainerDisk { image: image.clone() }), ..volume }
            }
            RootDisk::DataVolume { .. } => {
                Volume { data_volume: Some(DataVolumeRef { name: self.subject.object_name() }), ..volume }
            }
        }
    }

    fn cloud_init(&self, networkdata: bool) -> Volume {
        let secret = LocalRef { name: self.subject.object_name() };
        Volume {
            name: CLOUD_INIT.to_owned(),
            cloud_init_no_cloud: Some(CloudInit {
                network_data_secret_ref: networkdata.then(|| secret.clone()),
                secret_ref: Some(secret),
            }),
            ..Volume::default()
        }
    }

    fn data_volumes(&self) -> Vec<DataVolumeTemplate> {
        let RootDisk::DataVolume { url, size } = &self.disk else { return Vec::new() };
        vec![DataVolumeTemplate {
            metadata: TemplateMeta {
                name: Some(self.subject.object_name()),
                labels: self.subject.labels(),
                ..TemplateMeta::default()
            },
            spec: DataVolumeSpec {
                source: Some(Source { registry: Some(Registry { url: Some(url.clone()) }) }),
                storage: Some(Storage {
                    resources: StorageResources {
                        requests: BTreeMap::from([("storage".to_owned(), Quantity(size.clone()))]),
                    },
                    ..Storage::default()
                }),
            },
        }]
    }
}

/// Merge patch that makes the VM the owner of its Secret.
///
/// The Secret's uid is in it: were the Secret deleted and made anew meanwhile, the patch is refused instead of adopting another.
#[must_use]
pub fn owner_patch(vm_name: &str, vm_uid: &str, secret_uid: &str) -> Value {
    json!({
        "metadata": {
            "uid": secret_uid,
            "ownerReferences": [{
                "apiVersion": VirtualMachine::api_version(&()),
                "kind": VirtualMachine::kind(&()),
                "name": vm_name,
                "uid": vm_uid,
            }],
        },
    })
}

/// The disk and its reason, as the annotations of an existing VM tell.
#[must_use]
pub fn disk_of(vm: &VirtualMachine) -> Option<Choice> {
    let kind = labels::annotation(&vm.metadata, labels::DISK)?.parse().ok()?;
    let word = labels::annotation(&vm.metadata, labels::DISK_REASON)?;
    let reason = *DiskReason::ALL.iter().find(|r| r.as_str() == word)?;
    Some(Choice { kind, reason })
}
