//! Ends, timers and ghosts.

use std::time::Duration;

use lab_bus::event::Kind;
use lab_domain::{EventId, InstallationId, SessionId, Verdict};
use lab_kubevirt::Installation;
use lab_proto::{convert, v1};
use lab_testkit::wait_for;

use crate::world::{LIMIT, World, dev, installation, now};

const GHOSTS: [&str; 2] = ["--ghost-grace=500ms", "--ghost-interval=100ms"];

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_session_leaves_nothing_and_its_twin_loses_nothing() {
    let world = World::start().await;
    let _reaper = world.reaper(&[]);
    let (session, neighbour) = (world.session().await, world.session().await);
    // The same environment's name, another installation: somebody else's.
    let other = Installation { environment: dev(), id: InstallationId(uuid::Uuid::from_u128(2)) };
    world.create(SessionId::generate(), &other).await;
    let theirs = world.objects(&other).await;
    assert_eq!(theirs.len(), 4, "{theirs:?}");

    world.end(session, false).await;
    wait_for("the report", LIMIT, async || !world.book.facts(session, "session-reaped").is_empty()).await;
    let Kind::SessionReaped(reaped) = world.book.facts(session, "session-reaped").remove(0) else { panic!() };
    assert_eq!(reaped.ending_version, 5);
    let left = world.objects(&installation()).await;
    assert_eq!(left.len(), 4, "{left:?}");
    assert!(left.iter().all(|name| name.contains(&neighbour.to_string())), "{left:?}");
    assert_eq!(world.objects(&other).await, theirs);
    assert_eq!(world.book.state(neighbour), v1::SessionState::Ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reaper_that_died_is_continued_by_the_next_from_the_list() {
    let mut world = World::start().await;
    let session = world.session().await;
    // The event is heard by nobody; the list tells.
    world.book.change(session, |known| {
        known.state = v1::SessionState::Ending as i32;
        known.ending_at = Some(convert::timestamp(now()));
        known.ending_version = 9;
    });
    // Nor does the cluster answer at first.
    world.cluster.kill();
    let first = world.reaper(&["--look-interval=200ms"]);
    first.token.cancel();
    world.cluster.restart().await.unwrap();
    let _second = world.reaper(&["--look-interval=200ms"]);
    wait_for("the report", LIMIT, async || !world.book.facts(session, "session-reaped").is_empty()).await;
    assert_eq!(world.objects(&installation()).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_found_after_the_end_is_deleted_once_more() {
    let world = World::start().await;
    let _reaper = world.reaper(&[]);
    let session = world.session().await;
    world.end(session, false).await;
    wait_for("the end", LIMIT, async || world.book.state(session) == v1::SessionState::Ended).await;
    world.create(session, &installation()).await;
    world.end(session, true).await;
    wait_for("nothing to be left", LIMIT, async || world.objects(&installation()).await.is_empty()).await;
    wait_for("the report", LIMIT, async || world.book.facts(session, "session-reaped").len() == 2).await;
    let Kind::SessionReaped(last) = world.book.facts(session, "session-reaped").remove(1) else { panic!() };
    assert_eq!(last.ending_version, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_is_reported_when_the_deadline_that_stands_is_due() {
    let world = World::start().await;
    let _reaper = world.reaper(&[]);
    let session = world.session().await;
    // The timer was set for now; the session was extended by two seconds meanwhile.
    let due = now() + Duration::from_secs(2);
    world.book.change(session, |known| known.expires_at = Some(convert::timestamp(due)));
    world.bus.schedule(session, now(), EventId::generate()).await.unwrap();
    wait_for("the report", LIMIT, async || !world.book.facts(session, "deadline-reached").is_empty()).await;
    assert!(now() >= due, "not before it is due");
    let Kind::DeadlineReached(reached) = world.book.facts(session, "deadline-reached").remove(0) else {
        panic!()
    };
    assert_eq!(reached.deadline(), v1::Deadline::Expiry);
    assert_eq!(reached.value, Some(convert::timestamp(due)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ghost_goes_only_when_the_api_disowns_it() {
    let world = World::start().await;
    let ghost = SessionId::generate();
    world.create(ghost, &installation()).await;
    let lives = world.session().await;
    let _reaper = world.reaper(&GHOSTS);
    // No answer, then hold: both delete nothing, however long it takes.
    for verdict in [None, Some(Verdict::Hold)] {
        world.book.set_verdict(verdict);
        let begun = tokio::time::Instant::now();
        wait_for("a few sweeps", LIMIT, async || begun.elapsed() > Duration::from_secs(1)).await;
        assert_eq!(world.objects(&installation()).await.len(), 8, "{verdict:?}");
    }
    world.book.set_verdict(Some(Verdict::Unwanted));
    wait_for("the ghost to go", LIMIT, async || world.objects(&installation()).await.len() == 4).await;
    let left = world.objects(&installation()).await;
    assert!(left.iter().all(|name| name.contains(&lives.to_string())), "{left:?}");
    wait_for("its reports", LIMIT, async || world.book.facts(ghost, "ghost-reaped").len() >= 2).await;
    assert_eq!(world.book.facts(lives, "ghost-reaped"), []);
}
