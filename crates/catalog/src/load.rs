//! From a directory of labs to a catalogue.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use lab_domain::LabId;

use crate::{Lab, Problem, check::check, digest::digest, schema, tree::Tree};

/// The file that makes a directory a lab.
pub(crate) const LAB_FILE: &str = "lab.yaml";

/// The labs of one directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalog {
    /// What can be served.
    pub labs: BTreeMap<LabId, Lab>,
    /// Why the others cannot, sorted.
    pub problems: Vec<Problem>,
}

/// A directory of labs that cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the labs directory {path}")]
pub struct Error {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl Catalog {
    /// Reads every lab below `directory`: each sub-directory whose name does not begin with a dot.
    ///
    /// # Errors
    /// Only if `directory` itself cannot be listed. What is wrong with a lab is in [`Catalog::problems`].
    pub fn load(directory: &Path) -> Result<Self, Error> {
        let fail = |source| Error { path: directory.to_owned(), source };
        let mut catalog = Self::default();
        for entry in fs::read_dir(directory).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') || !entry.path().is_dir() {
                continue;
            }
            match load_lab(&name, &entry.path()) {
                Ok(lab) => {
                    catalog.labs.insert(lab.id.clone(), lab);
                }
                Err(problems) => catalog.problems.extend(problems),
            }
        }
        catalog.problems.sort();
        Ok(catalog)
    }
}

fn load_lab(name: &str, directory: &Path) -> Result<Lab, Vec<Problem>> {
    let problem =
        |file: &str, line, message| Problem { lab: name.to_owned(), file: file.to_owned(), line, message };
    let id = LabId::new(name).map_err(|error| vec![problem("", None, error.to_string())])?;
    let (tree, mut problems) = Tree::read(name, directory);
    let Some(text) = tree.file(LAB_FILE) else {
        problems.push(problem(LAB_FILE, None, "missing file".to_owned()));
        return Err(problems);
    };
    let text = String::from_utf8_lossy(text);
    match serde_saphyr::from_str::<schema::Lab>(&text) {
        Ok(written) => {
            let (lab, more) = check(id, digest(&tree), &written, &tree);
            problems.extend(more);
            if problems.is_empty() { Ok(lab) } else { Err(problems) }
        }
        Err(error) => {
            let line = error.location().map(|at| at.line());
            problems.push(problem(LAB_FILE, line, error.without_snippet().to_string()));
            Err(problems)
        }
    }
}

#[cfg(test)]
mod tests;
