//! The name of a lab's exact content.

use lab_domain::Digest;
use lab_guest::Content;
use sha2::{Digest as _, Sha256};

use crate::tree::Tree;

/// SHA-256 over path, kind, mode and bytes of every entry, in the order of the paths. Times and the order in which a disk
/// lists its files do not enter; every field has its length before it, so no two trees run into each other.
pub(crate) fn digest(tree: &Tree) -> Digest {
    let mut hash = Sha256::new();
    let mut field = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    field(b"ttlab lab 1");
    for (path, (mode, content)) in &tree.entries {
        let (kind, mode, bytes): (_, u32, &[u8]) = match content {
            Content::Directory => (b"d", *mode, &[]),
            Content::Regular(bytes) => (b"f", *mode, bytes),
            Content::Symlink(target) => (b"l", 0, target.as_bytes()),
        };
        field(path.as_bytes());
        field(kind);
        field(&mode.to_le_bytes());
        field(bytes);
    }
    Digest::new(hex::encode(hash.finalize())).expect("hex of SHA-256 is 64 lower-case hex digits")
}
