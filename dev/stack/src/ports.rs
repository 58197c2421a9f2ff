//! Addresses on loopback. A stack asks for the usual port first and takes a free one if that is taken; what it took
//! is remembered, so that a stack that starts again keeps its addresses (and bookmarks keep working).

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::paths::write_atomically;

/// The ports of one stack, by what listens there.
pub(crate) struct Ports {
    file: PathBuf,
    known: BTreeMap<String, u16>,
}

impl Ports {
    /// Reads what an earlier run took.
    pub(crate) fn load(state: &Path) -> Self {
        let file = state.join("ports.json");
        let known =
            fs::read(&file).ok().and_then(|raw| serde_json::from_slice(&raw).ok()).unwrap_or_default();
        Self { file, known }
    }

    /// A free port for `name`: the one from last time, else the usual one, else any.
    pub(crate) fn take(&mut self, name: &str, usual: Option<u16>) -> Result<SocketAddr> {
        let taken: Vec<u16> =
            self.known.iter().filter(|(other, _)| *other != name).map(|(_, port)| *port).collect();
        // The usual port is worth returning to; beside it, the one that was found last time.
        let candidates = usual.into_iter().chain(self.known.get(name).copied()).filter(|port| *port != 0);
        let mut free = candidates.filter(|port| !taken.contains(port)).filter_map(bindable);
        let port = match free.next() {
            Some(port) => port,
            None => any_free(&taken).with_context(|| format!("no free port on 127.0.0.1 for {name}"))?,
        };
        self.known.insert(name.to_owned(), port);
        let text = serde_json::to_vec_pretty(&self.known).context("ports that JSON cannot hold")?;
        write_atomically(&self.file, &text, 0o600)?;
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }
}

fn bindable(port: u16) -> Option<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .and_then(|listener| listener.local_addr())
        .ok()
        .map(|a| a.port())
}

fn any_free(taken: &[u16]) -> Option<u16> {
    (0..20).filter_map(|_| bindable(0)).find(|port| !taken.contains(port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_left_alone_and_the_substitute_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let usual = holder.local_addr().unwrap().port();
        let first = Ports::load(dir.path()).take("web", Some(usual)).unwrap().port();
        assert_ne!(first, usual);
        assert_eq!(Ports::load(dir.path()).take("web", Some(usual)).unwrap().port(), first);
        drop(holder);
        assert_eq!(Ports::load(dir.path()).take("web", Some(usual)).unwrap().port(), usual);
    }
}
