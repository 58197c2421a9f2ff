//! One machine's console: one upstream connection, any number of viewers.
//!
//! ```text
//! KubeVirt <=> upstream task -> Buffer <- viewer task <=> browser
//!                 ^------------ input <----/
//! ```
//!
//! KubeVirt throws the older client of a console out, so the gateway holds exactly one connection per machine, from the
//! first viewer to the end of the session. Viewers read from the [`Buffer`] at their own offset. The upstream is not
//! read while even the fastest viewer is [`LEAD`] behind: that is how backpressure reaches the guest. A slower viewer
//! falls out of the buffer and is told so. With no viewer the stream is read on, so that the guest never blocks.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::{Sink, SinkExt, Stream, StreamExt};
use lab_domain::EndReason;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Notify, mpsc, watch},
    time::{Instant, interval_at, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Error as WsError, Message},
};
use tokio_util::sync::CancellationToken;

use crate::buffer::{Buffer, CAPACITY, Slice};

/// The upstream waits while the fastest viewer has this much to read. The rest of the buffer is for the slower ones.
pub const LEAD: u64 = (CAPACITY / 2) as u64;
/// Viewers of one console: a script that opens sockets in a loop must not take the gateway from everybody else.
pub const MAX_VIEWERS: usize = 16;
/// Pings at both hops: load balancers and proxies cut what is silent for a minute.
pub const PING_EVERY: Duration = Duration::from_secs(20);
/// Nothing heard for this long, not even a pong: the peer is gone.
pub const SILENCE: Duration = Duration::from_secs(65);
/// Messages of input that may wait for the upstream.
const INPUT_QUEUE: usize = 32;
/// The upstream must take a message of input within this time.
const SEND_LIMIT: Duration = Duration::from_secs(15);

/// What became of a console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Bytes flow.
    Open,
    /// The upstream ended; a page may come back and gets a new epoch.
    Lost,
    /// The session is over.
    Ended(Option<EndReason>),
    /// This gateway stops; a page may come back to another.
    ShuttingDown,
}

/// Who looks on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Roster {
    /// All viewers.
    pub viewers: usize,
    /// Those of them who are staff.
    pub staff: usize,
}

/// Size of the serial terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// A viewer's number within its console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ViewerId(u64);

#[derive(Debug, Default)]
struct Shared {
    buffer: Buffer,
    viewers: HashMap<ViewerId, Viewer>,
    next_viewer: u64,
}

#[derive(Debug)]
struct Viewer {
    staff: bool,
    cursor: u64,
}

/// Handle of one console; cheap to share.
#[derive(Debug)]
pub struct Console {
    epoch: String,
    shared: Mutex<Shared>,
    end: watch::Sender<u64>,
    phase: watch::Sender<Phase>,
    roster: watch::Sender<Roster>,
    size: watch::Sender<Option<Size>>,
    moved: Notify,
    input: mpsc::Sender<Bytes>,
}

impl Console {
    /// A console of a new epoch, and the future that serves its upstream until it ends, is [finished](Self::finish) or
    /// `shutdown` is cancelled. Dropping the future closes the upstream.
    pub fn open<S>(
        epoch: String,
        upstream: WebSocketStream<S>,
        shutdown: CancellationToken,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (input, inbox) = mpsc::channel(INPUT_QUEUE);
        let console = Arc::new(Self {
            epoch,
            shared: Mutex::default(),
            end: watch::Sender::new(0),
            phase: watch::Sender::new(Phase::Open),
            roster: watch::Sender::new(Roster::default()),
            size: watch::Sender::new(None),
            moved: Notify::new(),
            input,
        });
        let served = serve(Arc::clone(&console), upstream, inbox, shutdown);
        (console, served)
    }

    /// New with each upstream dial; offsets count within it.
    pub fn epoch(&self) -> &str {
        &self.epoch
    }

    /// What became of it; changes once at most.
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// True until it is lost or finished.
    pub fn is_open(&self) -> bool {
        *self.phase.borrow() == Phase::Open
    }

    /// Ends the console for all viewers. The first reason stands.
    pub fn finish(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let first = *now == Phase::Open;
            if first {
                *now = phase;
            }
            first
        });
    }

    /// The end of the stream, as it grows.
    pub fn growth(&self) -> watch::Receiver<u64> {
        self.end.subscribe()
    }

    /// Who looks on, as it changes.
    pub fn roster(&self) -> watch::Receiver<Roster> {
        self.roster.subscribe()
    }

    /// The size that a viewer asked for last.
    pub fn sizes(&self) -> watch::Receiver<Option<Size>> {
        self.size.subscribe()
    }

    /// Asks for a size; the newest wins.
    pub fn resize(&self, size: Size) {
        self.size.send_if_modified(|now| now.replace(size) != Some(size));
    }

    /// Whether another viewer finds a place.
    pub fn has_room(&self) -> bool {
        self.lock().viewers.len() < MAX_VIEWERS
    }

    /// Takes a viewer in, at `offset` or, if that is forgotten, at the oldest byte that is kept.
    ///
    /// # Errors
    /// If [`MAX_VIEWERS`] are there already.
    pub fn join(self: &Arc<Self>, staff: bool, offset: Option<u64>) -> Result<Seat, Full> {
        let mut shared = self.lock();
        if shared.viewers.len() >= MAX_VIEWERS {
            return Err(Full);
        }
        let id = ViewerId(shared.next_viewer);
        shared.next_viewer += 1;
        let cursor =
            offset.unwrap_or_else(|| shared.buffer.start()).clamp(shared.buffer.start(), shared.buffer.end());
        shared.viewers.insert(id, Viewer { staff, cursor });
        self.announce(&shared);
        drop(shared);
        Ok(Seat { console: Arc::clone(self), id })
    }

    /// Offset of the oldest byte that is kept.
    pub fn start(&self) -> u64 {
        self.lock().buffer.start()
    }

    /// Passes bytes on to the guest; waits while its queue is full.
    ///
    /// # Errors
    /// If the upstream is gone.
    pub async fn type_in(&self, bytes: Bytes) -> Result<(), Gone> {
        self.input.send(bytes).await.map_err(|_| Gone)
    }

    fn announce(&self, shared: &Shared) {
        let now = Roster {
            viewers: shared.viewers.len(),
            staff: shared.viewers.values().filter(|v| v.staff).count(),
        };
        self.roster.send_if_modified(|old| std::mem::replace(old, now) != now);
    }

    fn push(&self, bytes: Bytes) {
        let end = {
            let mut shared = self.lock();
            shared.buffer.push(&bytes);
            shared.buffer.end()
        };
        self.end.send_replace(end);
    }

    /// True if even the fastest viewer has [`LEAD`] bytes to read.
    fn must_wait(&self) -> bool {
        let shared = self.lock();
        let fastest = shared.viewers.values().map(|v| v.cursor).max();
        fastest.is_some_and(|cursor| shared.buffer.end() - cursor >= LEAD)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // No panic can happen while it is held, and a poisoned buffer would still be whole.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every place of this console is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this console has {MAX_VIEWERS} viewers already")]
pub struct Full;

/// The upstream is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the machine's console has ended")]
pub struct Gone;

/// A viewer's place; leaving is dropping it.
#[derive(Debug)]
pub struct Seat {
    console: Arc<Console>,
    id: ViewerId,
}

impl Seat {
    /// The bytes at this viewer's offset, at most `limit`, and moves on behind them.
    pub fn read(&self, limit: usize) -> Slice {
        let mut shared = self.console.lock();
        let cursor = shared.viewers.get(&self.id).map_or(0, |v| v.cursor);
        let slice = shared.buffer.read(cursor, limit);
        if let Some(viewer) = shared.viewers.get_mut(&self.id) {
            viewer.cursor = slice.from + slice.bytes.len() as u64;
        }
        drop(shared);
        self.console.moved.notify_one();
        slice
    }

    /// Offset of the next byte that it reads.
    pub fn cursor(&self) -> u64 {
        self.console.lock().viewers.get(&self.id).map_or(0, |v| v.cursor)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut shared = self.console.lock();
        shared.viewers.remove(&self.id);
        self.console.announce(&shared);
        drop(shared);
        self.console.moved.notify_one();
    }
}

async fn serve<S>(
    console: Arc<Console>,
    upstream: WebSocketStream<S>,
    inbox: mpsc::Receiver<Bytes>,
    shutdown: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sink, stream) = upstream.split();
    let mut phase = console.phase();
    tokio::select! {
        () = pull(&console, stream) => console.finish(Phase::Lost),
        () = feed(&mut sink, inbox) => console.finish(Phase::Lost),
        _ = phase.wait_for(|p| *p != Phase::Open) => {}
        () = shutdown.cancelled() => console.finish(Phase::ShuttingDown),
    }
    // KubeVirt answers a close with a close; whether it does changes nothing any more.
    let _closed = timeout(Duration::from_secs(1), sink.close()).await;
}

/// Upstream to buffer, until the upstream ends or falls silent.
async fn pull(console: &Console, mut stream: impl Stream<Item = Result<Message, WsError>> + Unpin) {
    loop {
        // Registered before the test, so that a move in between is not missed.
        let moved = console.moved.notified();
        if console.must_wait() {
            moved.await;
            continue;
        }
        match timeout(SILENCE, stream.next()).await {
            Ok(Some(Ok(Message::Binary(bytes)))) => console.push(bytes),
            // A pong is a sign of life; KubeVirt sends no text.
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Text(_) | Message::Frame(_)))) => {}
            Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) => {
                tracing::info!(console.epoch = %console.epoch, "the upstream console ended");
                return;
            }
            Err(_) => {
                tracing::warn!(console.epoch = %console.epoch, "the upstream console is silent, not even a pong came");
                return;
            }
        }
    }
}

/// Input and pings to the upstream, until it takes no more.
async fn feed(sink: &mut (impl Sink<Message, Error = WsError> + Unpin), mut inbox: mpsc::Receiver<Bytes>) {
    let mut pings = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    loop {
        let message = tokio::select! {
            bytes = inbox.recv() => match bytes {
                // Binary only: KubeVirt drops text frames without a word.
                Some(bytes) => Message::Binary(bytes),
                None => return,
            },
            _ = pings.tick() => Message::Ping(Bytes::new()),
        };
        match timeout(SEND_LIMIT, sink.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests;
