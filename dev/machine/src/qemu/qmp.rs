//! The control socket of QEMU (QMP): one command after the other, events in between.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::socket;

/// An emulator that is alive answers long before this.
const PATIENCE: Duration = Duration::from_secs(10);

/// The control socket failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens there.
    #[error("cannot connect to the control socket")]
    Connect(#[source] std::io::Error),
    /// It broke while we talked.
    #[error("the control socket broke")]
    Broken(#[source] std::io::Error),
    /// It was closed.
    #[error("the control socket was closed")]
    Closed,
    /// It does not answer.
    #[error("no answer on the control socket")]
    Silent,
    /// The answer was a refusal.
    #[error("the emulator refused {command}: {description}")]
    Refused {
        /// What was asked.
        command: &'static str,
        /// What it said.
        description: String,
    },
}

/// What we look at of a message.
#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    event: Option<String>,
    #[serde(default)]
    data: Value,
    #[serde(rename = "return", default)]
    result: Option<Value>,
    #[serde(default)]
    error: Option<Refusal>,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    #[serde(default)]
    desc: String,
}

/// What happened to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// It is off: the guest did it (asked or not), and the emulator waits to be told to end.
    Off,
    /// The emulator ends because somebody told it to.
    Quit,
    /// It was reset from inside.
    Reset,
    /// The guest's kernel panicked.
    Panicked,
}

impl Event {
    fn read(message: &Message) -> Option<Self> {
        let by_guest = message.data.get("guest").and_then(Value::as_bool).unwrap_or_default();
        match message.event.as_deref()? {
            "SHUTDOWN" if by_guest => Some(Self::Off),
            "SHUTDOWN" => Some(Self::Quit),
            "RESET" if by_guest => Some(Self::Reset),
            "GUEST_PANICKED" => Some(Self::Panicked),
            _ => None,
        }
    }
}

/// An open control socket.
#[derive(Debug)]
pub(super) struct Qmp {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
    pending: std::collections::VecDeque<Event>,
}

impl Qmp {
    /// Connects and introduces itself.
    pub(super) async fn connect(directory: &Path, name: &str) -> Result<Self, Error> {
        let stream: UnixStream = socket::connect(directory, name).await.map_err(Error::Connect)?;
        let (reader, writer) = stream.into_split();
        let lines = BufReader::new(reader).lines();
        let mut qmp = Self { lines, writer, pending: std::collections::VecDeque::new() };
        let greeting = tokio::time::timeout(PATIENCE, qmp.message());
        greeting.await.map_err(|_late| Error::Silent)??;
        qmp.execute("qmp_capabilities").await?;
        Ok(qmp)
    }

    /// Sends a command and waits for its answer; events that come first are kept.
    pub(super) async fn execute(&mut self, command: &'static str) -> Result<Value, Error> {
        self.send(command).await?;
        let answer = async {
            loop {
                let message = self.message().await?;
                if let Some(event) = Event::read(&message) {
                    self.pending.push_back(event);
                } else if let Some(refusal) = message.error {
                    return Err(Error::Refused { command, description: refusal.desc });
                } else if let Some(result) = message.result {
                    return Ok(result);
                }
            }
        };
        tokio::time::timeout(PATIENCE, answer).await.map_err(|_late| Error::Silent)?
    }

    /// Sends a command whose answer nobody waits for.
    pub(super) async fn send(&mut self, command: &'static str) -> Result<(), Error> {
        let line = format!("{}\n", json!({"execute": command}));
        self.writer.write_all(line.as_bytes()).await.map_err(Error::Broken)
    }

    /// The next event; an error when the emulator is gone. Cancel-safe.
    pub(super) async fn event(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(event);
            }
            let message = self.message().await?;
            if let Some(event) = Event::read(&message) {
                return Ok(event);
            }
        }
    }

    async fn message(&mut self) -> Result<Message, Error> {
        loop {
            let line = self.lines.next_line().await.map_err(Error::Broken)?.ok_or(Error::Closed)?;
            match serde_json::from_str(&line) {
                Ok(message) => return Ok(message),
                Err(error) => tracing::debug!(%error, "a line on a control socket is no message"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Option<Event> {
        Event::read(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn events_are_told_apart_by_who_caused_them() {
        assert_eq!(
            event(r#"{"event":"SHUTDOWN","data":{"guest":true,"reason":"guest-shutdown"}}"#),
            Some(Event::Off)
        );
        assert_eq!(
            event(r#"{"event":"SHUTDOWN","data":{"guest":false,"reason":"host-qmp-quit"}}"#),
            Some(Event::Quit)
        );
        assert_eq!(
            event(r#"{"event":"RESET","data":{"guest":true,"reason":"guest-reset"}}"#),
            Some(Event::Reset)
        );
        assert_eq!(
            event(r#"{"event":"RESET","data":{"guest":false,"reason":"host-qmp-system-reset"}}"#),
            None
        );
        assert_eq!(event(r#"{"event":"STOP"}"#), None);
        assert_eq!(event(r#"{"return":{}}"#), None);
    }
}
