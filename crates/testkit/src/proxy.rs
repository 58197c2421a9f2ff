//! A TCP proxy that can be cut: every connection through it ends at once, and none is let in until it is mended.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Result;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// A proxy on a loopback port.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    open: Arc<watch::Sender<bool>>,
    stop: CancellationToken,
}

impl Proxy {
    /// Forwards to `target`, for example `127.0.0.1:4222`.
    ///
    /// # Errors
    /// If no port can be listened on.
    pub async fn start(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let open = Arc::new(watch::Sender::new(true));
        let stop = CancellationToken::new();
        let tracker = TaskTracker::new();
        let (gate, token) = (open.subscribe(), stop.clone());
        drop(tracker.clone().spawn(async move {
            while let Some(Ok((inbound, _))) = token.run_until_cancelled(listener.accept()).await {
                let mut gate = gate.clone();
                if !*gate.borrow_and_update() {
                    continue;
                }
                let token = token.clone();
                drop(tracker.spawn(async move {
                    tokio::select! {
                        () = token.cancelled() => {}
                        _ = gate.wait_for(|open| !open) => {}
                        () = forward(inbound, target) => {}
                    }
                }));
            }
        }));
        Ok(Self { address, open, stop })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends every connection and lets none in.
    pub fn cut(&self) {
        self.open.send_replace(false);
    }

    /// Lets connections in again.
    pub fn mend(&self) {
        self.open.send_replace(true);
    }
}

async fn forward(mut inbound: TcpStream, target: SocketAddr) {
    if let Ok(mut outbound) = TcpStream::connect(target).await {
        // An end of either side is the end of the connection, whatever the reason.
        let _ = copy_bidirectional(&mut inbound, &mut outbound).await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
