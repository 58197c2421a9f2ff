//! The handle of a machine, and what can be seen of its life.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::console::Console;

/// Where a machine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Its life.
    pub run: Run,
    /// How often it was reset from inside (reboot).
    pub resets: u32,
}

/// The life of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// It is being made.
    Starting,
    /// The virtual processor runs (the guest may still boot).
    Running,
    /// It is over, for good.
    Ended(End),
}

/// How a machine ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The guest powered itself off, asked or not.
    Shutdown,
    /// The emulator died or was shot from outside.
    Crashed,
    /// The guest's kernel panicked.
    Panicked,
    /// We ended it: it did not power off within its grace.
    Killed,
}

/// What the handle asks of the task that owns the machine.
#[derive(Debug)]
pub(crate) enum Control {
    /// Press the power button; shoot after the grace.
    PowerDown {
        /// How long the guest may take.
        grace: Duration,
    },
    /// End it at once.
    Kill,
}

/// One machine. Clones are the same machine; dropping them all does not end it.
#[derive(Debug, Clone)]
pub struct Machine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    uid: String,
    address: Ipv4Addr,
    mac: String,
    status: watch::Receiver<Status>,
    console: Console,
    control: mpsc::Sender<Control>,
}

impl Machine {
    pub(crate) fn new(
        uid: String,
        address: Ipv4Addr,
        mac: String,
        status: watch::Receiver<Status>,
        console: Console,
        control: mpsc::Sender<Control>,
    ) -> Self {
        Self(Arc::new(Inner { uid, address, mac, status, console, control }))
    }

    /// Its identity.
    pub fn uid(&self) -> &str {
        &self.0.uid
    }

    /// The loopback address of its own: the agent answers there on [`crate::AGENT_PORT`].
    pub fn address(&self) -> Ipv4Addr {
        self.0.address
    }

    /// The hardware address of its network card.
    pub fn mac(&self) -> &str {
        &self.0.mac
    }

    /// Where it stands now.
    pub fn status(&self) -> Status {
        *self.0.status.borrow()
    }

    /// Follows its life; the last value is always an [`Run::Ended`].
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.0.status.clone()
    }

    /// Its serial line.
    pub fn console(&self) -> &Console {
        &self.0.console
    }

    /// Presses the power button and returns; after `grace` the machine is shot. Nothing happens to one that has ended.
    pub async fn power_down(&self, grace: Duration) {
        // The task that owned the receiver is gone only when the machine has ended: then there is nothing to do.
        let _ended = self.0.control.send(Control::PowerDown { grace }).await;
    }

    /// Ends it at once, and returns when it has ended.
    pub async fn kill(&self) -> End {
        let _ended = self.0.control.send(Control::Kill).await;
        self.ended().await
    }

    /// Waits for the end.
    pub async fn ended(&self) -> End {
        let mut status = self.watch();
        loop {
            if let Run::Ended(end) = status.borrow_and_update().run {
                return end;
            }
            if status.changed().await.is_err() {
                // The owner is gone without a word: the process is being torn down.
                return End::Crashed;
            }
        }
    }
}
