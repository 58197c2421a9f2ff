//! The catalogue, by content: a session asks for a lab with the digest that it was started with.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lab_catalog::{Catalog, Images, Lab};
use lab_domain::{Digest, MachineName};
use tokio::time::Instant;

use crate::decide::Recipe;

/// A directory is not read again more often than this.
const REREAD: Duration = Duration::from_secs(2);

/// Labs and images. Only reads.
#[derive(Debug)]
pub(crate) struct Labs {
    directory: PathBuf,
    images: Images,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    by_digest: HashMap<Digest, Arc<Lab>>,
    read_at: Instant,
}

impl Labs {
    /// Reads the directory for the first time.
    pub(crate) fn load(directory: &Path, images: Images) -> Result<Self, lab_catalog::Error> {
        let catalog = Catalog::load(directory)?;
        for problem in &catalog.problems {
            tracing::warn!(problem = %problem, "a lab is left out");
        }
        let state = State { by_digest: by_digest(catalog), read_at: Instant::now() };
        Ok(Self { directory: directory.to_owned(), images, state: Mutex::new(state) })
    }

    /// The lab with this content. One that is not known is looked for on disk: the operator may have changed it just now.
    pub(crate) async fn find(self: &Arc<Self>, digest: &Digest) -> Option<Arc<Lab>> {
        {
            let state = self.lock();
            if let Some(lab) = state.by_digest.get(digest) {
                return Some(Arc::clone(lab));
            }
            if state.read_at.elapsed() < REREAD {
                return None;
            }
        }
        let this = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || Catalog::load(&this.directory)).await;
        let mut state = self.lock();
        state.read_at = Instant::now();
        match reading {
            // What was there before stays: sessions that were started with it may still need it.
            Ok(Ok(catalog)) => state.by_digest.extend(by_digest(catalog)),
            Ok(Err(error)) => {
                tracing::warn!(error = %lab_kit::telemetry::chain(&error), "the labs cannot be read again");
            }
            Err(error) => tracing::error!(error = %error, "reading the labs ended early"),
        }
        state.by_digest.get(digest).map(Arc::clone)
    }

    /// What `machine` of `lab` is to be made of here.
    pub(crate) fn recipe(&self, lab: Option<&Lab>, machine: &MachineName) -> Recipe {
        let Some(lab) = lab else { return Recipe::LabMissing };
        if let Some(why) = &lab.unsupported {
            return Recipe::Impossible { cause: "lab_unsupported", message: why.clone() };
        }
        let Some(machine) = lab.machine(machine) else {
            let message = format!("lab {} has no machine {machine}", lab.id);
            return Recipe::Impossible { cause: "unknown_machine", message };
        };
        match self.images.get(&machine.image) {
            Some(image) => Recipe::Ready { asked: machine.disk, image: image.clone() },
            None => {
                let message = format!("the image table has no entry {}", machine.image);
                Recipe::Impossible { cause: "unknown_image", message }
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn by_digest(catalog: Catalog) -> HashMap<Digest, Arc<Lab>> {
    catalog.labs.into_values().map(|lab| (lab.digest.clone(), Arc::new(lab))).collect()
}
