//! A person at the console: types lines, reads what comes back.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::{SinkExt as _, StreamExt as _};
use regex::Regex;
use serde_json::Value;
use tokio::time::timeout;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, client::IntoClientRequest as _, http::header},
};

/// How long a line of a shell may take, under emulation.
const LINE: Duration = Duration::from_secs(90);
/// Between two presses of Enter while a prompt is waited for.
const POKE: Duration = Duration::from_secs(3);

/// An open console.
#[derive(Debug)]
pub struct Terminal {
    socket: WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>,
    screen: String,
    pending: Vec<u8>,
    marks: u32,
    /// Control frames in the order in which they came.
    pub control: Vec<Value>,
    /// Code and reason, once the gateway has closed.
    pub closed: Option<(u16, String)>,
    /// Bytes of the console seen so far.
    pub received: u64,
}

impl Terminal {
    /// Opens with a cookie and an Origin of the caller's choice.
    ///
    /// # Errors
    /// If the handshake is refused; the text has the status and the body.
    pub async fn open(base: &str, id: &str, cookie: &str, origin: &str, query: Option<&str>) -> Result<Self> {
        let host = base.strip_prefix("http://").context("an http address")?;
        let query = query.map(|q| format!("?{q}")).unwrap_or_default();
        let mut request = format!("ws://{host}/api/sessions/{id}/console{query}").into_client_request()?;
        request.headers_mut().insert(header::COOKIE, cookie.parse()?);
        request.headers_mut().insert(header::ORIGIN, origin.parse()?);
        match timeout(Duration::from_secs(30), connect_async(request)).await? {
            Ok((socket, _)) => Ok(Self {
                socket,
                screen: String::new(),
                pending: Vec::new(),
                marks: 0,
                control: Vec::new(),
                closed: None,
                received: 0,
            }),
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => {
                let body = response.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                bail!("{}: {body}", response.status())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// If the console is closed.
    pub async fn send(&mut self, text: &str) -> Result<()> {
        Ok(self.socket.send(Message::Binary(text.as_bytes().to_vec().into())).await?)
    }

    /// Sends a control frame.
    ///
    /// # Errors
    /// If the console is closed.
    pub async fn control(&mut self, frame: &Value) -> Result<()> {
        Ok(self.socket.send(Message::Text(frame.to_string().into())).await?)
    }

    /// Everything that was printed since the last [`clear`](Self::clear).
    #[must_use]
    pub fn screen(&self) -> &str {
        &self.screen
    }

    /// Forgets what was printed.
    pub fn clear(&mut self) {
        self.screen.clear();
    }

    /// Waits until what was printed matches.
    ///
    /// # Errors
    /// If it does not within `limit`, or the console closes; the text has the end of the screen.
    pub async fn wait_for(&mut self, pattern: &str, limit: Duration) -> Result<String> {
        self.wait_poking(pattern, limit, None).await
    }

    async fn wait_poking(&mut self, pattern: &str, limit: Duration, poke: Option<&str>) -> Result<String> {
        let regex = Regex::new(pattern)?;
        let started = Instant::now();
        loop {
            if let Some(found) = regex.captures(&self.screen) {
                let group = found.get(1).or_else(|| found.get(0));
                return Ok(group.map(|m| m.as_str().to_owned()).unwrap_or_default());
            }
            let tail: String =
                self.screen.chars().rev().take(800).collect::<Vec<_>>().into_iter().rev().collect();
            if let Some(closed) = &self.closed {
                bail!("the console closed ({closed:?}) before {pattern:?} came; its end: {tail:?}");
            }
            if started.elapsed() > limit {
                bail!("{pattern:?} did not come within {limit:?}; the screen's end: {tail:?}");
            }
            let heard = timeout(POKE, self.hear()).await;
            if let Ok(heard) = heard {
                heard?;
            } else if let Some(poke) = poke {
                self.send(poke).await?;
            }
        }
    }

    /// Takes one frame in.
    async fn hear(&mut self) -> Result<()> {
        match self.socket.next().await {
            Some(Ok(Message::Binary(bytes))) => {
                self.received += bytes.len() as u64;
                self.pending.extend_from_slice(&bytes);
                self.take_text();
            }
            Some(Ok(Message::Text(text))) => self.control.push(serde_json::from_str(&text)?),
            Some(Ok(Message::Close(frame))) => {
                self.closed =
                    Some(frame.map_or((1005, String::new()), |f| (f.code.into(), f.reason.to_string())));
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Err(error)) => self.closed = Some((1006, error.to_string())),
            None => self.closed = Some((1006, "end of stream".to_owned())),
        }
        Ok(())
    }

    /// Characters come split over frames.
    fn take_text(&mut self) {
        let whole = match std::str::from_utf8(&self.pending) {
            Ok(text) => text.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => self.pending.len(),
        };
        let rest = self.pending.split_off(whole);
        self.screen.push_str(&String::from_utf8_lossy(&self.pending));
        self.pending = rest;
    }

    /// Waits for a root prompt, pressing Enter now and then: a serial line shows nothing by itself.
    ///
    /// # Errors
    /// If none comes within `limit`.
    pub async fn prompt(&mut self, limit: Duration) -> Result<()> {
        self.clear();
        self.send("\r").await?;
        self.wait_poking(r"# (\x1b\[[^a-zA-Z]*[a-zA-Z])*$", limit, Some("\r")).await.map(drop)
    }

    /// Types lines, and waits until the shell has carried them all out. Returns what was printed meanwhile.
    ///
    /// # Errors
    /// If it has not in time.
    pub async fn run(&mut self, script: &str) -> Result<String> {
        self.clear();
        for line in script.lines().filter(|l| !l.starts_with("#!")) {
            self.send(&format!("{line}\r")).await?;
        }
        // The sum is made by the shell, so the echo of the line is no match.
        self.marks += 1;
        let (mark, sum) = (self.marks, self.marks + 4000);
        self.send(&format!("echo lab-mark-$(({mark}+4000))-\r")).await?;
        self.wait_for(&format!("lab-mark-{sum}-"), LINE).await?;
        Ok(self.screen.clone())
    }

    /// The id of this boot of the kernel.
    ///
    /// # Errors
    /// If the shell does not say it.
    pub async fn boot_id(&mut self) -> Result<String> {
        let printed = self.run("cat /proc/sys/kernel/random/boot_id").await?;
        let id = Regex::new("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")?;
        Ok(id.find(&printed).context("no boot id was printed")?.as_str().to_owned())
    }

    /// Types `systemctl reboot` and waits for a shell of another boot.
    ///
    /// # Errors
    /// If none is there within `limit`.
    pub async fn reboot(&mut self, limit: Duration) -> Result<()> {
        let before = self.boot_id().await?;
        self.send("systemctl reboot\r").await?;
        let started = Instant::now();
        loop {
            let left = limit.checked_sub(started.elapsed()).context("no shell after the reboot")?;
            self.prompt(left).await?;
            // The old shell may still answer, and lose the line when it is killed.
            match self.boot_id().await {
                Ok(now) if now != before => return Ok(()),
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Reads until the gateway closes.
    ///
    /// # Errors
    /// If it does not within `limit`.
    pub async fn wait_closed(&mut self, limit: Duration) -> Result<(u16, String)> {
        let started = Instant::now();
        loop {
            if let Some(closed) = &self.closed {
                return Ok(closed.clone());
            }
            let left = limit.checked_sub(started.elapsed()).context("the console stays open")?;
            timeout(left, self.hear()).await??;
        }
    }
}
