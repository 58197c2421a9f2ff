//! Against an upstream that speaks real WebSocket frames over a pipe in memory.

use tokio::io::DuplexStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

struct Rig {
    console: Arc<Console>,
    machine: WebSocketStream<DuplexStream>,
    served: tokio::task::JoinHandle<()>,
    shutdown: CancellationToken,
}

async fn rig() -> Rig {
    let (ours, theirs) = tokio::io::duplex(16 * 1024);
    let upstream = WebSocketStream::from_raw_socket(ours, Role::Client, None).await;
    let machine = WebSocketStream::from_raw_socket(theirs, Role::Server, None).await;
    let shutdown = CancellationToken::new();
    let (console, served) = Console::open("epoch-1".into(), upstream, shutdown.clone());
    let tracker = tokio_util::task::TaskTracker::new();
    Rig { console, machine, served: tracker.spawn(served), shutdown }
}

impl Rig {
    async fn prints(&mut self, bytes: impl Into<Bytes>) {
        self.machine.send(Message::Binary(bytes.into())).await.unwrap();
    }

    async fn grown_to(&self, end: u64) {
        let mut growth = self.console.growth();
        timeout(LIMIT, growth.wait_for(|now| *now >= end)).await.expect("the stream grows in time").unwrap();
    }
}

#[tokio::test]
async fn every_viewer_reads_the_same_bytes_from_its_own_offset() {
    let mut rig = rig().await;
    rig.prints("root@main:~# ").await;
    rig.grown_to(13).await;
    let (whole, tail) = (rig.console.join(false, None).unwrap(), rig.console.join(true, Some(9)).unwrap());
    rig.prints(&b"\xff\x00ls"[..]).await;
    rig.grown_to(17).await;
    assert_eq!(whole.read(100).bytes, &b"root@main:~# \xff\x00ls"[..]);
    assert_eq!(tail.read(100), Slice { from: 9, bytes: Bytes::from_static(b":~# \xff\x00ls") });
    assert_eq!(*rig.console.roster().borrow(), Roster { viewers: 2, staff: 1 });
    drop(tail);
    assert_eq!(*rig.console.roster().borrow(), Roster { viewers: 1, staff: 0 });
}

#[tokio::test]
async fn what_is_typed_reaches_the_machine_as_binary_frames_unchanged() {
    let mut rig = rig().await;
    rig.console.type_in(Bytes::from_static(b"\x1b[A\xc3")).await.unwrap();
    let frame = timeout(LIMIT, rig.machine.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(frame, Message::Binary(Bytes::from_static(b"\x1b[A\xc3")));
}

#[tokio::test]
async fn a_viewer_that_does_not_read_holds_the_machine_back_and_loses_nothing() {
    let Rig { console, mut machine, shutdown, .. } = rig().await;
    let seat = console.join(false, None).unwrap();
    let total = 4 * CAPACITY;
    let tracker = tokio_util::task::TaskTracker::new();
    tracker.spawn(async move {
        for i in 0..total / 1024 {
            let line = vec![(i % 251) as u8; 1024];
            if machine.send(Message::Binary(line.into())).await.is_err() {
                return;
            }
        }
        // Kept open until the test is over.
        shutdown.cancelled().await;
    });
    let mut growth = console.growth();
    timeout(LIMIT, growth.wait_for(|end| *end >= LEAD)).await.unwrap().unwrap();
    let mut read = 0;
    while read < total {
        let slice = seat.read(8 * 1024);
        assert_eq!(slice.from, read as u64, "a byte was lost");
        for (i, byte) in slice.bytes.iter().enumerate() {
            assert_eq!(*byte, (((read + i) / 1024) % 251) as u8);
        }
        read += slice.bytes.len();
        assert!(*growth.borrow_and_update() <= read as u64 + CAPACITY as u64);
        if slice.bytes.is_empty() {
            timeout(LIMIT, growth.wait_for(|end| *end > read as u64)).await.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn without_a_viewer_the_machine_is_never_held_back() {
    let mut rig = rig().await;
    for _ in 0..(2 * CAPACITY / 4096) {
        rig.prints(vec![b'x'; 4096]).await;
    }
    rig.grown_to(2 * CAPACITY as u64).await;
    assert_eq!(rig.console.start(), CAPACITY as u64);
}

#[tokio::test]
async fn a_slow_viewer_beside_a_fast_one_is_told_what_it_missed() {
    let mut rig = rig().await;
    let (fast, slow) = (rig.console.join(false, None).unwrap(), rig.console.join(true, None).unwrap());
    let mut sent = 0_u64;
    while sent <= 2 * CAPACITY as u64 {
        rig.prints(vec![b'x'; 4096]).await;
        sent += 4096;
        rig.grown_to(sent).await;
        while !fast.read(64 * 1024).bytes.is_empty() {}
    }
    assert_eq!(slow.read(1).from, sent - CAPACITY as u64);
}

#[tokio::test]
async fn a_machine_that_hangs_up_ends_its_epoch() {
    let rig = rig().await;
    drop(rig.machine);
    timeout(LIMIT, rig.served).await.unwrap().unwrap();
    assert_eq!(*rig.console.phase().borrow(), Phase::Lost);
    assert_eq!(rig.console.type_in(Bytes::from_static(b"x")).await, Err(Gone));
}

#[tokio::test]
async fn the_first_end_stands_and_closes_the_upstream() {
    let mut rig = rig().await;
    rig.console.finish(Phase::Ended(Some(EndReason::Expired)));
    rig.console.finish(Phase::Lost);
    let frame = timeout(LIMIT, rig.machine.next()).await.unwrap();
    assert!(matches!(frame, Some(Ok(Message::Close(_))) | None), "{frame:?}");
    drop(rig.machine);
    timeout(LIMIT, rig.served).await.unwrap().unwrap();
    assert_eq!(*rig.console.phase().borrow(), Phase::Ended(Some(EndReason::Expired)));
}

#[tokio::test]
async fn places_are_limited_and_a_viewer_that_leaves_makes_room() {
    let rig = rig().await;
    let mut seats: Vec<_> = (0..MAX_VIEWERS).map(|_| rig.console.join(false, None).unwrap()).collect();
    assert!(!rig.console.has_room());
    assert_eq!(rig.console.join(false, None).err(), Some(Full));
    drop(seats.pop());
    assert!(rig.console.join(false, None).is_ok());
}

#[tokio::test]
async fn shutdown_is_told_as_such() {
    let rig = rig().await;
    rig.shutdown.cancel();
    drop(rig.machine);
    timeout(LIMIT, rig.served).await.unwrap().unwrap();
    assert_eq!(*rig.console.phase().borrow(), Phase::ShuttingDown);
}
