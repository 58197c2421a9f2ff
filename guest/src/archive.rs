//! The lab's files as one compressed archive. The same files give the same bytes: no clock, no order of the disk.

use std::io::{self, Write as _};

use flate2::{Compression, write::GzEncoder};
use tar::{Builder, EntryType, Header};

/// One entry of a lab's `files/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Where it goes, below `/`, without a leading slash: `etc/motd`.
    pub path: String,
    /// Permission bits, as `chmod` takes them.
    pub mode: u32,
    /// What it is.
    pub content: Content,
}

/// The kinds of file that a lab can bring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A directory. One that the machine has already keeps its mode.
    Directory,
    /// A file and its bytes.
    Regular(Vec<u8>),
    /// A symbolic link and its target.
    Symlink(String),
}

/// A file that cannot go into the archive.
#[derive(Debug, thiserror::Error)]
#[error("cannot put {path:?} into the machine's files")]
pub struct Error {
    path: String,
    #[source]
    source: io::Error,
}

/// A gzip tar of `files`, each owned by root.
pub(crate) fn pack(files: &[File]) -> Result<Vec<u8>, Error> {
    let mut sorted: Vec<&File> = files.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut tar = Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for file in sorted {
        append(&mut tar, file).map_err(|source| Error { path: file.path.clone(), source })?;
    }
    tar.into_inner().and_then(GzEncoder::finish).map_err(|source| Error { path: String::new(), source })
}

fn append(tar: &mut Builder<GzEncoder<Vec<u8>>>, file: &File) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(file.mode & 0o7777);
    match &file.content {
        Content::Directory => {
            header.set_entry_type(EntryType::Directory);
            header.set_size(0);
            tar.append_data(&mut header, format!("{}/", file.path), io::empty())
        }
        Content::Regular(bytes) => {
            header.set_entry_type(EntryType::Regular);
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, &file.path, bytes.as_slice())
        }
        Content::Symlink(target) => {
            header.set_entry_type(EntryType::Symlink);
            header.set_size(0);
            tar.append_link(&mut header, &file.path, target)
        }
    }?;
    tar.get_mut().flush()
}
