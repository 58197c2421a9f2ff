//! Hearing events without a durable: what every replica must hear, and reading the stream by sequence.

use std::time::Duration;

use async_nats::{Subscriber, jetstream::stream::DirectGetErrorKind};
use futures::StreamExt as _;
use lab_domain::SessionId;
use lab_proto::v1;

use crate::{Bus, Error, decode, event::Kind};

/// A look at the stream even if no event woke us.
const LOOK: Duration = Duration::from_secs(5);

/// A plain subscription: at most once, only while connected. Beside it a periodic look is needed.
#[derive(Debug)]
pub struct Events {
    bus: Bus,
    subscriber: Subscriber,
}

impl Events {
    /// The next event; `None` once the connection is closed for good. What is no event is passed over.
    pub async fn next(&mut self) -> Option<(SessionId, Kind, v1::Event)> {
        loop {
            let message = self.subscriber.next().await?;
            match decode::event(self.bus.subjects(), &message.subject, &message.payload) {
                Ok(decoded) => return Some((decoded.session, decoded.kind, decoded.event)),
                Err(why) => tracing::debug!(subject = %message.subject, ?why, "passed over"),
            }
        }
    }
}

/// The events of the stream in order, from a sequence on.
#[derive(Debug)]
pub struct Tail {
    bus: Bus,
    wake: Subscriber,
    next: u64,
}

impl Tail {
    /// The next event and its sequence. Waits as long as there is none; what is no event is passed over.
    ///
    /// # Errors
    /// If the broker cannot be asked; the next call goes on at the same place.
    pub async fn next(&mut self) -> Result<(u64, Kind, v1::Event), Error> {
        let name = self.bus.subjects().events_stream();
        let failed =
            |source: crate::error::Source| Error::Stream { operation: "read", stream: name.clone(), source };
        let stream = self.bus.jetstream().get_stream_no_info(&name).await.map_err(|e| failed(Box::new(e)))?;
        let filter = self.bus.subjects().all_events();
        loop {
            match stream.direct_get_next_for_subject(filter.clone(), Some(self.next)).await {
                Ok(message) => {
                    self.next = message.sequence + 1;
                    if let Ok(d) = decode::event(self.bus.subjects(), &message.subject, &message.payload) {
                        return Ok((message.sequence, d.kind, d.event));
                    }
                }
                Err(error) if error.kind() == DirectGetErrorKind::NotFound => {
                    // Woken by an event, or after a while anyway: a plain subscription loses what a cut loses.
                    let _woken = tokio::time::timeout(LOOK, self.wake.next()).await;
                }
                Err(error) => return Err(failed(Box::new(error))),
            }
        }
    }
}

impl Bus {
    /// Hears events on `filter` from now on, on this replica, without a durable.
    ///
    /// # Errors
    /// If the connection is closed.
    pub async fn subscribe_events(&self, filter: String) -> Result<Events, Error> {
        let subscriber = self.subscribe(filter).await?;
        Ok(Events { bus: self.clone(), subscriber })
    }

    /// Reads the stream after `sequence` and goes on with what comes.
    ///
    /// # Errors
    /// If the connection is closed.
    pub async fn tail(&self, sequence: u64) -> Result<Tail, Error> {
        let wake = self.subscribe(self.subjects().all_events()).await?;
        Ok(Tail { bus: self.clone(), wake, next: sequence.saturating_add(1) })
    }

    async fn subscribe(&self, filter: String) -> Result<Subscriber, Error> {
        match self.client().subscribe(filter.clone()).await {
            Ok(subscriber) => Ok(subscriber),
            Err(source) => Err(Error::Subscribe { subject: filter, source: Box::new(source) }),
        }
    }
}
