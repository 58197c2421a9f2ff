//! The kinds of which an object may be ours, for lists and deletes that go over all of them.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::{Resource, api::ApiResource};

use crate::{DataVolume, NetworkAttachmentDefinition, VirtualMachine, VirtualMachineInstance};

/// A kind of which an object may be ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// VirtualMachine; deleting it takes its VMI and pod along.
    VirtualMachine,
    /// VirtualMachineInstance.
    VirtualMachineInstance,
    /// The launcher pod.
    Pod,
    /// cloud-init.
    Secret,
    /// A disk per machine.
    DataVolume,
    /// Its storage.
    PersistentVolumeClaim,
    /// A session's own network.
    NetworkAttachmentDefinition,
}

impl Kind {
    /// Every kind, in the order in which they are to be deleted: what makes others again comes first.
    pub const ALL: [Self; 7] = [
        Self::VirtualMachine,
        Self::VirtualMachineInstance,
        Self::Pod,
        Self::DataVolume,
        Self::PersistentVolumeClaim,
        Self::NetworkAttachmentDefinition,
        Self::Secret,
    ];

    /// Kubernetes' word for it, also in events and questions.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::VirtualMachine => "VirtualMachine",
            Self::VirtualMachineInstance => "VirtualMachineInstance",
            Self::Pod => "Pod",
            Self::Secret => "Secret",
            Self::DataVolume => "DataVolume",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::NetworkAttachmentDefinition => "NetworkAttachmentDefinition",
        }
    }

    /// Where it lies in the API.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        fn of<K: Resource<DynamicType = ()>>() -> ApiResource {
            ApiResource::erase::<K>(&())
        }
        match self {
            Self::VirtualMachine => of::<VirtualMachine>(),
            Self::VirtualMachineInstance => of::<VirtualMachineInstance>(),
            Self::Pod => of::<Pod>(),
            Self::Secret => of::<Secret>(),
            Self::DataVolume => of::<DataVolume>(),
            Self::PersistentVolumeClaim => of::<PersistentVolumeClaim>(),
            Self::NetworkAttachmentDefinition => of::<NetworkAttachmentDefinition>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_knows_its_path() {
        let all: Vec<_> = Kind::ALL.iter().map(|k| k.resource()).collect();
        let plurals: Vec<_> = all.iter().map(|r| r.plural.as_str()).collect();
        assert_eq!(
            plurals,
            [
                "virtualmachines",
                "virtualmachineinstances",
                "pods",
                "datavolumes",
                "persistentvolumeclaims",
                "network-attachment-definitions",
                "secrets"
            ]
        );
        assert!(Kind::ALL.iter().zip(&all).all(|(k, r)| k.as_str() == r.kind));
    }
}
