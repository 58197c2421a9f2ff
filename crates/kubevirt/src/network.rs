//! NetworkAttachmentDefinition: the network of a session with several machines.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Spec of a NetworkAttachmentDefinition.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "k8s.cni.cncf.io",
    version = "v1",
    kind = "NetworkAttachmentDefinition",
    plural = "network-attachment-definitions",
    shortname = "net-attach-def",
    namespaced,
    schema = "disabled",
    derive = "PartialEq",
    doc = "A network that pods may attach to beside the pod network."
)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkAttachmentDefinitionSpec {
    /// CNI configuration as JSON text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub config: String,
}
