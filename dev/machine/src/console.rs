//! The serial line of a machine: one client at a time, the newer throws out the older, nothing is replayed.
//!
//! That is KubeVirt's way, measured on the real thing, and clients are built for it. A slow client holds the
//! guest back (the line's buffer is bounded); with no client what the guest prints is lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Chunks in flight towards a client before the guest is held back.
const OUTPUT_CHUNKS: usize = 16;
/// Chunks in flight towards the guest before the client is held back.
const INPUT_CHUNKS: usize = 16;

/// The machine has ended: there is no line any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the serial line is closed")]
pub struct Closed;

/// The outer end of a serial line.
#[derive(Debug, Clone)]
pub struct Console(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    slot: Mutex<Slot>,
    input: mpsc::Sender<Bytes>,
}

#[derive(Debug, Default)]
struct Slot {
    client: Option<Client>,
    closed: bool,
}

#[derive(Debug, Clone)]
struct Client {
    output: mpsc::Sender<Bytes>,
    thrown_out: CancellationToken,
}

/// What the guest prints goes in here; dropping it closes the line. Owned by the driver's task.
#[derive(Debug)]
pub(crate) struct Printer {
    console: Console,
}

/// A client on the line.
#[derive(Debug)]
pub struct Attached {
    output: Output,
    input: Input,
}

/// The reading half of [`Attached`].
#[derive(Debug)]
pub struct Output {
    bytes: mpsc::Receiver<Bytes>,
    thrown_out: CancellationToken,
}

/// The writing half of [`Attached`].
#[derive(Debug)]
pub struct Input {
    bytes: mpsc::Sender<Bytes>,
    thrown_out: CancellationToken,
}

impl Console {
    /// Makes a line: its outer end, and the guest's end: what it prints, what was typed.
    pub(crate) fn new() -> (Self, Printer, mpsc::Receiver<Bytes>) {
        let (input, typed) = mpsc::channel(INPUT_CHUNKS);
        let console = Self(Arc::new(Inner { slot: Mutex::default(), input }));
        (console.clone(), Printer { console }, typed)
    }

    /// Takes the line over: whoever had it sees its end at once.
    ///
    /// # Errors
    /// The machine has ended.
    pub fn attach(&self) -> Result<Attached, Closed> {
        let (output, received) = mpsc::channel(OUTPUT_CHUNKS);
        let thrown_out = CancellationToken::new();
        let mut slot = self.slot();
        if slot.closed {
            return Err(Closed);
        }
        let client = Client { output, thrown_out: thrown_out.clone() };
        if let Some(older) = slot.client.replace(client) {
            older.thrown_out.cancel();
        }
        Ok(Attached {
            output: Output { bytes: received, thrown_out: thrown_out.clone() },
            input: Input { bytes: self.0.input.clone(), thrown_out },
        })
    }

    /// Takes the line from whoever has it and gives it to nobody (what a plain GET does on KubeVirt).
    pub fn throw_out(&self) {
        if let Some(older) = self.slot().client.take() {
            older.thrown_out.cancel();
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        // Nothing can panic while the lock is held: a poisoned slot is still a whole one.
        self.0.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Printer {
    /// Sends what the guest printed; waits while the client is slow. Cancel-safe: cancelled means not sent.
    pub(crate) async fn print(&self, bytes: Bytes) {
        let Some(client) = self.console.slot().client.clone() else { return };
        tokio::select! {
            () = client.thrown_out.cancelled() => {}
            sent = client.output.send(bytes) => {
                if sent.is_err() {
                    self.console.forget(&client);
                }
            }
        }
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        let mut slot = self.console.slot();
        slot.closed = true;
        // Not thrown out: the client still reads what is on its way, then sees the end.
        slot.client = None;
    }
}

impl Console {
    fn forget(&self, gone: &Client) {
        let mut slot = self.slot();
        if slot.client.as_ref().is_some_and(|client| client.output.same_channel(&gone.output)) {
            slot.client = None;
        }
    }
}

impl Attached {
    /// The next bytes, or `None` when a newer client has the line or the machine has ended.
    pub async fn recv(&mut self) -> Option<Bytes> {
        self.output.recv().await
    }

    /// Types.
    ///
    /// # Errors
    /// A newer client has the line, or the machine has ended.
    pub async fn send(&self, bytes: Bytes) -> Result<(), Closed> {
        self.input.send(bytes).await
    }

    /// Both directions, to be used by two tasks.
    pub fn split(self) -> (Output, Input) {
        (self.output, self.input)
    }
}

impl Output {
    /// The next bytes, or `None` when a newer client has the line or the machine has ended.
    pub async fn recv(&mut self) -> Option<Bytes> {
        tokio::select! {
            biased;
            () = self.thrown_out.cancelled() => None,
            bytes = self.bytes.recv() => bytes,
        }
    }
}

impl Input {
    /// Types.
    ///
    /// # Errors
    /// A newer client has the line, or the machine has ended.
    pub async fn send(&self, bytes: Bytes) -> Result<(), Closed> {
        tokio::select! {
            biased;
            () = self.thrown_out.cancelled() => Err(Closed),
            sent = self.bytes.send(bytes) => sent.map_err(|_closed| Closed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn newer_client_throws_out_the_older() {
        let (console, printer, mut typed) = Console::new();
        let mut older = console.attach().unwrap();
        printer.print(Bytes::from_static(b"one")).await;
        assert_eq!(older.recv().await.unwrap(), "one");
        let mut newer = console.attach().unwrap();
        assert_eq!(older.recv().await, None);
        assert_eq!(older.send(Bytes::from_static(b"x")).await, Err(Closed));
        printer.print(Bytes::from_static(b"two")).await;
        assert_eq!(newer.recv().await.unwrap(), "two");
        newer.send(Bytes::from_static(b"y")).await.unwrap();
        assert_eq!(typed.recv().await.unwrap(), "y");
    }

    #[tokio::test]
    async fn nothing_is_replayed_and_the_end_comes_after_the_last_bytes() {
        let (console, printer, _typed) = Console::new();
        printer.print(Bytes::from_static(b"lost")).await;
        let mut client = console.attach().unwrap();
        printer.print(Bytes::from_static(b"last words")).await;
        drop(printer);
        assert_eq!(client.recv().await.unwrap(), "last words");
        assert_eq!(client.recv().await, None);
        assert!(console.attach().is_err());
    }

    #[tokio::test]
    async fn slow_client_holds_the_guest_back() {
        let (console, printer, _typed) = Console::new();
        let _slow = console.attach().unwrap();
        for _ in 0..OUTPUT_CHUNKS {
            printer.print(Bytes::from_static(b"x")).await;
        }
        let more = printer.print(Bytes::from_static(b"x"));
        assert!(futures::FutureExt::now_or_never(more).is_none());
        console.throw_out();
        printer.print(Bytes::from_static(b"x")).await;
    }
}
