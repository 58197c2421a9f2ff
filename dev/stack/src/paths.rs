//! Where things lie: the clone, its state, and the caches that all clones of a user share.
//!
//! State is keyed by the clone's path, so that two clones never meet; caches are keyed by content.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::settings;

/// The places of one clone.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    pub(crate) repo: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) cache: PathBuf,
}

impl Paths {
    /// Finds the clone and derives the other places from it.
    pub(crate) fn discover() -> Result<Self> {
        let repo = match settings::path("LAB_REPO") {
            Some(repo) => repo,
            None => find_repo()?,
        };
        let repo = repo.canonicalize().with_context(|| format!("cannot resolve {}", repo.display()))?;
        let state = match settings::path("LAB_STATE_DIR") {
            Some(state) => state,
            None => state_home()?.join("ttlab").join(clone_key(&repo)),
        };
        Ok(Self { cache: cache_dir()?, repo, state })
    }

    pub(crate) fn record(&self) -> PathBuf {
        self.state.join("state.json")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.state.join("logs")
    }

    pub(crate) fn kubeconfigs(&self) -> PathBuf {
        self.state.join("kubeconfig")
    }
}

/// The image store that every clone's cluster reads.
pub(crate) fn image_store(cache: &Path) -> PathBuf {
    cache.join("images")
}

/// The shared caches: `$XDG_CACHE_HOME/ttlab`, else `~/.cache/ttlab`.
pub fn cache_dir() -> Result<PathBuf> {
    if let Some(cache) = settings::path("XDG_CACHE_HOME") {
        return Ok(cache.join("ttlab"));
    }
    match settings::path("HOME") {
        Some(home) => Ok(home.join(".cache/ttlab")),
        None => {
            bail!("neither HOME nor XDG_CACHE_HOME is set: say where caches may lie with XDG_CACHE_HOME=DIR")
        }
    }
}

fn state_home() -> Result<PathBuf> {
    if let Some(state) = settings::path("XDG_STATE_HOME") {
        return Ok(state);
    }
    if settings::is_root() {
        // PostgreSQL runs as another user then, which cannot enter root's home.
        return Ok(PathBuf::from("/var/lib"));
    }
    match settings::path("HOME") {
        Some(home) => Ok(home.join(".local/state")),
        None => {
            bail!("neither HOME nor XDG_STATE_HOME is set: say where state may lie with XDG_STATE_HOME=DIR")
        }
    }
}

fn find_repo() -> Result<PathBuf> {
    let here = std::env::current_dir().context("the current directory is gone")?;
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .chain(built_from.ancestors())
        .find(|dir| dir.join("lab").is_file() && dir.join("Cargo.toml").is_file())
        .map(Path::to_path_buf)
        .context("not inside a clone of TT Lab: run ./lab from the clone's folder")
}

/// A readable, stable name for a clone.
pub(crate) fn clone_key(repo: &Path) -> String {
    let name: String = repo
        .file_name()
        .map(|name| name.to_string_lossy().to_lowercase())
        .unwrap_or_default()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(20)
        .collect();
    let hash = hex::encode(Sha256::digest(repo.as_os_str().as_encoded_bytes()));
    format!("{name}-{}", &hash[..10])
}

/// Makes a directory (and its parents) that only its owner can read, but anybody may pass through to a place below
/// that they own: PostgreSQL's user has its data there.
pub(crate) fn make_dir(path: &Path, mode: u32) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
        .with_context(|| format!("cannot make the directory {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {}", path.display()))
}

/// Writes a file whole or not at all, with this mode from its first moment.
pub(crate) fn write_atomically(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut name = path.file_name().map(std::ffi::OsStr::to_os_string).unwrap_or_default();
    name.push(format!(".new-{}", std::process::id()));
    let new = path.with_file_name(name);
    let write = || -> std::io::Result<()> {
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&new)?;
        file.write_all(content)?;
        drop(file);
        fs::rename(&new, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// True if every directory on the way lets any user pass.
pub(crate) fn others_can_enter(path: &Path) -> bool {
    path.ancestors().all(|dir| match fs::metadata(dir) {
        Ok(meta) => meta.permissions().mode() & 0o001 != 0,
        Err(_) => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clones_have_two_keys_and_one_clone_keeps_its_own() {
        let a = clone_key(Path::new("/home/a/TT Lab"));
        assert_eq!(a, clone_key(Path::new("/home/a/TT Lab")));
        assert_ne!(a, clone_key(Path::new("/home/b/TT Lab")));
        assert!(a.starts_with("ttlab-"), "{a}");
    }

    #[test]
    fn a_private_directory_on_the_way_keeps_others_out() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        make_dir(&below, 0o755).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!others_can_enter(&below));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
        assert!(others_can_enter(&below.join("not-made-yet")));
    }
}
