//! The table of resources that the cluster serves.
//!
//! Everything generic (paths, discovery, storage, RBAC names, table output) is driven by this table: a kind that is
//! not in it does not exist here. Code refers to a resource by its static (`resource::PODS`), never by a string.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// One resource: its names, its scope and the few ways in which the real server treats kinds differently.
#[derive(Debug)]
pub struct Resource {
    /// API group, empty for core.
    pub group: &'static str,
    /// The version that is stored and preferred.
    pub version: &'static str,
    /// Further versions under which the same objects are served.
    pub also_served: &'static [&'static str],
    /// Lower-case plural, as in the path.
    pub plural: &'static str,
    /// Lower-case singular.
    pub singular: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Lives in a namespace.
    pub namespaced: bool,
    /// Behaves like a custom resource: no strategic merge, PUT needs a resourceVersion, list items carry their kind.
    pub custom: bool,
    /// Has a `/status` subresource: writes of the main resource leave `status` alone.
    pub status: bool,
    /// `metadata.generation` is kept.
    pub generation: bool,
    /// DELETE answers with the object, not with a Status.
    pub returns_deleted: bool,
    /// Only POST exists and nothing is stored (reviews).
    pub review: bool,
    /// Short names of discovery.
    pub short_names: &'static [&'static str],
    /// Categories of discovery.
    pub categories: &'static [&'static str],
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        self.plural == other.plural && self.group == other.group
    }
}
impl Eq for Resource {}
impl Hash for Resource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.plural.hash(state);
        self.group.hash(state);
    }
}
impl PartialOrd for Resource {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Resource {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.group, self.plural).cmp(&(other.group, other.plural))
    }
}

impl Resource {
    const fn new(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        singular: &'static str,
        kind: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            also_served: &[],
            plural,
            singular,
            kind,
            namespaced: true,
            custom: false,
            status: false,
            generation: false,
            returns_deleted: false,
            review: false,
            short_names: &[],
            categories: &[],
        }
    }
    const fn core(plural: &'static str, singular: &'static str, kind: &'static str) -> Self {
        Self::new("", "v1", plural, singular, kind)
    }
    const fn crd(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        singular: &'static str,
        kind: &'static str,
    ) -> Self {
        let mut this = Self::new(group, version, plural, singular, kind);
        this.custom = true;
        this.generation = true;
        this
    }
    const fn review(
        group: &'static str,
        plural: &'static str,
        singular: &'static str,
        kind: &'static str,
        namespaced: bool,
    ) -> Self {
        let mut this = Self::new(group, "v1", plural, singular, kind);
        this.review = true;
        this.namespaced = namespaced;
        this
    }
    const fn cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }
    const fn with_status(mut self) -> Self {
        self.status = true;
        self
    }
    const fn with_generation(mut self) -> Self {
        self.generation = true;
        self
    }
    const fn returns_deleted(mut self) -> Self {
        self.returns_deleted = true;
        self
    }
    const fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }
    const fn all(mut self) -> Self {
        self.categories = &["all"];
        self
    }
    const fn also(mut self, versions: &'static [&'static str]) -> Self {
        self.also_served = versions;
        self
    }

    /// `v1` or `group/version`, as objects carry it.
    pub fn api_version(&self) -> String {
        group_version(self.group, self.version)
    }

    /// `secrets` or `virtualmachines.kubevirt.io`, as error texts and quota keys name it.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The versions served, the preferred one first.
    pub fn versions(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.version).chain(self.also_served.iter().copied())
    }

    /// Whether `version` is served.
    pub fn serves(&self, version: &str) -> bool {
        self.versions().any(|v| v == version)
    }

    /// Verbs in the order in which the real discovery lists them.
    pub fn verbs(&self) -> &'static [&'static str] {
        if self.review {
            &["create"]
        } else if self.custom {
            &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
        } else if self.plural == "namespaces" {
            &["create", "delete", "get", "list", "patch", "update", "watch"]
        } else {
            &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
        }
    }
}

/// `v1` for the core group, else `group/version`.
pub fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// Namespaces.
pub static NAMESPACES: Resource = Resource::core("namespaces", "namespace", "Namespace")
    .cluster()
    .with_status()
    .returns_deleted()
    .short(&["ns"]);
/// Secrets.
pub static SECRETS: Resource = Resource::core("secrets", "secret", "Secret");
/// ConfigMaps.
pub static CONFIG_MAPS: Resource = Resource::core("configmaps", "configmap", "ConfigMap").short(&["cm"]);
/// Pods.
pub static PODS: Resource = Resource::core("pods", "pod", "Pod")
    .with_status()
    .with_generation()
    .returns_deleted()
    .short(&["po"])
    .all();
/// Events.
pub static EVENTS: Resource = Resource::core("events", "event", "Event").short(&["ev"]);
/// PersistentVolumes.
pub static PERSISTENT_VOLUMES: Resource =
    Resource::core("persistentvolumes", "persistentvolume", "PersistentVolume")
        .cluster()
        .with_status()
        .returns_deleted()
        .short(&["pv"]);
/// PersistentVolumeClaims.
pub static PERSISTENT_VOLUME_CLAIMS: Resource =
    Resource::core("persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim")
        .with_status()
        .returns_deleted()
        .short(&["pvc"]);
/// ServiceAccounts.
pub static SERVICE_ACCOUNTS: Resource =
    Resource::core("serviceaccounts", "serviceaccount", "ServiceAccount").returns_deleted().short(&["sa"]);
/// ResourceQuotas.
pub static RESOURCE_QUOTAS: Resource = Resource::core("resourcequotas", "resourcequota", "ResourceQuota")
    .with_status()
    .returns_deleted()
    .short(&["quota"]);
/// Nodes.
pub static NODES: Resource = Resource::core("nodes", "node", "Node").cluster().with_status().short(&["no"]);
/// Services.
pub static SERVICES: Resource =
    Resource::core("services", "service", "Service").with_status().returns_deleted().short(&["svc"]).all();
/// LimitRanges (stored only).
pub static LIMIT_RANGES: Resource =
    Resource::core("limitranges", "limitrange", "LimitRange").short(&["limits"]);
/// Roles.
pub static ROLES: Resource = Resource::new(RBAC, "v1", "roles", "role", "Role");
/// RoleBindings.
pub static ROLE_BINDINGS: Resource = Resource::new(RBAC, "v1", "rolebindings", "rolebinding", "RoleBinding");
/// ClusterRoles.
pub static CLUSTER_ROLES: Resource =
    Resource::new(RBAC, "v1", "clusterroles", "clusterrole", "ClusterRole").cluster();
/// ClusterRoleBindings.
pub static CLUSTER_ROLE_BINDINGS: Resource =
    Resource::new(RBAC, "v1", "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding").cluster();
/// NetworkPolicies.
pub static NETWORK_POLICIES: Resource =
    Resource::new("networking.k8s.io", "v1", "networkpolicies", "networkpolicy", "NetworkPolicy")
        .with_generation()
        .short(&["netpol"]);
/// StorageClasses.
pub static STORAGE_CLASSES: Resource =
    Resource::new("storage.k8s.io", "v1", "storageclasses", "storageclass", "StorageClass")
        .cluster()
        .short(&["sc"]);
/// KubeVirt VirtualMachines.
pub static VIRTUAL_MACHINES: Resource =
    Resource::crd("kubevirt.io", "v1", "virtualmachines", "virtualmachine", "VirtualMachine")
        .with_status()
        .short(&["vm", "vms"])
        .all()
        .also(&["v1alpha3"]);
/// KubeVirt VirtualMachineInstances (no `/status` subresource, as in the real one).
pub static VIRTUAL_MACHINE_INSTANCES: Resource = Resource::crd(
    "kubevirt.io",
    "v1",
    "virtualmachineinstances",
    "virtualmachineinstance",
    "VirtualMachineInstance",
)
.short(&["vmi", "vmis"])
.all()
.also(&["v1alpha3"]);
/// KubeVirt's own configuration object.
pub static KUBEVIRTS: Resource = Resource::crd("kubevirt.io", "v1", "kubevirts", "kubevirt", "KubeVirt")
    .with_status()
    .short(&["kv", "kvs"])
    .all()
    .also(&["v1alpha3"]);
/// CDI DataVolumes.
pub static DATA_VOLUMES: Resource =
    Resource::crd("cdi.kubevirt.io", "v1beta1", "datavolumes", "datavolume", "DataVolume")
        .with_status()
        .short(&["dv", "dvs"])
        .all();
/// Multus NetworkAttachmentDefinitions.
pub static NETWORK_ATTACHMENT_DEFINITIONS: Resource = Resource::crd(
    "k8s.cni.cncf.io",
    "v1",
    "network-attachment-definitions",
    "network-attachment-definition",
    "NetworkAttachmentDefinition",
)
.short(&["net-attach-def"]);

static SELF_SUBJECT_REVIEWS: Resource = Resource::review(
    "authentication.k8s.io",
    "selfsubjectreviews",
    "selfsubjectreview",
    "SelfSubjectReview",
    false,
);
static TOKEN_REVIEWS: Resource =
    Resource::review("authentication.k8s.io", "tokenreviews", "tokenreview", "TokenReview", false);
static LOCAL_SUBJECT_ACCESS_REVIEWS: Resource = Resource::review(
    "authorization.k8s.io",
    "localsubjectaccessreviews",
    "localsubjectaccessreview",
    "LocalSubjectAccessReview",
    true,
);
static SELF_SUBJECT_ACCESS_REVIEWS: Resource = Resource::review(
    "authorization.k8s.io",
    "selfsubjectaccessreviews",
    "selfsubjectaccessreview",
    "SelfSubjectAccessReview",
    false,
);
static SELF_SUBJECT_RULES_REVIEWS: Resource = Resource::review(
    "authorization.k8s.io",
    "selfsubjectrulesreviews",
    "selfsubjectrulesreview",
    "SelfSubjectRulesReview",
    false,
);
static SUBJECT_ACCESS_REVIEWS: Resource = Resource::review(
    "authorization.k8s.io",
    "subjectaccessreviews",
    "subjectaccessreview",
    "SubjectAccessReview",
    false,
);

/// Every resource, in the order of discovery.
pub static TABLE: &[&Resource] = &[
    &CONFIG_MAPS,
    &EVENTS,
    &LIMIT_RANGES,
    &NAMESPACES,
    &NODES,
    &PERSISTENT_VOLUME_CLAIMS,
    &PERSISTENT_VOLUMES,
    &PODS,
    &RESOURCE_QUOTAS,
    &SECRETS,
    &SERVICE_ACCOUNTS,
    &SERVICES,
    &SELF_SUBJECT_REVIEWS,
    &TOKEN_REVIEWS,
    &LOCAL_SUBJECT_ACCESS_REVIEWS,
    &SELF_SUBJECT_ACCESS_REVIEWS,
    &SELF_SUBJECT_RULES_REVIEWS,
    &SUBJECT_ACCESS_REVIEWS,
    &NETWORK_POLICIES,
    &CLUSTER_ROLE_BINDINGS,
    &CLUSTER_ROLES,
    &ROLE_BINDINGS,
    &ROLES,
    &STORAGE_CLASSES,
    &KUBEVIRTS,
    &VIRTUAL_MACHINES,
    &VIRTUAL_MACHINE_INSTANCES,
    &DATA_VOLUMES,
    &NETWORK_ATTACHMENT_DEFINITIONS,
];

/// The resource of a path (`group`, `plural`).
pub fn find(group: &str, plural: &str) -> Option<&'static Resource> {
    TABLE.iter().copied().find(|r| r.plural == plural && r.group == group)
}

/// The resource of an object (`apiVersion`, `kind`).
pub fn find_kind(api_version: &str, kind: &str) -> Option<&'static Resource> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    TABLE.iter().copied().find(|r| r.kind == kind && r.group == group && r.serves(version))
}
