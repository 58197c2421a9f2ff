//! Guest images: built once per content of their recipe, kept in a store that all clones share.
//!
//! The store is what the one-machine cluster reads: one directory per image, named by the image's digest, with the
//! disk, an optional kernel to start directly, and `image.json`.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::paths::{image_store, make_dir, write_atomically};
use crate::ui;

/// The image that the labs ask for.
pub(crate) const DEBIAN: &str = "debian-12";

/// An image in the store, as `image.json` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Image {
    /// The name under which a container disk asks for it.
    #[serde(rename = "ref")]
    pub(crate) reference: String,
    /// `sha256:` and 64 hex digits.
    pub(crate) digest: String,
}

impl Image {
    fn named(name: &str, hex_digest: &str) -> Self {
        let digest = format!("sha256:{hex_digest}");
        Self { reference: format!("ttlab.local/{name}@{digest}"), digest }
    }

    /// The digest's hex digits.
    pub(crate) fn hex(&self) -> &str {
        self.digest.trim_start_matches("sha256:")
    }

    /// The golden claim's name.
    pub(crate) fn golden_name(&self) -> String {
        format!("golden-{}", self.hex().get(..16).unwrap_or_else(|| self.hex()))
    }
}

/// A lock on the shared caches: two clones must not build the same thing at once.
pub(crate) struct CacheLock(#[expect(dead_code, reason = "held, not read")] Flock<fs::File>);

impl CacheLock {
    pub(crate) fn take(cache: &Path, name: &str) -> Result<Self> {
        make_dir(cache, 0o755)?;
        let path = cache.join(format!("{name}.lock"));
        let open = || fs::File::create(&path).with_context(|| format!("cannot make {}", path.display()));
        match Flock::lock(open()?, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self(lock)),
            Err(_) => {
                ui::say(format_args!("· waiting for another run that uses the cache ({name})"));
                let lock = Flock::lock(open()?, FlockArg::LockExclusive);
                Ok(Self(
                    lock.map_err(|(_, error)| error)
                        .with_context(|| format!("cannot lock {}", path.display()))?,
                ))
            }
        }
    }
}

/// The recipe's image, built if its inputs have not been built before.
pub(crate) fn ensure_built(repo: &Path, cache: &Path) -> Result<Image> {
    let recipe = repo.join("guest/images").join(DEBIAN);
    let key = recipe_key(&recipe)?;
    let store = image_store(cache);
    let keys = cache.join("image-keys");
    make_dir(&store, 0o755)?;
    make_dir(&keys, 0o755)?;
    if let Some(image) = by_key(&store, &keys, &key) {
        return Ok(image);
    }
    let _lock = CacheLock::take(cache, "guest-image")?;
    if let Some(image) = by_key(&store, &keys, &key) {
        return Ok(image);
    }
    let work = tempfile::Builder::new()
        .prefix(".building-")
        .tempdir_in(&store)
        .context("cannot write to the image store")?;
    let mut build = Command::new(recipe.join("build"));
    build.arg("--out").arg(work.path()).arg("--cache").arg(cache.join("guest-build")).current_dir(repo);
    make_dir(&cache.join("guest-build"), 0o755)?;
    ui::step(
        "building the guest image (once; later runs find it in the cache)",
        &mut build,
        &cache.join("guest-image.log"),
    )?;
    let image = adopt(&store, work, "disk.qcow2")?;
    write_atomically(&keys.join(&key), image.hex().as_bytes(), 0o644)?;
    Ok(image)
}

fn recipe_key(recipe: &Path) -> Result<String> {
    let output = Command::new(recipe.join("key"))
        .output()
        .with_context(|| format!("cannot run {}", recipe.join("key").display()))?;
    let key = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if !output.status.success() || !plain {
        bail!(
            "{} gave no key: {}",
            recipe.join("key").display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(key)
}

fn by_key(store: &Path, keys: &Path, key: &str) -> Option<Image> {
    let hex = fs::read_to_string(keys.join(key)).ok()?;
    read(&store.join(hex.trim()))
}

fn read(dir: &Path) -> Option<Image> {
    let image: Image = serde_json::from_slice(&fs::read(dir.join("image.json")).ok()?).ok()?;
    (dir.join("disk.qcow2").is_file() || dir.join("disk.raw").is_file()).then_some(image)
}

/// Moves a finished directory to its place in the store.
fn adopt(store: &Path, work: tempfile::TempDir, disk: &str) -> Result<Image> {
    let image = match fs::read(work.path().join("image.json")) {
        Ok(text) => serde_json::from_slice::<Image>(&text)
            .context("the build left an image.json that cannot be read")?,
        Err(_) => {
            let image = Image::named(DEBIAN, &sha256(&work.path().join(disk))?);
            let text = serde_json::to_vec(&image).context("an image that JSON cannot hold")?;
            write_atomically(&work.path().join("image.json"), &text, 0o644)?;
            image
        }
    };
    if image.hex().len() != 64 {
        bail!("the build named the digest {:?}, which is no SHA-256", image.digest);
    }
    let place = store.join(image.hex());
    if read(&place).is_none() {
        let _ = fs::remove_dir_all(&place);
        make_dir(work.path(), 0o755)?;
        let work = work.keep();
        fs::rename(&work, &place).with_context(|| format!("cannot put the image at {}", place.display()))?;
    }
    Ok(image)
}

/// Puts a cloud image of the user's into the store under the name that the labs ask for.
pub(crate) fn import(file: &Path, cache: &Path) -> Result<Image> {
    let file =
        file.canonicalize().with_context(|| format!("LAB_GUEST_IMAGE={} is not there", file.display()))?;
    let meta = fs::metadata(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let store = image_store(cache);
    let keys = cache.join("image-keys");
    make_dir(&store, 0o755)?;
    make_dir(&keys, 0o755)?;
    // Hashing gigabytes takes a while: the same file, unchanged, is known by its place, size and time.
    let stamp = format!("{}:{}:{}:{}", file.display(), meta.len(), meta.mtime(), meta.mtime_nsec());
    let key = format!("file-{}", hex::encode(Sha256::digest(stamp.as_bytes())));
    if let Some(image) = by_key(&store, &keys, &key) {
        return Ok(image);
    }
    ui::say(format_args!("· taking {} into the image store", file.display()));
    let work = tempfile::Builder::new()
        .prefix(".import-")
        .tempdir_in(&store)
        .context("cannot write to the image store")?;
    let disk = if is_qcow2(&file)? { "disk.qcow2" } else { "disk.raw" };
    let mut copy = Command::new("cp");
    copy.args(["--reflink=auto", "--sparse=auto"]).arg(&file).arg(work.path().join(disk));
    ui::step("copying the image", &mut copy, &cache.join("guest-image.log"))?;
    let image = adopt(&store, work, disk)?;
    write_atomically(&keys.join(&key), image.hex().as_bytes(), 0o644)?;
    Ok(image)
}

fn is_qcow2(file: &Path) -> Result<bool> {
    let mut magic = [0_u8; 4];
    let mut open = fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    open.read_exact(&mut magic).with_context(|| format!("{} is no disk image", file.display()))?;
    Ok(magic == *b"QFI\xfb")
}

fn sha256(file: &Path) -> Result<String> {
    let mut open = fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0_u8; 1 << 20];
    loop {
        match open.read(&mut buffer).with_context(|| format!("cannot read {}", file.display()))? {
            0 => return Ok(hex::encode(hash.finalize())),
            n => hash.update(&buffer[..n]),
        }
    }
}

/// An image without content, for the `sim` driver, in a store of its own.
pub(crate) fn simulated(store: &Path) -> Result<Image> {
    let image = Image::named(DEBIAN, &hex::encode(Sha256::digest(b"an image that nobody boots")));
    let dir = store.join(image.hex());
    make_dir(&dir, 0o755)?;
    write_atomically(&dir.join("disk.raw"), &[0; 4096], 0o644)?;
    write_atomically(
        &dir.join("image.json"),
        &serde_json::to_vec(&image).context("an image that JSON cannot hold")?,
        0o644,
    )?;
    Ok(image)
}

/// The size that a disk made of the image needs, in MiB.
pub(crate) fn disk_mib(store: &Path, image: &Image) -> u64 {
    let dir = store.join(image.hex());
    let qcow2 = dir.join("disk.qcow2");
    let bytes = if qcow2.is_file() {
        Command::new("qemu-img")
            .args(["info", "-U", "--output=json"])
            .arg(&qcow2)
            .output()
            .ok()
            .and_then(|output| serde_json::from_slice::<serde_json::Value>(&output.stdout).ok())
            .and_then(|info| info.get("virtual-size")?.as_u64())
    } else {
        fs::metadata(dir.join("disk.raw")).ok().map(|meta| meta.len())
    };
    bytes.unwrap_or(2 << 30).div_ceil(1 << 20).max(16)
}

/// The operator's image table, as the provisioner reads it.
pub(crate) fn write_table(path: &Path, image: &Image, disk_mib: u64) -> Result<()> {
    let Image { reference, digest } = image;
    let text = format!(
        "# Made by ./lab up: which image each name in a lab means.\nimages:\n  {DEBIAN}:\n    \
         container_disk: \"{reference}\"\n    digest: \"{digest}\"\n    \
         data_volume: {{size: \"{disk_mib}Mi\", url: \"docker://{reference}\"}}\n"
    );
    write_atomically(path, text.as_bytes(), 0o644)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_users_is_taken_in_once_and_keeps_its_format() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cloud.img");
        fs::write(&file, b"QFI\xfb and more").unwrap();
        let cache = dir.path().join("cache");
        let image = import(&file, &cache).unwrap();
        assert_eq!(import(&file, &cache).unwrap(), image);
        let place = image_store(&cache).join(image.hex());
        assert_eq!(fs::read(place.join("disk.qcow2")).unwrap(), b"QFI\xfb and more");
        assert!(image.golden_name().len() == "golden-".len() + 16);
        fs::write(&file, b"a raw disk").unwrap();
        let raw = import(&file, &cache).unwrap();
        assert!(image_store(&cache).join(raw.hex()).join("disk.raw").is_file());
    }

    #[test]
    fn the_table_is_yaml_with_the_digest_that_names_the_golden_claim() {
        let dir = tempfile::tempdir().unwrap();
        let image = simulated(dir.path()).unwrap();
        let file = dir.path().join("images.yaml");
        write_table(&file, &image, 2048).unwrap();
        let table: serde_json::Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!(table["images"][DEBIAN]["digest"], image.digest.as_str());
        assert_eq!(table["images"][DEBIAN]["data_volume"]["size"], "2048Mi");
    }
}
