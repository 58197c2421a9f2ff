//! Dependencies: none that is banned, none under a licence that is not allowed, none from outside the public registry.
//!
//! `deny.toml` is cargo-deny's; its bans, licences and sources are checked here over `cargo metadata`, because its
//! advisory database is not reachable everywhere. Whoever has cargo-deny gets the same answer and advisories as well.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::licence;
use crate::paths::Paths;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

pub(crate) fn check(paths: &Paths) -> Result<()> {
    let policy = fs::read_to_string(paths.repo.join("deny.toml")).context("cannot read deny.toml")?;
    let allowed = strings(&policy, "licenses", "allow");
    let banned = strings(&policy, "bans", "deny");
    if allowed.is_empty() || banned.is_empty() {
        bail!("deny.toml lists no licences or no bans");
    }
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--filter-platform", &host()?])
        .current_dir(&paths.repo)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("cargo metadata is not as expected")?;
    let faults = faults(&metadata, &allowed, &banned);
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    Ok(())
}

fn faults(metadata: &Metadata, allowed: &[String], banned: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    for package in &metadata.packages {
        let Package { name, version, license, source } = package;
        if banned.contains(name) {
            faults.push(format!(
                "{name} {version} is banned (deny.toml): `cargo tree -i {name}` tells who brings it"
            ));
        }
        let Some(source) = source else { continue };
        if !(source.starts_with("registry+") && source.ends_with("crates.io-index")) {
            faults.push(format!("{name} {version} comes from {source}, not from the public registry"));
        }
        match license {
            Some(expression) if licence::is_met(expression, allowed) => {}
            Some(expression) => {
                faults.push(format!("{name} {version}: the licence {expression} is not allowed (deny.toml)"))
            }
            None => faults.push(format!("{name} {version} names no licence")),
        }
    }
    faults
}

fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .context("rustc tells no host")
}

/// The strings of one list of one table. `deny.toml` is ours: one entry per line, `crate = "…"` in the bans.
fn strings(policy: &str, table: &str, key: &str) -> Vec<String> {
    let mut inside = false;
    let mut listing = false;
    let mut found = Vec::new();
    for line in policy.lines().map(str::trim) {
        if line.starts_with('[') && line.ends_with(']') && !line.contains('"') && line.len() > 2 {
            inside = line == format!("[{table}]");
            listing = false;
        } else if inside && line.starts_with(&format!("{key} = [")) {
            listing = true;
        } else if line.starts_with(']') {
            listing = false;
        } else if listing && let Some(value) = line.split('"').nth(1) {
            found.push(value.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, license: Option<&str>, source: &str) -> Package {
        Package {
            name: name.into(),
            version: "1.0.0".into(),
            license: license.map(str::to_owned),
            source: Some(source.into()),
        }
    }

    #[test]
    fn what_is_banned_unlicensed_or_from_elsewhere_is_named() {
        let public = "registry+https://example.org/crates.io-index";
        let metadata = Metadata {
            packages: vec![
                package("fine", Some("MIT OR GPL-3.0"), public),
                package("aws-lc-rs", Some("MIT"), public),
                package("copyleft", Some("GPL-3.0"), public),
                package("unnamed", None, public),
                package("forked", Some("MIT"), "git+https://example.org/forked"),
            ],
        };
        let found = faults(&metadata, &["MIT".to_owned()], &["aws-lc-rs".to_owned()]);
        let named: Vec<&str> = found.iter().filter_map(|fault| fault.split(' ').next()).collect();
        assert_eq!(named, ["aws-lc-rs", "copyleft", "unnamed", "forked"]);
    }

    #[test]
    fn the_projects_policy_is_read_whole() {
        let policy = include_str!("../../../../deny.toml");
        let banned = strings(policy, "bans", "deny");
        assert_eq!(banned, ["aws-lc-rs", "openssl-sys"]);
        assert!(strings(policy, "licenses", "allow").contains(&"Apache-2.0".to_owned()));
    }
}
