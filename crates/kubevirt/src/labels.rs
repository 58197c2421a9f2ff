//! Labels, annotations and field managers, and the rule that says which objects are ours.
//!
//! Several environments may share a namespace, and an environment's name may be used twice by mistake. An object is ours only
//! if it carries our environment *and* our installation; nobody in this house deletes or counts anything else.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lab_domain::{Environment, InstallationId, LabId, MachineName, SessionId};

/// Label: the session.
pub const SESSION: &str = "ttlab.io/session";
/// Label: the environment.
pub const ENVIRONMENT: &str = "ttlab.io/environment";
/// Label: the installation's id.
pub const INSTALLATION: &str = "ttlab.io/installation";
/// Label: the lab.
pub const LAB: &str = "ttlab.io/lab";
/// Label: the machine within its session.
pub const MACHINE: &str = "ttlab.io/machine";
/// Label of every object that this house makes.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Its value.
pub const MANAGED_BY_VALUE: &str = "ttlab";

/// Annotation of a VM: what its root disk is.
pub const DISK: &str = "ttlab.io/disk";
/// Annotation of a VM: why.
pub const DISK_REASON: &str = "ttlab.io/disk-reason";
/// Annotation of Secret and VM: which key made the machine's token.
pub const TOKEN_KEY: &str = "ttlab.io/token-key";
/// Annotation of golden PVCs and VMs: digest of the image, `sha256:<64 hex>`.
pub const IMAGE_DIGEST: &str = "ttlab.io/image-digest";
/// Annotation of VMs: digest of the lab's content.
pub const LAB_DIGEST: &str = "ttlab.io/lab-digest";

/// KubeVirt's label on a launcher pod: uid of its VMI.
pub const CREATED_BY: &str = "kubevirt.io/created-by";
/// KubeVirt's label that tells launcher pods from others; value [`LAUNCHER_VALUE`].
pub const LAUNCHER: &str = "kubevirt.io";
/// See [`LAUNCHER`].
pub const LAUNCHER_VALUE: &str = "virt-launcher";

/// Field manager of a service, for example `ttlab-provisioner`.
#[must_use]
pub fn field_manager(service: &str) -> String {
    format!("ttlab-{service}")
}

/// One installation of one environment: the owner of all that carries both labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// The environment.
    pub environment: Environment,
    /// Which of the environments of that name.
    pub id: InstallationId,
}

/// Whose an object is, as its labels say.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// Its session.
    pub session: SessionId,
    /// Its machine; objects of the whole session (a network) have none.
    pub machine: Option<MachineName>,
}

impl Installation {
    /// Labels of an object of a machine, or of the whole session.
    #[must_use]
    pub fn labels(
        &self,
        session: SessionId,
        lab: &LabId,
        machine: Option<&MachineName>,
    ) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([
            (SESSION.to_owned(), session.to_string()),
            (ENVIRONMENT.to_owned(), self.environment.to_string()),
            (INSTALLATION.to_owned(), self.id.to_string()),
            (LAB.to_owned(), lab.to_string()),
            (MANAGED_BY.to_owned(), MANAGED_BY_VALUE.to_owned()),
        ]);
        if let Some(machine) = machine {
            labels.insert(MACHINE.to_owned(), machine.to_string());
        }
        labels
    }

    /// Label selector of everything that is ours.
    #[must_use]
    pub fn selector(&self) -> String {
        format!("{ENVIRONMENT}={},{INSTALLATION}={}", self.environment, self.id)
    }

    /// Label selector of one session's objects.
    #[must_use]
    pub fn session_selector(&self, session: SessionId) -> String {
        format!("{},{SESSION}={session}", self.selector())
    }

    /// Label selector of everything of the environment, whatever installation: what capacity counts.
    #[must_use]
    pub fn environment_selector(&self) -> String {
        format!("{ENVIRONMENT}={}", self.environment)
    }

    /// Whether the object carries our environment and our installation.
    #[must_use]
    pub fn owns(&self, meta: &ObjectMeta) -> bool {
        label(meta, ENVIRONMENT) == Some(self.environment.as_str())
            && label(meta, INSTALLATION).is_some_and(|id| id == self.id.to_string())
    }

    /// Whose the object is, if it is ours and its labels can be read.
    #[must_use]
    pub fn identity(&self, meta: &ObjectMeta) -> Option<Identity> {
        if !self.owns(meta) {
            return None;
        }
        let session = label(meta, SESSION)?.parse().ok()?;
        let machine = label(meta, MACHINE).map(str::parse).transpose().ok()?;
        Some(Identity { session, machine })
    }
}

/// A label's value.
#[must_use]
pub fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

/// An annotation's value.
#[must_use]
pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn ours() -> Installation {
        Installation { environment: "dev".parse().unwrap(), id: InstallationId(Uuid::from_u128(7)) }
    }

    fn meta(labels: BTreeMap<String, String>) -> ObjectMeta {
        ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }
    }

    fn full() -> BTreeMap<String, String> {
        let session = SessionId(Uuid::from_u128(1));
        ours().labels(session, &"disk-rescue".parse().unwrap(), Some(&"main".parse().unwrap()))
    }

    #[test]
    fn what_we_label_is_ours_and_tells_its_session() {
        let identity = ours().identity(&meta(full())).unwrap();
        assert_eq!(identity.session, SessionId(Uuid::from_u128(1)));
        assert_eq!(identity.machine.unwrap().as_str(), "main");
    }

    #[test]
    fn an_object_that_lacks_either_label_or_has_anothers_is_not_ours() {
        for key in [ENVIRONMENT, INSTALLATION] {
            let mut labels = full();
            labels.remove(key);
            assert!(!ours().owns(&meta(labels.clone())), "without {key}");
            labels.insert(key.to_owned(), "other".to_owned());
            assert!(!ours().owns(&meta(labels)), "with another {key}");
        }
        assert!(!ours().owns(&ObjectMeta::default()));
        let twin = Installation { id: InstallationId(Uuid::from_u128(8)), ..ours() };
        assert!(!twin.owns(&meta(full())));
    }

    #[test]
    fn every_label_fits_kubernetes() {
        for (key, value) in full() {
            assert!(value.len() <= 63, "{key}={value}");
            assert!(value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)), "{key}={value}");
        }
    }
}
