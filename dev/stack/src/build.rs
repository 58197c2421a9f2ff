//! Building: the programs, and the page when something that it is made of changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::paths::{Paths, make_dir, write_atomically};
use crate::{settings, ui};

/// Builds every program of the workspace in one profile.
pub(crate) fn programs(paths: &Paths, release: bool) -> Result<PathBuf> {
    let target = settings::path("CARGO_TARGET_DIR").unwrap_or_else(|| paths.repo.join("target"));
    let target = target.join(if release { "release" } else { "debug" });
    if !release && settings::var("LAB_BUILT").is_some() {
        // ./lab has just done it.
        return Ok(target);
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--workspace", "--bins"]).current_dir(&paths.repo);
    if release {
        cargo.arg("--release");
    }
    make_dir(&paths.state, 0o711)?;
    make_dir(&paths.logs(), 0o700)?;
    let title = if release { "building the programs (release)" } else { "building the programs" };
    ui::step(title, &mut cargo, &paths.logs().join("build.log"))?;
    Ok(target)
}

/// Installs the page's tools as the lock file says, unless exactly that is installed.
pub(crate) fn npm_ci(dir: &Path, logs: &Path) -> Result<()> {
    let lock = dir.join("package-lock.json");
    let wanted = hex::encode(Sha256::digest(
        fs::read(&lock).with_context(|| format!("cannot read {}", lock.display()))?,
    ));
    let stamp = dir.join("node_modules/.lab-lock");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund"]).current_dir(dir);
    ui::step(&format!("npm ci in {name}/"), &mut npm, &logs.join(format!("npm-{name}.log")))?;
    write_atomically(&stamp, wanted.as_bytes(), 0o644)
}

/// Builds the page if it is not there or something changed since.
pub(crate) fn page(paths: &Paths) -> Result<()> {
    let web = paths.repo.join("web");
    make_dir(&paths.state, 0o711)?;
    make_dir(&paths.logs(), 0o700)?;
    let stamp = paths.state.join("page.key");
    let key = inputs(&web)?;
    if web.join("dist/index.html").is_file() && fs::read_to_string(&stamp).is_ok_and(|built| built == key) {
        return Ok(());
    }
    npm_ci(&web, &paths.logs())?;
    let mut npm = Command::new("npm");
    npm.args(["run", "build"]).current_dir(&web);
    ui::step("building the page", &mut npm, &paths.logs().join("page.log"))?;
    write_atomically(&stamp, key.as_bytes(), 0o644)
}

/// A hash over the names and contents of everything that the page is made of.
fn inputs(web: &Path) -> Result<String> {
    let mut files = Vec::new();
    collect(web, &mut files)?;
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        hash.update(file.as_os_str().as_encoded_bytes());
        hash.update([0]);
        hash.update(Sha256::digest(
            fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?,
        ));
    }
    Ok(hex::encode(hash.finalize()))
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", dir.display()))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() {
            if !matches!(name.as_str(), "node_modules" | "dist" | "test" | "e2e") && !name.starts_with('.') {
                collect(&path, files)?;
            }
        } else {
            files.push(path);
        }
    }
    Ok(())
}
