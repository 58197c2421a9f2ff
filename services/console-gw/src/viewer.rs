//! One browser at one console: its frames out, its frames in.
//!
//! Both directions run side by side, so a guest that takes no input does not stop its output, nor the other way round.

use std::{sync::Arc, time::Duration};

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use bytes::Bytes;
use futures::{Sink, SinkExt, Stream, StreamExt, stream::SplitSink};
use lab_domain::{EndReason, MachineName};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, interval_at, sleep, timeout},
};

use crate::{
    console::{Console, Full, PING_EVERY, Phase, SILENCE, Seat, Size},
    decide::Mode,
    protocol::{FromPage, ToPage, close},
};

/// Bytes per frame to the browser.
const FRAME: usize = 32 * 1024;
/// QEMU hands out one to twenty bytes at a time; waiting this long joins them and nobody can feel it.
const COALESCE: Duration = Duration::from_millis(4);
/// A browser that takes no frame for this long is too slow to be waited for.
const STALLED: Duration = Duration::from_secs(30);
/// Control answers that may wait.
const CONTROL_QUEUE: usize = 8;

/// How a viewer comes.
#[derive(Debug)]
pub struct Entry {
    /// Which machine; told in `hello`.
    pub machine: MachineName,
    /// Types or watches.
    pub mode: Mode,
    /// Where a page that was here before wants to go on.
    pub resume: Option<Resume>,
}

/// Where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// The epoch that the page saw.
    pub epoch: String,
    /// Offset of the first byte that it has not seen.
    pub offset: u64,
}

/// Serves the viewer until it leaves or the console ends. `typed` is called for each message of input.
pub async fn serve(socket: WebSocket, console: Arc<Console>, entry: Entry, typed: impl Fn() + Send) {
    let wanted = entry.resume.as_ref().filter(|r| r.epoch == console.epoch()).map(|r| r.offset);
    let (mut sink, stream) = socket.split();
    // Asked before the upgrade as well; several may have come in between.
    let Ok(seat) = console.join(entry.mode == Mode::Watch, wanted) else {
        return say_goodbye(&mut sink, End::Full).await;
    };
    let (control, answers) = mpsc::channel(CONTROL_QUEUE);
    let end = tokio::select! {
        end = show(&mut sink, &console, &seat, &entry, answers) => end,
        end = hear(stream, &console, entry.mode, control, typed) => end,
    };
    drop(seat);
    say_goodbye(&mut sink, end).await;
}

/// Why a viewer's stay ends.
#[derive(Debug)]
enum End {
    /// The browser went away.
    Left,
    /// It broke the protocol.
    Protocol(&'static str),
    /// It takes nothing.
    TooSlow,
    /// Every place is taken.
    Full,
    /// The console is over.
    Console(Phase),
}

async fn show<K>(
    sink: &mut K,
    console: &Console,
    seat: &Seat,
    entry: &Entry,
    mut answers: mpsc::Receiver<ToPage>,
) -> End
where
    K: Sink<Message, Error = axum::Error> + Unpin,
{
    let mut out = Outbox { sink };
    if let Err(end) = greet(&mut out, console, seat, entry).await {
        return end;
    }
    let mut growth = console.growth();
    growth.mark_changed();
    let mut roster = console.roster();
    roster.mark_changed();
    let mut phase = console.phase();
    let mut pings = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    loop {
        let sent = tokio::select! {
            // Signs of life go first, a flood must not starve them. Output goes before the goodbye: what the guest said
            // last must be seen.
            biased;
            _ = pings.tick() => out.send(Message::Ping(Bytes::new())).await,
            Some(answer) = answers.recv() => out.text(&answer).await,
            Ok(()) = growth.changed() => {
                sleep(COALESCE).await;
                growth.mark_unchanged();
                drain(&mut out, seat).await
            }
            over = over(&mut phase) => {
                return match drain(&mut out, seat).await {
                    Ok(()) => End::Console(over),
                    Err(end) => end,
                };
            }
            Ok(()) = roster.changed() => {
                let now = *roster.borrow_and_update();
                out.text(&ToPage::Viewers { count: now.viewers, staff: now.staff }).await
            }
        };
        if let Err(end) = sent {
            return end;
        }
    }
}

async fn over(phase: &mut watch::Receiver<Phase>) -> Phase {
    match phase.wait_for(|p| *p != Phase::Open).await {
        Ok(phase) => phase.clone(),
        // The sender lives in the console that we hold.
        Err(_) => Phase::Lost,
    }
}

async fn greet<K>(out: &mut Outbox<'_, K>, console: &Console, seat: &Seat, entry: &Entry) -> Result<(), End>
where
    K: Sink<Message, Error = axum::Error> + Unpin,
{
    let offset = seat.cursor();
    out.text(&ToPage::Hello {
        epoch: console.epoch().to_owned(),
        offset,
        machine: entry.machine.to_string(),
        readonly: entry.mode == Mode::Watch,
    })
    .await?;
    match &entry.resume {
        Some(r) if r.epoch != console.epoch() => {
            out.text(&ToPage::Gap { from: 0, to: offset, new_epoch: true }).await
        }
        Some(r) if r.offset < offset => {
            out.text(&ToPage::Gap { from: r.offset, to: offset, new_epoch: false }).await
        }
        Some(_) => Ok(()),
        None if offset > 0 => out.text(&ToPage::Gap { from: 0, to: offset, new_epoch: false }).await,
        None => Ok(()),
    }
}

/// Sends all that is there; a hole is told before the bytes behind it.
async fn drain<K>(out: &mut Outbox<'_, K>, seat: &Seat) -> Result<(), End>
where
    K: Sink<Message, Error = axum::Error> + Unpin,
{
    loop {
        let expected = seat.cursor();
        let slice = seat.read(FRAME);
        if slice.from > expected {
            out.text(&ToPage::Gap { from: expected, to: slice.from, new_epoch: false }).await?;
        }
        if slice.bytes.is_empty() {
            return Ok(());
        }
        out.send(Message::Binary(slice.bytes)).await?;
    }
}

async fn hear<T>(
    mut stream: T,
    console: &Console,
    mode: Mode,
    control: mpsc::Sender<ToPage>,
    typed: impl Fn(),
) -> End
where
    T: Stream<Item = Result<Message, axum::Error>> + Unpin,
{
    loop {
        let message = match timeout(SILENCE, stream.next()).await {
            Ok(Some(Ok(message))) => message,
            Ok(Some(Err(_)) | None) | Err(_) => return End::Left,
        };
        match message {
            Message::Binary(bytes) if mode == Mode::Type && !bytes.is_empty() => {
                typed();
                if console.type_in(bytes).await.is_err() {
                    // The other direction knows why, and shows the last output before it says so.
                    return std::future::pending().await;
                }
            }
            // Staff watch; an empty frame is nothing.
            Message::Binary(_) => {}
            Message::Text(text) => match FromPage::parse(&text) {
                Ok(FromPage::Resize { rows, cols }) if mode == Mode::Type => {
                    console.resize(Size { rows, cols })
                }
                Ok(FromPage::Resize { .. }) => {}
                // A full queue means that it asks faster than it listens; one answer less harms nobody.
                Ok(FromPage::Ping {}) => drop(control.try_send(ToPage::Pong)),
                Err(why) => return End::Protocol(why),
            },
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Close(_) => return End::Left,
        }
    }
}

async fn say_goodbye(sink: &mut SplitSink<WebSocket, Message>, end: End) {
    let mut out = Outbox { sink };
    let (code, reason) = match end {
        End::Left => return,
        End::Protocol(why) => (close::UNSUPPORTED, why.to_owned()),
        End::TooSlow => (close::TOO_SLOW, "the page took no output for too long".to_owned()),
        End::Full => (close::FULL, Full.to_string()),
        End::Console(Phase::Ended(reason)) => {
            let word = reason.map_or("unknown", EndReason::as_str);
            let told = ToPage::Ending { reason: word.to_owned(), message: words(reason).to_owned() };
            if out.text(&told).await.is_err() {
                return;
            }
            (close::ENDED, word.to_owned())
        }
        End::Console(Phase::ShuttingDown) => (close::RESTART, "the gateway restarts".to_owned()),
        End::Console(Phase::Lost | Phase::Open) => {
            (close::LOST, "the machine's console broke off".to_owned())
        }
    };
    // The peer may be gone; there is nobody left to tell.
    let _sent = out.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await;
    let _closed = timeout(Duration::from_secs(2), out.sink.close()).await;
}

fn words(reason: Option<EndReason>) -> &'static str {
    match reason {
        Some(EndReason::User) => "You ended this session.",
        Some(EndReason::Expired) => "The time of this session is over.",
        Some(EndReason::Idle) => "Nobody typed for a while, so this session was ended.",
        Some(EndReason::Admin) => "Staff ended this session.",
        Some(EndReason::VmStopped) => "The machine was shut down. Its session is over.",
        Some(EndReason::VmLost) => "The machine was lost. Start the lab again.",
        Some(
            EndReason::ProvisionFailed
            | EndReason::DiskTimeout
            | EndReason::BootTimeout
            | EndReason::AgentUnreachable
            | EndReason::PrepareFailed
            | EndReason::PrepareTimeout,
        ) => "The machine could not be started. Start the lab again.",
        None => "This session is over.",
    }
}

struct Outbox<'a, K> {
    sink: &'a mut K,
}

impl<K> Outbox<'_, K>
where
    K: Sink<Message, Error = axum::Error> + Unpin,
{
    async fn send(&mut self, message: Message) -> Result<(), End> {
        match timeout(STALLED, self.sink.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Left),
            Err(_) => Err(End::TooSlow),
        }
    }

    async fn text(&mut self, frame: &ToPage) -> Result<(), End> {
        match serde_json::to_string(frame) {
            Ok(text) => self.send(Message::Text(text.into())).await,
            // Our own enums of strings and numbers always serialise.
            Err(_) => Err(End::Protocol("internal")),
        }
    }
}
