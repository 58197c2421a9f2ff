//! The words of KubeVirt that more than one file here uses.

/// The account whose writes count as KubeVirt's own.
pub(super) const CONTROLLER: &str = "system:serviceaccount:kubevirt:kubevirt-controller";
/// The source of virt-controller's events.
pub(super) const COMPONENT: &str = "virtualmachine-controller";
/// The source of virt-handler's events.
pub(super) const HANDLER: &str = "virt-handler";
/// The node: this host.
pub(super) const NODE: &str = "ttlab-node";

/// Finalizer of VM and VMI.
pub(super) const CONTROLLER_FINALIZER: &str = "kubevirt.io/virtualMachineControllerFinalize";
/// Second finalizer of a VMI.
pub(super) const FOREGROUND_FINALIZER: &str = "kubevirt.io/foregroundDeleteVirtualMachine";

/// Which generation of the VM a VMI was made from.
pub(super) const GENERATION: &str = "kubevirt.io/vm-generation";
/// Marks that virt-controller sets on what it has seen.
pub(super) const OBSERVED: [&str; 2] =
    ["kubevirt.io/latest-observed-api-version", "kubevirt.io/storage-observed-api-version"];
/// Version of the PCI layout, in the template.
pub(super) const TOPOLOGY: &str = "kubevirt.io/pci-topology-version";
/// The uid of the VMI that a launcher pod runs.
pub(super) const CREATED_BY: &str = "kubevirt.io/created-by";
/// The node that a VMI runs on.
pub(super) const NODE_LABEL: &str = "kubevirt.io/nodeName";
/// The launcher's image.
pub(super) const LAUNCHER_IMAGE: &str = "quay.io/kubevirt/virt-launcher:v1.9.0";
/// What a launcher needs beside the guest's memory.
pub(super) const OVERHEAD_KI: u64 = 274_688;
