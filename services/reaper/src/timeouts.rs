//! Timers that fired: asked about, and reported only if they are really due.

use std::{sync::Arc, time::Duration};

use lab_bus::{Disposition, Timeout as Fired, event};
use lab_proto::{convert, v1};
use tracing::Instrument as _;

use crate::{
    Reaper,
    decide::timeout::{Timeout, timeout},
    error::Error,
    known::Known,
    outside::Outside,
};

/// Put back a little longer than the rest, so that it does not come a moment too early again.
const SLACK: Duration = Duration::from_millis(20);

impl<O: Outside> Reaper<O> {
    /// A timer fired.
    pub(crate) async fn on_timeout(self: Arc<Self>, fired: Fired) -> Disposition {
        let span = tracing::info_span!("timeout", session.id = %fired.session);
        match self.timed_out(&fired).instrument(span).await {
            Ok(disposition) => disposition,
            Err(error) => {
                self.metrics.put_off();
                tracing::warn!(
                    session.id = %fired.session, error = %lab_kit::telemetry::chain(&error), "a timer is put back"
                );
                fired.retry()
            }
        }
    }

    async fn timed_out(&self, fired: &Fired) -> Result<Disposition, Error> {
        let session = fired.session;
        let answer = self.outside.ask(session).await?;
        let known = answer.as_ref().map(Known::read).transpose();
        let known = known.map_err(|source| Error::Answer { session, source })?;
        match (timeout(known.as_ref(), self.outside.now()), known) {
            (Timeout::Reached { deadline, value }, Some(known)) => {
                let value = Some(convert::timestamp(value));
                let fact = v1::DeadlineReached { deadline: convert::deadline_number(deadline), value };
                self.outside.publish(&known.envelope, event::Kind::DeadlineReached(fact)).await?;
                self.metrics.deadline();
                tracing::info!(deadline = deadline.as_str(), "a deadline is reached");
                Ok(Disposition::Ack)
            }
            (Timeout::Rest(rest), _) => Ok(Disposition::Nak(rest + SLACK)),
            (Timeout::Forget | Timeout::Reached { .. }, _) => Ok(Disposition::Ack),
        }
    }
}
