//! The ports file: tells whoever started the process where it listens.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// Addresses of one process; only what it has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// The service itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub http: Option<SocketAddr>,
    /// Health and metrics.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub admin: Option<SocketAddr>,
}

/// The file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the ports file {path}", path = path.display())]
pub struct Error {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

/// Writes the file in one step: a reader sees all of it or nothing.
///
/// # Errors
/// If the folder cannot be written.
pub fn write(path: &Path, ports: &Ports) -> Result<(), Error> {
    let failed = |source| Error { path: path.to_owned(), source };
    let text = serde_json::to_string(ports).map_err(|e| failed(e.into()))?;
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    std::fs::write(&part, text).map_err(failed)?;
    std::fs::rename(&part, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_process_has_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ports.json");
        let ports = Ports { admin: Some(([127, 0, 0, 1], 1235).into()), http: None };
        write(&path, &ports).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), r#"{"admin":"127.0.0.1:1235"}"#);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
