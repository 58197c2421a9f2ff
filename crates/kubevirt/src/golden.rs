//! The golden PVC of an image: what an object says about its use as a base disk.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use lab_domain::{Digest, disk};

use crate::{DataVolume, labels};

/// Prefix of an image digest in annotations and image references.
pub const SHA256: &str = "sha256:";
/// CDI's annotation on a PVC that it fills: phase of the importer pod.
const IMPORT_PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";

/// Value of the annotation that a golden PVC of this image carries.
#[must_use]
pub fn digest_annotation(image: &Digest) -> String {
    format!("{SHA256}{image}")
}

/// What the PVC, and the DataVolume that fills it where there is one, say about it.
///
/// The name is only 64 bits of the digest and anyone may make a PVC of that name: the annotation decides which image it holds.
#[must_use]
pub fn observe(claim: &PersistentVolumeClaim, filler: Option<&DataVolume>) -> disk::Claim {
    let status = claim.status.as_ref();
    let granted = status.and_then(|s| s.access_modes.as_ref()).filter(|m| !m.is_empty());
    let modes = granted.or_else(|| claim.spec.as_ref().and_then(|s| s.access_modes.as_ref()));
    let bound = status.and_then(|s| s.phase.as_deref()) == Some("Bound");
    let imported = labels::annotation(&claim.metadata, IMPORT_PHASE).is_none_or(|phase| phase == "Succeeded");
    disk::Claim {
        image: labels::annotation(&claim.metadata, labels::IMAGE_DIGEST)
            .and_then(|text| text.strip_prefix(SHA256))
            .and_then(|hex| Digest::new(hex).ok()),
        filled: bound && imported && filler.is_none_or(DataVolume::is_filled),
        many_nodes: modes
            .is_some_and(|m| m.iter().any(|mode| matches!(mode.as_str(), "ReadOnlyMany" | "ReadWriteMany"))),
        being_deleted: claim.metadata.deletion_timestamp.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn digest() -> Digest {
        Digest::new("ab".repeat(32)).unwrap()
    }

    fn claim(change: impl FnOnce(&mut Value)) -> disk::Claim {
        let mut object = json!({
            "metadata": {"name": "golden-abababababababab", "annotations": {"ttlab.io/image-digest": digest_annotation(&digest())}},
            "spec": {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]},
            "status": {"phase": "Bound", "accessModes": ["ReadWriteMany"]},
        });
        change(&mut object);
        observe(&serde_json::from_value(object).unwrap(), None)
    }

    #[test]
    fn a_bound_annotated_shared_claim_is_usable() {
        let usable =
            disk::Claim { image: Some(digest()), filled: true, many_nodes: true, being_deleted: false };
        assert_eq!(claim(|_| ()), usable);
    }

    #[test]
    fn each_flaw_is_seen() {
        assert!(!claim(|c| c["status"]["phase"] = json!("Pending")).filled);
        assert!(!claim(|c| c["metadata"]["annotations"][IMPORT_PHASE] = json!("Running")).filled);
        assert!(claim(|c| c["metadata"]["annotations"][IMPORT_PHASE] = json!("Succeeded")).filled);
        // What was granted counts, not what was asked for.
        assert!(!claim(|c| c["status"]["accessModes"] = json!(["ReadWriteOnce"])).many_nodes);
        assert!(claim(|c| c["metadata"]["deletionTimestamp"] = json!("2026-12-01T00:00:00Z")).being_deleted);
        assert_eq!(claim(|c| c["metadata"]["annotations"] = json!({})).image, None);
        assert_eq!(claim(|c| c["metadata"]["annotations"][labels::IMAGE_DIGEST] = json!("abc")).image, None);
    }

    #[test]
    fn a_data_volume_that_still_imports_is_not_filled() {
        let claim: PersistentVolumeClaim =
            serde_json::from_value(json!({"metadata": {}, "status": {"phase": "Bound"}})).unwrap();
        let filler = |phase: &str| -> DataVolume {
            serde_json::from_value(json!({"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
                "metadata": {}, "spec": {}, "status": {"phase": phase}}))
            .unwrap()
        };
        assert!(observe(&claim, None).filled);
        assert!(observe(&claim, Some(&filler("Succeeded"))).filled);
        assert!(!observe(&claim, Some(&filler("ImportInProgress"))).filled);
    }
}
