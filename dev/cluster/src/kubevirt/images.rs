//! The image store: `<store>/<sha256 hex>/` with a disk and, where it boots directly, kernel, initrd and command line.

use std::path::{Path, PathBuf};

use lab_machine::{Boot, Format};

/// Where images lie; without a store every reference is taken for granted (the `sim` driver reads none).
#[derive(Debug, Clone)]
pub(super) struct Images {
    store: Option<PathBuf>,
}

/// One image.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Image {
    pub(super) directory: PathBuf,
    pub(super) disk: PathBuf,
    pub(super) format: Format,
    pub(super) boot: Boot,
}

impl Images {
    pub(super) fn new(store: Option<PathBuf>) -> Self {
        Self { store }
    }

    /// Whether there is a store to look into.
    pub(super) fn is_real(&self) -> bool {
        self.store.is_some()
    }

    /// The image behind a reference (`[docker://]name[:tag][@sha256:…]`): by digest, else by the name in `image.json`.
    pub(super) fn find(&self, reference: &str) -> Option<Image> {
        let store = self.store.as_ref()?;
        let reference = reference.strip_prefix("docker://").unwrap_or(reference);
        if let Some((_, digest)) = reference.split_once("@sha256:") {
            let plain = digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit());
            return plain.then(|| load(&store.join(digest.to_ascii_lowercase())))?;
        }
        let entries = std::fs::read_dir(store).ok()?;
        entries.flatten().map(|entry| entry.path()).find_map(|directory| {
            let text = std::fs::read(directory.join("image.json")).ok()?;
            let about: serde_json::Value = serde_json::from_slice(&text).ok()?;
            let named = about.get("ref")?.as_str()?;
            let bare = named.split_once('@').map_or(named, |(name, _)| name);
            (named == reference || bare == reference).then(|| load(&directory))?
        })
    }
}

fn load(directory: &Path) -> Option<Image> {
    let (disk, format) = [("disk.qcow2", Format::Qcow2), ("disk.raw", Format::Raw)]
        .into_iter()
        .map(|(name, format)| (directory.join(name), format))
        .find(|(path, _)| path.is_file())?;
    Some(Image { boot: boot(directory), directory: directory.to_path_buf(), disk, format })
}

/// How what lies in a directory boots: directly where all three files are there.
pub(super) fn boot(directory: &Path) -> Boot {
    let kernel = directory.join("vmlinux");
    let initrd = directory.join("initrd.img");
    match std::fs::read_to_string(directory.join("cmdline")) {
        Ok(cmdline) if kernel.is_file() && initrd.is_file() => {
            Boot::Direct { kernel, initrd, cmdline: cmdline.trim().to_owned() }
        }
        Ok(_) | Err(_) => Boot::Firmware,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_found_by_digest_and_by_name() {
        let store = tempfile::tempdir().unwrap();
        let digest = "ab".repeat(32);
        let directory = store.path().join(&digest);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("disk.raw"), b"x").unwrap();
        let reference = format!("ttlab.local/debian-12@sha256:{digest}");
        std::fs::write(directory.join("image.json"), serde_json::json!({"ref": reference}).to_string())
            .unwrap();
        let images = Images::new(Some(store.path().to_path_buf()));
        assert_eq!(images.find(&format!("docker://{reference}")).unwrap().boot, Boot::Firmware);
        assert!(images.find("ttlab.local/debian-12").is_some());
        assert!(images.find("ttlab.local/other").is_none());
        assert!(images.find("x@sha256:../../etc").is_none());
        for (name, text) in [("vmlinux", "k"), ("initrd.img", "i"), ("cmdline", "root=/dev/vda\n")] {
            std::fs::write(directory.join(name), text).unwrap();
        }
        let Boot::Direct { cmdline, .. } = images.find(&reference).unwrap().boot else {
            panic!("it boots directly")
        };
        assert_eq!(cmdline, "root=/dev/vda");
    }
}
