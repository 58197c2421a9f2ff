//! Which root disk a machine gets: a pure function of what the lab asks and what the cluster says.
//!
//! A lab that asks for the golden disk never fails for want of it: any flaw means the container disk, and the flaw is
//! reported. The golden disk must be looked at before the VM is created: a VM whose golden PVC is missing never recovers.

use std::fmt;

use crate::{Digest, DiskKind};

/// What the cluster answered when asked for the golden PVC of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Golden {
    /// There is none.
    Missing,
    /// We may not look.
    Forbidden,
    /// There is one.
    Found(Claim),
}

/// A PVC that may serve as a read-only base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Digest of the image that it says it holds.
    pub image: Option<Digest>,
    /// Bound, and no import is under way.
    pub filled: bool,
    /// Its access mode lets machines on several hosts use it at once.
    pub many_nodes: bool,
    /// It has a deletionTimestamp.
    pub being_deleted: bool,
}

/// Why a machine has the root disk that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiskReason {
    /// The lab asks for it and it can be had.
    Asked,
    /// No golden PVC of this image.
    GoldenMissing,
    /// No permission to read PVCs.
    GoldenForbidden,
    /// The golden PVC is still being filled.
    GoldenImporting,
    /// The golden PVC can be used on one host only.
    GoldenSingleNode,
    /// The golden PVC holds another image, or does not say which.
    GoldenOtherImage,
    /// The golden PVC is being deleted.
    GoldenDeleting,
}

impl DiskReason {
    /// Every reason.
    pub const ALL: &'static [Self] = &[
        Self::Asked,
        Self::GoldenMissing,
        Self::GoldenForbidden,
        Self::GoldenImporting,
        Self::GoldenSingleNode,
        Self::GoldenOtherImage,
        Self::GoldenDeleting,
    ];

    /// The word in events, annotations and on the operator's pages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::GoldenMissing => "golden_missing",
            Self::GoldenForbidden => "golden_forbidden",
            Self::GoldenImporting => "golden_importing",
            Self::GoldenSingleNode => "golden_single_node",
            Self::GoldenOtherImage => "golden_other_image",
            Self::GoldenDeleting => "golden_deleting",
        }
    }
}

impl fmt::Display for DiskReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The root disk of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// What it is.
    pub kind: DiskKind,
    /// Why.
    pub reason: DiskReason,
}

/// Chooses the root disk for a machine of `image`.
#[must_use]
pub fn choose(asked: DiskKind, image: &Digest, golden: &Golden) -> Choice {
    let flaw = match asked {
        DiskKind::Container | DiskKind::DataVolume => {
            return Choice { kind: asked, reason: DiskReason::Asked };
        }
        DiskKind::Golden => match golden {
            Golden::Missing => Some(DiskReason::GoldenMissing),
            Golden::Forbidden => Some(DiskReason::GoldenForbidden),
            Golden::Found(claim) => flaw(image, claim),
        },
    };
    match flaw {
        None => Choice { kind: DiskKind::Golden, reason: DiskReason::Asked },
        Some(reason) => Choice { kind: DiskKind::Container, reason },
    }
}

/// The gravest first: an operator who mends it should not meet the next one only then.
fn flaw(image: &Digest, claim: &Claim) -> Option<DiskReason> {
    if claim.being_deleted {
        Some(DiskReason::GoldenDeleting)
    } else if claim.image.as_ref() != Some(image) {
        Some(DiskReason::GoldenOtherImage)
    } else if !claim.many_nodes {
        Some(DiskReason::GoldenSingleNode)
    } else if !claim.filled {
        Some(DiskReason::GoldenImporting)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Digest {
        Digest::new("ab".repeat(32)).unwrap()
    }

    fn usable() -> Claim {
        Claim { image: Some(image()), filled: true, many_nodes: true, being_deleted: false }
    }

    fn container(reason: DiskReason) -> Choice {
        Choice { kind: DiskKind::Container, reason }
    }

    #[test]
    fn every_branch_of_the_golden_disk() {
        let other = Digest::new("cd".repeat(32)).unwrap();
        let found = |claim| Golden::Found(claim);
        let table = [
            (found(usable()), Choice { kind: DiskKind::Golden, reason: DiskReason::Asked }),
            (Golden::Missing, container(DiskReason::GoldenMissing)),
            (Golden::Forbidden, container(DiskReason::GoldenForbidden)),
            (found(Claim { filled: false, ..usable() }), container(DiskReason::GoldenImporting)),
            (found(Claim { many_nodes: false, ..usable() }), container(DiskReason::GoldenSingleNode)),
            (found(Claim { image: Some(other), ..usable() }), container(DiskReason::GoldenOtherImage)),
            (found(Claim { image: None, ..usable() }), container(DiskReason::GoldenOtherImage)),
            (found(Claim { being_deleted: true, ..usable() }), container(DiskReason::GoldenDeleting)),
            // Several flaws: the gravest is told.
            (
                found(Claim { being_deleted: true, image: None, many_nodes: false, filled: false }),
                container(DiskReason::GoldenDeleting),
            ),
            (
                found(Claim { many_nodes: false, filled: false, ..usable() }),
                container(DiskReason::GoldenSingleNode),
            ),
        ];
        for (golden, expected) in table {
            assert_eq!(choose(DiskKind::Golden, &image(), &golden), expected, "{golden:?}");
        }
    }

    #[test]
    fn the_other_disks_do_not_look_at_the_golden_one() {
        for golden in [Golden::Missing, Golden::Forbidden, Golden::Found(usable())] {
            for asked in [DiskKind::Container, DiskKind::DataVolume] {
                let choice = choose(asked, &image(), &golden);
                assert_eq!(choice, Choice { kind: asked, reason: DiskReason::Asked });
            }
        }
    }

    #[test]
    fn the_golden_disk_is_never_an_error_and_only_a_flawless_one_is_used() {
        for bits in 0..16u8 {
            let claim = Claim {
                image: (bits & 1 != 0).then(image),
                filled: bits & 2 != 0,
                many_nodes: bits & 4 != 0,
                being_deleted: bits & 8 != 0,
            };
            let choice = choose(DiskKind::Golden, &image(), &Golden::Found(claim.clone()));
            assert_eq!(choice.kind == DiskKind::Golden, claim == usable(), "{claim:?}");
            assert_eq!(choice.reason == DiskReason::Asked, claim == usable(), "{claim:?}");
        }
    }
}
