//! Timers: a message that the broker publishes at its time.
//!
//! A schedule lies on `timer.<session>` and fires on `timeout.<session>`, so a session has one timer, its earliest
//! deadline. Publishing on the same subject moves it, but only under a new message id (measured: a repeat within the
//! duplicate window moves nothing). A fired message lives seven days, in case nobody listens.

use lab_domain::{EventId, SessionId};
use lab_proto::subjects::Subjects;
use time::{OffsetDateTime, UtcOffset, format_description::well_known::Rfc3339};

use crate::{Bus, Error, Headers, Stored, trace};

/// How long a fired timeout waits for the reaper: seven days.
pub const FIRED_TTL: &str = "168h";

/// Headers of the schedule that fires at `at`, for an outbox row on [`Subjects::timer`] with an empty payload.
#[must_use]
pub fn headers(subjects: &Subjects, session: SessionId, at: OffsetDateTime) -> Headers {
    // A date between the years 0 and 9999 always formats.
    let at = at.to_offset(UtcOffset::UTC).format(&Rfc3339).unwrap_or_default();
    let mut headers = trace::headers(session);
    headers.insert("Nats-Schedule".into(), format!("@at {at}"));
    headers.insert("Nats-Schedule-Target".into(), subjects.timeout(session));
    headers.insert("Nats-Schedule-TTL".into(), FIRED_TTL.into());
    headers
}

impl Bus {
    /// Sets or moves the timer of a session. `message_id` must be new each time.
    ///
    /// # Errors
    /// If no ack came.
    pub async fn schedule(
        &self,
        session: SessionId,
        at: OffsetDateTime,
        message_id: EventId,
    ) -> Result<Stored, Error> {
        let headers = headers(self.subjects(), session, at);
        let subject = self.subjects().timer(session);
        self.publish_stored(&subject, &message_id.to_string(), &headers, bytes::Bytes::new()).await
    }
}
