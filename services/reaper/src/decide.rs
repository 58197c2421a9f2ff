//! What to do, given what was seen. Pure.

pub(crate) mod ending;
pub(crate) mod ghosts;
pub(crate) mod timeout;

use lab_domain::{ObjectUid, SessionId};
use lab_kubevirt::{Identity, kinds::Kind};

/// An object that carries our environment and our installation. Nothing else ever becomes one of these.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) uid: ObjectUid,
    /// Its session and machine; `None` where those labels cannot be read.
    pub(crate) identity: Option<Identity>,
    /// It has a deletionTimestamp.
    pub(crate) is_leaving: bool,
}

impl Object {
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.identity.as_ref().map(|i| i.session)
    }
}

/// Which of these objects, all to go, are to be deleted now.
///
/// A run strategy makes a deleted VMI anew, and a VMI its pod, so the maker goes first and takes the rest along in order; what
/// has lost its maker is deleted itself. What is leaving already is left alone.
pub(crate) fn deletions<'a>(objects: &[&'a Object]) -> Vec<&'a Object> {
    let made_by = |kind| match kind {
        Kind::VirtualMachineInstance => Some(Kind::VirtualMachine),
        Kind::Pod => Some(Kind::VirtualMachineInstance),
        Kind::PersistentVolumeClaim => Some(Kind::DataVolume),
        Kind::VirtualMachine | Kind::DataVolume | Kind::Secret | Kind::NetworkAttachmentDefinition => None,
    };
    let has_maker = |object: &Object| {
        made_by(object.kind)
            .is_some_and(|maker| objects.iter().any(|o| o.kind == maker && o.identity == object.identity))
    };
    let mut all: Vec<_> =
        objects.iter().copied().filter(|object| !object.is_leaving && !has_maker(object)).collect();
    all.sort_by_key(|o| Kind::ALL.iter().position(|k| *k == o.kind));
    all
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn object(kind: Kind, session: SessionId, uid: &str) -> Object {
        Object {
            kind,
            name: format!("lab-{session}-main"),
            uid: uid.parse().unwrap(),
            identity: Some(Identity { session, machine: Some("main".parse().unwrap()) }),
            is_leaving: false,
        }
    }

    fn kinds(objects: &[Object]) -> Vec<Kind> {
        deletions(&objects.iter().collect::<Vec<_>>()).iter().map(|o| o.kind).collect()
    }

    #[test]
    fn the_maker_goes_first_and_takes_the_rest_along() {
        let session = SessionId::generate();
        let of = |kind: Kind| object(kind, session, kind.as_str());
        let all: Vec<_> = Kind::ALL.into_iter().rev().map(of).collect();
        use Kind::{DataVolume, NetworkAttachmentDefinition, PersistentVolumeClaim, Pod, Secret};
        use Kind::{VirtualMachine, VirtualMachineInstance};
        assert_eq!(kinds(&all), [VirtualMachine, DataVolume, NetworkAttachmentDefinition, Secret]);
        assert_eq!(kinds(&[of(Pod), of(VirtualMachineInstance)]), [VirtualMachineInstance]);
        assert_eq!(kinds(&[of(Pod), of(PersistentVolumeClaim)]), [Pod, PersistentVolumeClaim]);
        assert_eq!(kinds(&[of(Secret)]), [Secret]);
    }

    #[test]
    fn another_machines_vm_protects_nothing() {
        let one = object(Kind::VirtualMachine, SessionId::generate(), "vm");
        let other = object(Kind::VirtualMachineInstance, SessionId::generate(), "vmi");
        assert_eq!(kinds(&[one, other]).len(), 2);
    }

    #[test]
    fn what_is_leaving_is_left_alone_and_still_protects_what_it_made() {
        let session = SessionId::generate();
        let vm = Object { is_leaving: true, ..object(Kind::VirtualMachine, session, "vm") };
        let vmi = object(Kind::VirtualMachineInstance, session, "vmi");
        assert_eq!(kinds(&[vm, vmi]), []);
    }
}
