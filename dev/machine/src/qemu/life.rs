//! The life of one real machine, as its control socket tells it.
//!
//! The emulator is started with `-no-shutdown`: a guest that powers off leaves it paused until we have taken note and
//! tell it to end. So a power-off that happens while nobody watches is still known to the next process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::command::{SERIAL, SERIAL_LOG};
use super::qmp::{Event, Qmp};
use super::record::Record;
use super::{process, socket};
use crate::console::Printer;
use crate::machine::{Control, End, Run, Status};

/// How often the power button is pressed while the grace runs: a guest that still boots misses the first.
const PRESS_AGAIN: Duration = Duration::from_secs(1);
/// How long an emulator may take to end by itself once it is told to.
const QUIT: Duration = Duration::from_secs(3);
/// "Never", as a time that can be waited for.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// One read of the serial line.
const CHUNK: usize = 8192;
/// What the emulator's log of the serial line may grow to while we watch: a guest that prints for ever must not fill
/// the disk of the host.
const LOG: usize = 4 << 20;

/// Everything that the task of one machine owns.
pub(super) struct Life {
    pub(super) record: Record,
    pub(super) directory: PathBuf,
    pub(super) qmp: Qmp,
    pub(super) status: watch::Sender<Status>,
    pub(super) control: mpsc::Receiver<Control>,
    /// Our process lets go of the machine: its serial line is left to the next one.
    pub(super) let_go: CancellationToken,
}

impl Life {
    /// Watches until the end.
    pub(super) async fn watch(mut self) {
        let (mut press, mut shoot) = (None::<Instant>, None::<Instant>);
        let end = loop {
            let due = press.into_iter().chain(shoot).min().unwrap_or_else(|| Instant::now() + NEVER);
            tokio::select! {
                event = self.qmp.event() => match event {
                    Ok(Event::Off) => break End::Shutdown,
                    Ok(Event::Panicked) => break End::Panicked,
                    Ok(Event::Reset) => self.was_reset().await,
                    // Somebody from outside told it to: not us, we leave this loop first.
                    Ok(Event::Quit) => break End::Killed,
                    Err(error) => {
                        tracing::debug!(vm.name = self.record.name, %error, "a machine's control socket ended");
                        break End::Crashed;
                    }
                },
                asked = self.control.recv() => match asked {
                    Some(Control::Kill) => break End::Killed,
                    Some(Control::PowerDown { grace }) => {
                        let now = Instant::now();
                        press = press.or(Some(now));
                        shoot = Some(shoot.map_or(now + grace, |before| before.min(now + grace)));
                    }
                    // Our process ends; the machine does not.
                    None => {
                        self.let_go.cancel();
                        return;
                    }
                },
                () = tokio::time::sleep_until(due) => {
                    let now = Instant::now();
                    if shoot.is_some_and(|at| at <= now) {
                        break End::Killed;
                    }
                    if press.is_some_and(|at| at <= now) {
                        press = Some(now + PRESS_AGAIN);
                        if let Err(error) = self.qmp.send("system_powerdown").await {
                            tracing::debug!(vm.name = self.record.name, %error, "the power button does not answer");
                        }
                    }
                }
            }
        };
        self.finish(end).await;
    }

    async fn was_reset(&mut self) {
        self.record.resets += 1;
        let resets = self.record.resets;
        self.status.send_modify(|status| status.resets = resets);
        self.note().await;
    }

    /// Ends the emulator, and only then says that the machine has ended.
    async fn finish(mut self, end: End) {
        if process::find(&self.directory, &self.record.uid).is_some() {
            let told = self.qmp.send("quit").await.is_ok();
            let patience = if told { QUIT } else { Duration::ZERO };
            if !process::gone(&self.directory, &self.record.uid, patience).await
                && !process::shoot(&self.directory, &self.record.uid).await
            {
                tracing::error!(vm.name = self.record.name, "an emulator does not die");
            }
        }
        self.record.end = Some(end.into());
        self.note().await;
        self.status.send_modify(|status| status.run = Run::Ended(end));
    }

    async fn note(&self) {
        if let Err(error) = self.record.write(&self.directory).await {
            tracing::warn!(vm.name = self.record.name, %error, "a machine's record was not written");
        }
    }
}

/// Carries the serial line between the emulator and whoever holds the console. Ends with the emulator.
pub(super) async fn serial(
    directory: PathBuf,
    printer: Printer,
    mut typed: mpsc::Receiver<Bytes>,
    let_go: CancellationToken,
) {
    let stream: UnixStream = match socket::connect(&directory, SERIAL).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!(directory = %directory.display(), %error, "a serial line cannot be opened");
            return;
        }
    };
    let (mut reader, mut writer) = stream.into_split();
    let down = async {
        let mut buffer = BytesMut::with_capacity(CHUNK);
        let mut logged = 0;
        while let Ok(read @ 1..) = reader.read_buf(&mut buffer).await {
            printer.print(buffer.split().freeze()).await;
            buffer.reserve(CHUNK);
            logged += read;
            if logged > LOG {
                logged = 0;
                cut_log(&directory).await;
            }
        }
    };
    let up = async {
        while let Some(bytes) = typed.recv().await {
            if writer.write_all(&bytes).await.is_err() {
                break;
            }
        }
        // The line is down when the reader says so.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = down => {}
        () = up => {}
        () = let_go.cancelled() => {}
    }
}

/// The emulator appends: what it writes next stands at the beginning again.
async fn cut_log(directory: &Path) {
    let path = directory.join(SERIAL_LOG);
    let cut = async { tokio::fs::OpenOptions::new().write(true).open(&path).await?.set_len(0).await };
    if let Err(error) = cut.await {
        tracing::debug!(file = %path.display(), %error, "the log of a serial line was not cut");
    }
}
