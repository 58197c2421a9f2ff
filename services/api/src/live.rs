//! What the database announces, on this replica: changed sessions for the open event streams, new outbox rows for the
//! relay. One connection listens for both.
//!
//! A notification can be lost with the connection, so a reconnect says "anything may have changed", and nobody relies
//! on notifications alone: the relay sweeps, and an event stream looks again from time to time.

use std::time::Duration;

use lab_domain::SessionId;
use sqlx::postgres::PgListener;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::store::{OUTBOX_CHANNEL, SESSION_CHANNEL, Store};

/// Notices that a slow reader may be behind before it is told to look at everything.
const BACKLOG: usize = 4096;

/// What was announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// This session changed.
    Session(SessionId),
    /// This session has something to publish.
    Outbox(SessionId),
    /// Notices were lost.
    Anything,
}

/// Hands notices on to whoever listens on this replica.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    sender: broadcast::Sender<Notice>,
}

/// One reader of notices.
#[derive(Debug)]
pub(crate) struct Notices {
    receiver: broadcast::Receiver<Notice>,
}

impl Notices {
    /// The next notice; `None` when the process ends.
    pub(crate) async fn next(&mut self) -> Option<Notice> {
        match self.receiver.recv().await {
            Ok(notice) => Some(notice),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Notice::Anything),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

impl Live {
    pub(crate) fn new() -> Self {
        Self { sender: broadcast::channel(BACKLOG).0 }
    }

    /// Reads from now on.
    pub(crate) fn notices(&self) -> Notices {
        Notices { receiver: self.sender.subscribe() }
    }

    fn tell(&self, notice: Notice) {
        // Nobody listening is fine.
        let _unheard = self.sender.send(notice);
    }

    /// Listens until `shutdown`.
    pub(crate) async fn run(self, store: Store, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            let lost = shutdown.run_until_cancelled(self.listen(&store)).await;
            if let Some(Err(error)) = lost {
                tracing::warn!(error = %error, "not listening to the database; trying again");
                shutdown.run_until_cancelled(tokio::time::sleep(Duration::from_secs(1))).await;
            }
        }
    }

    async fn listen(&self, store: &Store) -> Result<(), sqlx::Error> {
        let mut listener = PgListener::connect_with(store.pool()).await?;
        listener.listen_all([SESSION_CHANNEL, OUTBOX_CHANNEL]).await?;
        self.tell(Notice::Anything);
        loop {
            let Some(notification) = listener.try_recv().await? else {
                self.tell(Notice::Anything);
                continue;
            };
            let id = notification.payload().split(' ').next().and_then(|id| id.parse().ok());
            let Some(id) = id else { continue };
            self.tell(match notification.channel() {
                OUTBOX_CHANNEL => Notice::Outbox(id),
                _ => Notice::Session(id),
            });
        }
    }
}
