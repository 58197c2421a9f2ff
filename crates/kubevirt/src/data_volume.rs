//! CDI's DataVolume: a disk that is filled by an import.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::{status::Condition, vm::TemplateMeta};

/// Spec of a DataVolume.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cdi.kubevirt.io",
    version = "v1beta1",
    kind = "DataVolume",
    plural = "datavolumes",
    shortname = "dv",
    namespaced,
    status = "DataVolumeStatus",
    schema = "disabled",
    derive = "PartialEq",
    doc = "A disk that CDI fills; its PVC has the same name."
)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSpec {
    /// Where the content comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// What storage is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
}

/// Where the content comes from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Source {
    /// A container image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry: Option<Registry>,
}

/// A container image as a source.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Registry {
    /// `docker://…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// What storage is asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Storage {
    /// `ReadWriteOnce`, `ReadOnlyMany`, `ReadWriteMany`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access_modes: Vec<String>,
    /// Its size.
    pub resources: StorageResources,
    /// Storage class; the cluster's default if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
}

/// Size of a disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageResources {
    /// `storage: 2Gi`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
}

/// Status of a DataVolume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeStatus {
    /// For example `ImportInProgress` or `Succeeded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// `47.5%` or `N/A`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A DataVolume that virt-controller makes with a VirtualMachine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeTemplate {
    /// Name, labels and annotations.
    pub metadata: TemplateMeta,
    /// Its spec.
    pub spec: DataVolumeSpec,
}

impl DataVolume {
    /// Whether the disk holds its content.
    #[must_use]
    pub fn is_filled(&self) -> bool {
        self.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Succeeded")
    }
}
