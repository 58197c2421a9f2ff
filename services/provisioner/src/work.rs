//! The two triggers, an event and a periodic look, and the one path that both take.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use lab_bus::{Delivery, Disposition};
use lab_domain::{Environment, EventId, SessionId};
use lab_kit::installation::Gate;
use lab_kubevirt::Installation;
use tracing::Instrument as _;

use crate::{
    apply::Provisioner,
    decide::Then,
    error::{Class, Error},
    known::Known,
    outside::Outside,
};

/// Sessions that one look works on at once.
const AT_ONCE: usize = 16;
/// Until a session that another run works on is tried again.
const BUSY: Duration = Duration::from_secs(2);

/// Runs sessions, each by one run at a time.
#[derive(Debug)]
pub(crate) struct Work<O> {
    pub(crate) provisioner: Provisioner<O>,
    pub(crate) environment: Environment,
    pub(crate) gate: Gate,
    running: Mutex<HashSet<SessionId>>,
}

/// Takes a session out of the running ones, also when its run is dropped.
struct Running<'a> {
    all: &'a Mutex<HashSet<SessionId>>,
    session: SessionId,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.session);
    }
}

impl<O: Outside> Work<O> {
    pub(crate) fn new(provisioner: Provisioner<O>, environment: Environment, gate: Gate) -> Self {
        Self { provisioner, environment, gate, running: Mutex::default() }
    }

    /// An event: something is requested.
    pub(crate) async fn handle(self: Arc<Self>, delivery: Delivery) -> Disposition {
        let span = tracing::info_span!("provision", session.id = %delivery.session);
        match self.session(delivery.session, Some(delivery.id)).instrument(span).await {
            Ok(Then::Done | Then::Look) => Disposition::Ack,
            Ok(Then::Wait(pause)) => Disposition::Nak(pause),
            Err(Error::Busy { .. }) => Disposition::Nak(BUSY),
            Err(_) => delivery.retry(),
        }
    }

    /// The periodic look: every session that has a machine to be made or reported.
    pub(crate) async fn look(&self) {
        let mut after = String::new();
        loop {
            let page = match self.provisioner.outside.list(&after).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::warn!(error = %lab_kit::telemetry::chain(&error), "the look is put off");
                    return;
                }
            };
            let open = page.sessions.iter().filter_map(|session| {
                let known = Known::read(session).ok()?;
                known.open_machines().next().is_some().then_some(known.id)
            });
            stream::iter(open.collect::<Vec<_>>())
                .for_each_concurrent(AT_ONCE, |session| async move {
                    let span = tracing::info_span!("look", session.id = %session);
                    drop(self.session(session, None).instrument(span).await);
                })
                .await;
            if page.next.is_empty() {
                return;
            }
            after = page.next;
        }
    }

    async fn session(&self, session: SessionId, cause: Option<EventId>) -> Result<Then, Error> {
        let Some(id) = self.gate.installation() else { return Ok(Then::Wait(BUSY)) };
        let installation = Installation { environment: self.environment.clone(), id };
        let _running = self.begin(session)?;
        let result = self.provisioner.session(&installation, session, cause).await;
        match &result {
            Ok(Then::Wait(pause)) => {
                self.provisioner.metrics.put_off();
                tracing::info!(wait_s = pause.as_secs(), "the machine is not to be had yet");
            }
            Ok(Then::Done | Then::Look) => {}
            Err(error) => {
                self.provisioner.metrics.put_off();
                debug_assert!(error.class() != Class::Conflict, "conflicts are looked at again");
                tracing::warn!(error = %lab_kit::telemetry::chain(error), "the run is put off");
            }
        }
        result
    }

    fn begin(&self, session: SessionId) -> Result<Running<'_>, Error> {
        let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if all.insert(session) {
            Ok(Running { all: &self.running, session })
        } else {
            Err(Error::Busy { session })
        }
    }
}
