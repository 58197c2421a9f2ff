//! Ghosts: found by two lists a grace apart, asked about one by one, deleted exactly.

use std::{collections::HashMap, sync::PoisonError};

use lab_bus::{Envelope, event};
use lab_domain::{SessionId, State, Verdict};
use lab_proto::v1;

use crate::{
    Reaper,
    decide::{Object, deletions, ghosts},
    error::Error,
    outside::Outside,
};

impl<O: Outside> Reaper<O> {
    /// One sweep. It must not run twice at once.
    pub(crate) async fn sweep(&self) {
        if let Err(error) = self.try_sweep().await {
            self.metrics.put_off();
            tracing::warn!(error = %lab_kit::telemetry::chain(&error), "the sweep is put off");
        }
    }

    async fn try_sweep(&self) -> Result<(), Error> {
        let us = self.installation()?;
        if let Err(error) = self.report().await {
            tracing::warn!(error = %lab_kit::telemetry::chain(&error), "deleted ghosts are not reported yet");
        }
        // Objects before sessions: an object's session is in the later list if it lives.
        let look = self.outside.look(&us, None).await;
        if !look.is_complete {
            // A VMI whose VM could not be seen must not be taken for one that lost it.
            return Ok(());
        }
        let states: HashMap<SessionId, State> =
            self.sessions().await?.into_iter().map(|(id, known)| (id, known.state)).collect();
        let before = self.suspects.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sweep = ghosts::sweep(&before, &look.objects, &states, look.began, self.ghost_grace);
        for session in &sweep.ending {
            self.note_once(*session, 0);
        }
        let mut suspects = sweep.suspects;
        self.metrics.suspects.set(suspects.len().try_into().unwrap_or(i64::MAX));
        let mut held = 0;
        let all: Vec<&Object> = look.objects.iter().collect();
        let ripe = deletions(&all).into_iter().filter(|object| sweep.ripe.contains(object));
        for object in ripe {
            let Some(session) = object.session() else { continue };
            match self.outside.classify(session, object).await {
                // One that cannot be deleted must not keep the others, nor what is known of them.
                Ok(Verdict::Unwanted) => {
                    if let Err(error) = self.bury(session, object).await {
                        self.metrics.put_off();
                        tracing::error!(
                            object.kind = object.kind.as_str(), object.name = object.name,
                            error = %lab_kit::telemetry::chain(&error), "a ghost could not be deleted or reported"
                        );
                    }
                }
                Ok(Verdict::Hold) => held += 1,
                Ok(Verdict::Ending) => self.note_once(session, 0),
                // It has an owner after all: should it lose it, the grace begins anew.
                Ok(Verdict::Wanted) => _ = suspects.remove(&object.uid),
                Err(error) => {
                    tracing::warn!(error = %lab_kit::telemetry::chain(&error), "a suspect stays: nobody could be asked");
                }
            }
        }
        self.metrics.held.set(held);
        if held > 0 {
            tracing::error!(held, "too many ghosts at once: an operator must release them");
        }
        *self.suspects.lock().unwrap_or_else(PoisonError::into_inner) = suspects;
        self.wake.notify_one();
        Ok(())
    }

    async fn bury(&self, session: SessionId, object: &Object) -> Result<(), Error> {
        self.outside.delete(object).await?;
        self.metrics.ghost(object.kind);
        tracing::warn!(
            session.id = %session, object.kind = object.kind.as_str(), object.name = object.name,
            object.uid = %object.uid, "a ghost was deleted"
        );
        let fact = v1::GhostReaped {
            kind: object.kind.as_str().to_owned(),
            name: object.name.clone(),
            uid: object.uid.to_string(),
        };
        let report = (Envelope::bare(session), event::Kind::GhostReaped(fact));
        self.unreported.lock().unwrap_or_else(PoisonError::into_inner).push(report);
        self.report().await
    }

    /// Publishes what was deleted and not yet reported; the rest stays for the next sweep.
    async fn report(&self) -> Result<(), Error> {
        loop {
            let next = self.unreported.lock().unwrap_or_else(PoisonError::into_inner).first().cloned();
            let Some((envelope, kind)) = next else { return Ok(()) };
            self.outside.publish(&envelope, kind).await?;
            self.unreported.lock().unwrap_or_else(PoisonError::into_inner).remove(0);
        }
    }
}
