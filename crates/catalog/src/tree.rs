//! A lab's directory, read once into memory: what is not below it cannot be reached from here on.

use std::{collections::BTreeMap, fs, io, os::unix::fs::PermissionsExt as _, path::Path};

use lab_guest::Content;

use crate::Problem;

/// More than any lab needs; a guard against a directory that is no lab.
const MOST_ENTRIES: usize = 5_000;
/// Eight Secrets full: what is larger than one is refused later, with its size.
const MOST_BYTES: u64 = 8 << 20;
/// Symbolic links that point to symbolic links.
const MOST_HOPS: usize = 8;

/// Mode and content by path below the lab's directory, `/` between the parts.
pub(crate) struct Tree {
    pub(crate) entries: BTreeMap<String, (u32, Content)>,
}

struct Reader<'a> {
    lab: &'a str,
    bytes: u64,
    tree: Tree,
    problems: Vec<Problem>,
}

impl Tree {
    /// Reads everything below `root`. Links are kept as links, never followed on this machine.
    pub(crate) fn read(lab: &str, root: &Path) -> (Self, Vec<Problem>) {
        let mut reader =
            Reader { lab, bytes: 0, tree: Self { entries: BTreeMap::new() }, problems: Vec::new() };
        reader.directory(root, "");
        (reader.tree, reader.problems)
    }

    /// The bytes of the regular file at `path`; links within the lab are followed.
    pub(crate) fn file(&self, path: &str) -> Option<&[u8]> {
        let mut path = path.to_owned();
        for _ in 0..MOST_HOPS {
            match self.entries.get(&path)? {
                (_, Content::Regular(bytes)) => return Some(bytes),
                (_, Content::Symlink(target)) => path = resolve(&path, target)?,
                (_, Content::Directory) => return None,
            }
        }
        None
    }

    /// Is there a directory at `path`?
    pub(crate) fn is_directory(&self, path: &str) -> bool {
        matches!(self.entries.get(path), Some((_, Content::Directory)))
    }
}

impl Reader<'_> {
    fn directory(&mut self, directory: &Path, below: &str) {
        let entries = match fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
            Ok(entries) => entries,
            Err(error) => return self.problem(below, format!("cannot read the directory: {error}")),
        };
        for entry in entries {
            if self.tree.entries.len() >= MOST_ENTRIES {
                return self.problem(below, format!("more than {MOST_ENTRIES} files in one lab"));
            }
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                self.problem(below, format!("the file name {name:?} is not UTF-8"));
                continue;
            };
            let path = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
            if let Err(error) = self.entry(&entry.path(), &path) {
                self.problem(&path, format!("cannot read it: {error}"));
            }
        }
    }

    fn entry(&mut self, at: &Path, path: &str) -> io::Result<()> {
        let about = fs::symlink_metadata(at)?;
        let kind = about.file_type();
        let content = if kind.is_dir() {
            self.directory(at, path);
            Content::Directory
        } else if kind.is_symlink() {
            let target = fs::read_link(at)?.to_string_lossy().into_owned();
            // A link in files/ must stay in files/: in the machine there is nothing else of the lab.
            let top = path.split_once('/').map_or("", |(top, _)| top);
            let stays = resolve(path, &target).is_some_and(|end| {
                top.is_empty() || end.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'))
            });
            if !stays {
                let place = if top.is_empty() { "the lab's directory".to_owned() } else { format!("{top}/") };
                self.problem(
                    path,
                    format!("the symbolic link to {target:?} leaves {place}; let prepare.sh make it"),
                );
                return Ok(());
            }
            Content::Symlink(target)
        } else if kind.is_file() {
            self.bytes += about.len();
            if self.bytes > MOST_BYTES {
                self.problem(path, format!("more than {} MiB in one lab", MOST_BYTES >> 20));
                return Ok(());
            }
            Content::Regular(fs::read(at)?)
        } else {
            self.problem(path, "neither a file, a directory nor a symbolic link".to_owned());
            return Ok(());
        };
        self.tree.entries.insert(path.to_owned(), (about.permissions().mode() & 0o7777, content));
        Ok(())
    }

    fn problem(&mut self, file: &str, message: String) {
        self.problems.push(Problem { lab: self.lab.to_owned(), file: file.to_owned(), line: None, message });
    }
}

/// Where a link at `link` leads, by its text alone; None outside of the lab's directory.
fn resolve(link: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = link.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}
