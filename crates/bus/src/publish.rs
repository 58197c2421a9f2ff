//! Publishing with an ack, repeated under the same id.
//!
//! A publish that timed out may still have been stored (measured: one sent during an outage was stored after the
//! reconnect), so the only safe answer is the same message under the same `Nats-Msg-Id` once more.

use std::{collections::BTreeMap, time::Instant};

use async_nats::{HeaderMap, header, jetstream::context::PublishErrorKind};
use bytes::Bytes;
use lab_domain::SessionId;
use lab_proto::{Message as _, v1};

use crate::{Bus, Error, trace};

/// Header names and values, in the form in which an outbox row keeps them.
pub type Headers = BTreeMap<String, String>;

/// Tries of one publish, each as long as a request may take.
const TRIES: u32 = 3;

/// Where a message was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Its sequence in the stream.
    pub sequence: u64,
    /// True if the stream had this message id already.
    pub duplicate: bool,
}

impl Bus {
    /// Publishes an event on its own subject under its own id; returns after the stream's ack.
    ///
    /// # Errors
    /// If the event is malformed, or no ack came after three tries.
    pub async fn publish(&self, event: &v1::Event) -> Result<Stored, Error> {
        let (subject, session) = self.address(event)?;
        let headers = trace::headers(session);
        self.publish_stored(&subject, &event.event_id, &headers, event.encode_to_vec().into()).await
    }

    /// The subject of an event, for an outbox row.
    ///
    /// # Errors
    /// If the event has no content, a malformed session or another environment.
    pub fn address(&self, event: &v1::Event) -> Result<(String, SessionId), Error> {
        let kind = event.event.as_ref().ok_or(Error::InvalidEvent("it has no content"))?;
        let session: SessionId =
            event.session_id.parse().map_err(|_| Error::InvalidEvent("its session id is malformed"))?;
        if event.environment != self.environment().as_str() {
            return Err(Error::InvalidEvent("it is of another environment"));
        }
        Ok((self.subjects().event(session, kind), session))
    }

    /// Publishes bytes that were prepared before (an outbox row); returns after the stream's ack.
    ///
    /// # Errors
    /// If no ack came after three tries. The message may be stored all the same: repeat it with the same id.
    pub async fn publish_stored(
        &self,
        subject: &str,
        message_id: &str,
        headers: &Headers,
        payload: Bytes,
    ) -> Result<Stored, Error> {
        let started = Instant::now();
        let mut last = None;
        for attempt in 0..TRIES {
            match self.publish_once(subject, message_id, headers, payload.clone()).await {
                Ok(stored) => {
                    self.metrics().published(started.elapsed());
                    return Ok(stored);
                }
                Err(error) => {
                    // Broken pipe, no responders, time-out: all of them pass, and the id makes a repeat harmless.
                    let is_final = matches!(error.kind(), PublishErrorKind::MaxPayloadExceeded);
                    last = Some(error);
                    if is_final {
                        break;
                    }
                    if attempt + 1 < TRIES {
                        tokio::time::sleep(crate::backoff(u64::from(attempt) + 1) / 8).await;
                    }
                }
            }
        }
        self.metrics().publish_failed();
        let source = last.map_or_else(|| "never tried".into(), |e| Box::new(e) as crate::error::Source);
        Err(Error::Publish { subject: subject.to_owned(), source })
    }

    async fn publish_once(
        &self,
        subject: &str,
        message_id: &str,
        headers: &Headers,
        payload: Bytes,
    ) -> Result<Stored, async_nats::jetstream::context::PublishError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(name.as_str(), value.as_str());
        }
        map.insert(header::NATS_MESSAGE_ID, message_id);
        let ack = self.jetstream().publish_with_headers(subject.to_owned(), map, payload).await?.await?;
        Ok(Stored { sequence: ack.sequence, duplicate: ack.duplicate })
    }
}
