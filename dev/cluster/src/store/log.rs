//! The store on disk: one append-only file of JSON lines.
//!
//! `objects.log` holds one line per change, in order of resourceVersion. Opening reads it from the start; a torn last
//! line (the process was killed inside a write that nobody was told of) is cut off. When the file has grown far beyond
//! what is alive it is written anew beside itself and renamed over. Lines go to the kernel before a client is answered,
//! so `kill -9` loses nothing; the disk itself is synced on an orderly end only.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::{Change, ObjectRef};
use crate::object;
use crate::resource::{self, Resource};

const FILE: &str = "objects.log";
/// Below this many lines a file is never compacted.
const SMALL: usize = 20_000;

/// The disk refused, or holds what this program did not write.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation on a file failed.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// A line in the middle of the log cannot be read.
    #[error("line {line} of {} cannot be read", path.display())]
    Line {
        /// Which line, from 1.
        line: usize,
        /// Of which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

#[derive(Deserialize)]
struct Line {
    rv: u64,
    #[serde(default)]
    r: String,
    #[serde(default)]
    set: Option<Value>,
    #[serde(default)]
    del: Option<(String, String)>,
}

/// What the file held.
pub(super) struct Loaded {
    pub(super) version: u64,
    pub(super) objects: Vec<(&'static Resource, u64, Value)>,
}

/// The open file.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    lines: usize,
    compacted: usize,
}

impl Log {
    /// Reads `dir/objects.log` and opens it for appending.
    pub(super) fn open(dir: &Path) -> Result<(Self, Loaded), Error> {
        std::fs::create_dir_all(dir).map_err(|source| failed("make", dir, source))?;
        let path = dir.join(FILE);
        let mut file = open_private(&path, false)?;
        let (loaded, lines, length) = read(&path)?;
        file.set_len(length).map_err(|source| failed("cut the torn end of", &path, source))?;
        file.flush().map_err(|source| failed("write", &path, source))?;
        Ok((Self { path, file, lines, compacted: loaded.objects.len() }, loaded))
    }

    /// Writes one change. Nothing of it is in the file when this fails half-way: the next open cuts it off.
    pub(super) fn append(&mut self, change: &Change) -> Result<(), Error> {
        let mut line = Vec::with_capacity(256);
        match &change.after {
            Some(after) => set_line(&mut line, after),
            None => {
                let key = change.key();
                let del = serde_json::json!([&*key.namespace, &*key.name]);
                let name = tag(key.resource);
                let text = format!("{{\"rv\":{},\"r\":\"{name}\",\"del\":{del}}}\n", change.version);
                line.extend_from_slice(text.as_bytes());
            }
        }
        self.file.write_all(&line).map_err(|source| failed("write", &self.path, source))?;
        self.lines += 1;
        Ok(())
    }

    /// Whether most of the file is history.
    pub(super) fn is_overgrown(&self) -> bool {
        self.lines > SMALL && self.lines > 4 * self.compacted + SMALL
    }

    /// Writes the file anew with what is alive.
    pub(super) fn compact(&mut self, version: u64, objects: &[ObjectRef]) -> Result<(), Error> {
        let fresh = self.path.with_extension("new");
        let file = open_private(&fresh, true)?;
        let mut out = BufWriter::new(file);
        let write = |out: &mut BufWriter<File>, line: &[u8]| {
            out.write_all(line).map_err(|source| failed("write", &fresh, source))
        };
        write(&mut out, format!("{{\"rv\":{version}}}\n").as_bytes())?;
        let mut line = Vec::new();
        for object in objects {
            line.clear();
            set_line(&mut line, object);
            write(&mut out, &line)?;
        }
        // No fsync here: every writer waits, and a kill does not need it.
        out.into_inner().map_err(|e| failed("write", &fresh, e.into_error()))?;
        std::fs::rename(&fresh, &self.path).map_err(|source| failed("replace", &self.path, source))?;
        self.file = open_private(&self.path, false)?;
        self.lines = objects.len() + 1;
        self.compacted = objects.len();
        Ok(())
    }

    pub(super) fn sync(&mut self) -> Result<(), Error> {
        self.file.sync_all().map_err(|source| failed("sync", &self.path, source))
    }
}

fn failed(what: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::File { what, path: path.to_owned(), source }
}

/// Secrets lie in this file: nobody else may read it.
fn open_private(path: &Path, truncate: bool) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    if truncate {
        options.write(true).truncate(true);
    } else {
        options.append(true);
    }
    options.open(path).map_err(|source| failed("open", path, source))
}

fn tag(resource: &Resource) -> String {
    format!("{}/{}", resource.group, resource.plural)
}

fn set_line(line: &mut Vec<u8>, object: &ObjectRef) {
    let head = format!("{{\"rv\":{},\"r\":\"{}\",\"set\":", object.version, tag(object.key.resource));
    line.extend_from_slice(head.as_bytes());
    line.extend_from_slice(&object.json);
    line.extend_from_slice(b"}\n");
}

/// Reads the file: what is alive, the number of lines, and the length up to the last whole line.
fn read(path: &Path) -> Result<(Loaded, usize, u64), Error> {
    let file = File::open(path).map_err(|source| failed("open", path, source))?;
    let mut reader = BufReader::new(file);
    let (mut version, mut lines, mut length) = (1, 0, 0_u64);
    let mut alive: BTreeMap<(&'static Resource, String, String), (u64, Value)> = BTreeMap::new();
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        let read = reader.read_until(b'\n', &mut buffer).map_err(|source| failed("read", path, source))?;
        if read == 0 || buffer.last() != Some(&b'\n') {
            break;
        }
        lines += 1;
        length += read as u64;
        let line: Line = serde_json::from_slice(&buffer).map_err(|source| Error::Line {
            line: lines,
            path: path.to_owned(),
            source,
        })?;
        version = version.max(line.rv);
        let Some((group, plural)) = line.r.split_once('/') else { continue };
        let Some(resource) = resource::find(group, plural) else {
            tracing::warn!(resource = %line.r, "the log holds a resource that is no longer served; left out");
            continue;
        };
        if let Some(value) = line.set {
            let at = (resource, object::namespace(&value).to_owned(), object::name(&value).to_owned());
            alive.insert(at, (line.rv, value));
        } else if let Some((namespace, name)) = line.del {
            alive.remove(&(resource, namespace, name));
        }
    }
    let objects = alive.into_iter().map(|((resource, ..), (rv, value))| (resource, rv, value)).collect();
    Ok((Loaded { version, objects }, lines, length))
}
