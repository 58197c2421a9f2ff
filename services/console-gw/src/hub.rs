//! All consoles that this replica holds: at most one upstream per machine.
//!
//! Dials of one machine queue up behind each other, so two first viewers cannot throw each other out; dials of different
//! machines do not wait for one another.

use std::{collections::HashMap, sync::Arc};

use lab_domain::{EndReason, MachineName, ObjectUid, SessionId};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Mutex, watch},
};
use tokio_tungstenite::WebSocketStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use crate::console::{Console, Phase, Size};

/// A machine of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The session.
    pub session: SessionId,
    /// Its machine.
    pub machine: MachineName,
}

/// What the hub asks of the world. Production: KubeVirt and readiness; tests: a pipe.
pub trait Machines: Send + Sync + 'static {
    /// The upstream's transport.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Why no upstream was to be had.
    type Error: Send;

    /// Opens the console of exactly the VMI `pinned`.
    fn dial(
        &self,
        key: &Key,
        pinned: &ObjectUid,
    ) -> impl Future<Output = Result<WebSocketStream<Self::Io>, Self::Error>> + Send;

    /// Tells the guest its terminal's size; best effort.
    fn resize(&self, key: &Key, size: Size) -> impl Future<Output = ()> + Send;
}

/// The consoles of this replica. Cheap to clone.
#[derive(Debug)]
pub struct Hub<M> {
    inner: Arc<Inner<M>>,
}

impl<M> Clone for Hub<M> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

#[derive(Debug)]
struct Inner<M> {
    machines: M,
    tracker: TaskTracker,
    shutdown: CancellationToken,
    slots: Mutex<HashMap<Key, Arc<Mutex<Option<Held>>>>>,
}

#[derive(Debug)]
struct Held {
    pinned: ObjectUid,
    console: Arc<Console>,
}

impl<M: Machines> Hub<M> {
    /// An empty hub whose tasks run on `tracker` and end with `shutdown`.
    pub fn new(machines: M, tracker: TaskTracker, shutdown: CancellationToken) -> Self {
        Self { inner: Arc::new(Inner { machines, tracker, shutdown, slots: Mutex::default() }) }
    }

    /// The console of a machine: the one that is held, or a new one.
    ///
    /// # Errors
    /// If the machine's console cannot be opened now.
    pub async fn open(&self, key: &Key, pinned: &ObjectUid) -> Result<Arc<Console>, M::Error> {
        let slot = Arc::clone(self.inner.slots.lock().await.entry(key.clone()).or_default());
        let mut slot = slot.lock().await;
        if let Some(held) = &*slot
            && held.pinned == *pinned
            && held.console.is_open()
        {
            return Ok(Arc::clone(&held.console));
        }
        if let Some(old) = slot.take() {
            old.console.finish(Phase::Lost);
        }
        let upstream = self.inner.machines.dial(key, pinned).await?;
        let shutdown = self.inner.shutdown.child_token();
        let (console, served) = Console::open(Uuid::new_v4().to_string(), upstream, shutdown);
        tracing::info!(session.id = %key.session, machine = %key.machine, console.epoch = console.epoch(), "opened a console");
        self.inner.tracker.spawn(served);
        // Subscribed here, not when the task is first polled: a size told in between must not be missed.
        let (sizes, phase) = (console.sizes(), console.phase());
        self.inner.tracker.spawn(self.clone().follow_size(key.clone(), sizes, phase));
        *slot = Some(Held { pinned: pinned.clone(), console: Arc::clone(&console) });
        Ok(console)
    }

    /// Ends every console of a session, for all its viewers.
    pub async fn end(&self, session: SessionId, reason: Option<EndReason>) {
        let ended: Vec<_> = {
            let mut slots = self.inner.slots.lock().await;
            slots.extract_if(|key, _| key.session == session).map(|(_, slot)| slot).collect()
        };
        for slot in ended {
            // A dial may hold the slot for many seconds; the endings of others do not wait for it.
            self.inner.tracker.spawn(async move {
                if let Some(held) = slot.lock().await.take() {
                    held.console.finish(Phase::Ended(reason));
                }
            });
        }
    }

    /// The sessions of which a console is or was held here.
    pub async fn sessions(&self) -> Vec<SessionId> {
        let mut sessions: Vec<_> = self.inner.slots.lock().await.keys().map(|key| key.session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }

    /// Passes the newest size on, one request at a time, until the console ends.
    async fn follow_size(
        self,
        key: Key,
        mut sizes: watch::Receiver<Option<Size>>,
        mut phase: watch::Receiver<Phase>,
    ) {
        loop {
            tokio::select! {
                changed = sizes.changed() => if changed.is_err() { return },
                _ = phase.wait_for(|p| *p != Phase::Open) => return,
            }
            let size = *sizes.borrow_and_update();
            if let Some(size) = size {
                self.inner.machines.resize(&key, size).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use tokio::{io::DuplexStream, sync::mpsc, time::timeout};
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// Each dial makes a pipe whose far end the test gets.
    struct Pipes {
        dials: AtomicUsize,
        ends: mpsc::UnboundedSender<DuplexStream>,
        sizes: mpsc::UnboundedSender<Size>,
    }

    impl Machines for Pipes {
        type Io = DuplexStream;
        type Error = ();

        async fn dial(&self, _: &Key, _: &ObjectUid) -> Result<WebSocketStream<DuplexStream>, ()> {
            self.dials.fetch_add(1, Ordering::SeqCst);
            let (ours, theirs) = tokio::io::duplex(1024);
            self.ends.send(theirs).map_err(drop)?;
            Ok(WebSocketStream::from_raw_socket(ours, Role::Client, None).await)
        }

        async fn resize(&self, _: &Key, size: Size) {
            self.sizes.send(size).unwrap();
        }
    }

    struct Rig {
        hub: Hub<Pipes>,
        key: Key,
        uid: ObjectUid,
        ends: mpsc::UnboundedReceiver<DuplexStream>,
        sizes: mpsc::UnboundedReceiver<Size>,
    }

    fn rig() -> Rig {
        let (ends, far) = mpsc::unbounded_channel();
        let (told, sizes) = mpsc::unbounded_channel();
        let pipes = Pipes { dials: AtomicUsize::new(0), ends, sizes: told };
        Rig {
            hub: Hub::new(pipes, TaskTracker::new(), CancellationToken::new()),
            key: Key { session: SessionId::generate(), machine: MachineName::new("main").unwrap() },
            uid: ObjectUid::new("uid-1").unwrap(),
            ends: far,
            sizes,
        }
    }

    #[tokio::test]
    async fn two_first_viewers_share_one_upstream() {
        let rig = rig();
        let (a, b) = tokio::join!(rig.hub.open(&rig.key, &rig.uid), rig.hub.open(&rig.key, &rig.uid));
        assert_eq!(a.unwrap().epoch(), b.unwrap().epoch());
        assert_eq!(rig.hub.inner.machines.dials.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_lost_console_gets_a_new_epoch() {
        let mut rig = rig();
        let first = rig.hub.open(&rig.key, &rig.uid).await.unwrap();
        drop(rig.ends.recv().await);
        let mut phase = first.phase();
        timeout(LIMIT, phase.wait_for(|p| *p == Phase::Lost)).await.unwrap().unwrap();
        let second = rig.hub.open(&rig.key, &rig.uid).await.unwrap();
        assert_ne!(first.epoch(), second.epoch());
    }

    #[tokio::test]
    async fn another_vmi_of_the_same_name_is_another_console() {
        let rig = rig();
        let first = rig.hub.open(&rig.key, &rig.uid).await.unwrap();
        let second = rig.hub.open(&rig.key, &ObjectUid::new("uid-2").unwrap()).await.unwrap();
        assert_ne!(first.epoch(), second.epoch());
        assert!(!first.is_open());
    }

    #[tokio::test]
    async fn an_ended_session_leaves_nothing_held() {
        let rig = rig();
        let console = rig.hub.open(&rig.key, &rig.uid).await.unwrap();
        rig.hub.end(SessionId::generate(), None).await;
        assert!(console.is_open());
        rig.hub.end(rig.key.session, Some(EndReason::Idle)).await;
        let mut phase = console.phase();
        let ended = timeout(LIMIT, phase.wait_for(|p| *p != Phase::Open)).await.unwrap().unwrap().clone();
        assert_eq!(ended, Phase::Ended(Some(EndReason::Idle)));
        assert!(rig.hub.sessions().await.is_empty());
    }

    #[tokio::test]
    async fn a_size_is_passed_on() {
        let mut rig = rig();
        let console = rig.hub.open(&rig.key, &rig.uid).await.unwrap();
        console.resize(Size { rows: 40, cols: 120 });
        assert_eq!(timeout(LIMIT, rig.sizes.recv()).await.unwrap(), Some(Size { rows: 40, cols: 120 }));
    }
}
