//! The serial console over a WebSocket: binary frames are raw bytes both ways, text frames are dropped.
//!
//! A client that is thrown out, or whose machine ends, sees its TCP connection end without a close frame; one that
//! closes gets its close frame back; one that sends nonsense gets close 1002. All as seen on KubeVirt.

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use futures::{SinkExt as _, StreamExt as _};
use lab_machine::Attached;
use tokio_util::sync::CancellationToken;

/// A client broke the protocol.
const PROTOCOL_ERROR: u16 = 1002;

/// Carries bytes until one side ends.
pub(super) async fn carry(socket: WebSocket, line: Attached, shutdown: &CancellationToken) {
    let (mut output, input) = line.split();
    let (mut to_client, mut from_client) = socket.split();
    // Each direction waits only for its own other end: a client that does not read can still be closed.
    let down = async {
        while let Some(bytes) = output.recv().await {
            if to_client.send(Message::Binary(bytes)).await.is_err() {
                return None;
            }
        }
        None
    };
    let up = async {
        loop {
            match from_client.next().await {
                Some(Ok(Message::Binary(bytes))) => {
                    if input.send(bytes).await.is_err() {
                        return None;
                    }
                }
                // Pings are answered by the library; KubeVirt drops text.
                Some(Ok(Message::Text(_) | Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(frame))) => return Some(frame),
                Some(Err(error)) => {
                    let reason = Utf8Bytes::from(error.to_string());
                    return Some(Some(CloseFrame { code: PROTOCOL_ERROR, reason }));
                }
                None => return None,
            }
        }
    };
    let farewell = tokio::select! {
        end = down => end,
        end = up => end,
        () = shutdown.cancelled() => None,
    };
    if let Some(frame) = farewell {
        // The client may be gone already.
        let _gone = to_client.send(Message::Close(frame)).await;
        let _gone = to_client.flush().await;
    }
}
