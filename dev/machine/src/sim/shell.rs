//! The serial console of a played guest: a prompt, an echo, and a few commands.
//!
//! `echo`, `hostname`, `stty size`, `stty rows R cols C`, `flood N` (N bytes, Ctrl-C stops), `poweroff`,
//! `reboot`, `crash`, `panic`, `exit`. Every word of every line is remembered by the guest, so that a check
//! can need it. What it does NOT do: run anything.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::guest::Guest;

/// A line longer than this loses its rest, as a terminal line in canonical mode does.
const LINE: usize = 4096;
/// What may wait to be shown before typing is held back.
const PENDING: usize = 64 * 1024;
/// One piece of a flood.
const PIECE: u64 = 4096;

/// What a command does to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Poweroff,
    Reboot,
    Crash,
    Panic,
}

/// The terminal of one guest.
#[derive(Debug, Default)]
pub(super) struct Shell {
    awake: bool,
    line: Vec<u8>,
    pending: BytesMut,
    flood: u64,
    ahead: VecDeque<Bytes>,
}

impl Shell {
    /// The getty is up: from now on it answers.
    pub(super) fn wake(&mut self, guest: &Guest) {
        self.awake = true;
        let name = &guest.name;
        self.show(&format!("\r\nPlayed Linux {name} ttyS0\r\n\r\n{name} login: root (automatic login)\r\n"));
        self.prompt(guest);
    }

    /// The guest goes down: what is typed from now on is lost.
    pub(super) fn sleep(&mut self, farewell: &str) {
        *self = Self::default();
        self.show(farewell);
    }

    /// What to show next, if anything: to be taken by [`Self::shown`] when it was sent.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        if self.pending.is_empty() && self.flood > 0 {
            let piece = usize::try_from(self.flood.min(PIECE)).unwrap_or(0);
            let line = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ\r\n";
            self.pending.extend(line.iter().copied().cycle().take(piece));
            self.flood -= piece as u64;
            if self.flood == 0 {
                self.pending.extend_from_slice(b"\r\n");
            }
        }
        (!self.pending.is_empty()).then(|| Bytes::copy_from_slice(&self.pending))
    }

    /// The bytes of the last [`Self::next`] were sent.
    pub(super) fn shown(&mut self, sent: usize, guest: &Guest) -> Option<Wish> {
        let was_flooding = self.flood > 0;
        drop(self.pending.split_to(sent.min(self.pending.len())));
        if was_flooding || !self.pending.is_empty() {
            return None;
        }
        if let Some(ahead) = self.ahead.pop_front() {
            return self.typed(&ahead, guest);
        }
        None
    }

    /// Whether more may be typed now.
    pub(super) fn listens(&self) -> bool {
        self.pending.len() + self.ahead.iter().map(Bytes::len).sum::<usize>() < PENDING
    }

    /// Takes what was typed; a command may have a wish.
    pub(super) fn typed(&mut self, bytes: &Bytes, guest: &Guest) -> Option<Wish> {
        if !self.awake {
            return None;
        }
        if self.flood > 0 {
            if bytes.contains(&0x03) {
                self.flood = 0;
                self.ahead.clear();
                self.show("^C\r\n");
                self.prompt(guest);
            } else {
                self.ahead.push_back(bytes.clone());
            }
            return None;
        }
        for (at, byte) in bytes.iter().enumerate() {
            let wish = self.key(*byte, guest);
            if wish.is_some() || self.flood > 0 {
                let rest = bytes.slice(at + 1..);
                if wish.is_none() && !rest.is_empty() {
                    self.ahead.push_front(rest);
                }
                return wish;
            }
        }
        None
    }

    fn key(&mut self, byte: u8, guest: &Guest) -> Option<Wish> {
        match byte {
            b'\r' | b'\n' => {
                self.show("\r\n");
                let line = std::mem::take(&mut self.line);
                let wish = self.command(String::from_utf8_lossy(&line).trim(), guest);
                if wish.is_none() && self.flood == 0 {
                    self.prompt(guest);
                }
                return wish;
            }
            0x03 => {
                self.line.clear();
                self.show("^C\r\n");
                self.prompt(guest);
            }
            0x08 | 0x7f if self.line.pop().is_some() => self.show("\x08 \x08"),
            0x08 | 0x7f => {}
            _ if self.line.len() < LINE => {
                self.line.push(byte);
                self.pending.extend_from_slice(&[byte]);
            }
            _ => {}
        }
        None
    }

    fn command(&mut self, line: &str, guest: &Guest) -> Option<Wish> {
        guest.remember(line);
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        match (command, words.as_slice()) {
            ("" | ":" | "true", _) => {}
            ("echo", _) => {
                let said = rest.trim().replace(['"', '\''], "");
                self.show(&format!("{said}\r\n"));
            }
            ("hostname", _) => self.show(&format!("{}\r\n", guest.name)),
            ("stty", ["size"]) => {
                let (rows, cols) = guest.size();
                self.show(&format!("{rows} {cols}\r\n"));
            }
            ("stty", ["rows", rows, "cols", cols]) => {
                if let (Ok(rows), Ok(cols)) = (rows.parse(), cols.parse()) {
                    guest.resize(rows, cols);
                }
            }
            ("flood", [bytes]) => self.flood = bytes.parse().unwrap_or(0),
            ("poweroff" | "halt", _) => return Some(Wish::Poweroff),
            ("reboot", _) => return Some(Wish::Reboot),
            ("crash", _) => return Some(Wish::Crash),
            ("panic", _) => return Some(Wish::Panic),
            ("exit" | "logout", _) => {
                self.show(&format!("logout\r\n\r\n{} login: root (automatic login)\r\n", guest.name));
            }
            _ if command.starts_with('#') => {}
            _ => self.show(&format!("-bash: {command}: command not found\r\n")),
        }
        None
    }

    fn prompt(&mut self, guest: &Guest) {
        let prompt = format!("root@{}:~# ", guest.name);
        self.show(&prompt);
    }

    fn show(&mut self, text: &str) {
        self.pending.extend_from_slice(text.as_bytes());
    }
}
