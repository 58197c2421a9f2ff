//! Scheduled messages.

use lab_bus::{Disposition, Durable, Timeout, identity::durable};
use lab_domain::EventId;

use super::*;

/// Wall time: the broker compares schedules with its own.
#[expect(clippy::disallowed_methods, reason = "a test against a real broker has its time")]
pub(crate) fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

fn listen(bus: &Bus, root: &Root) -> mpsc::UnboundedReceiver<(Timeout, OffsetDateTime)> {
    let (tell, fired) = mpsc::unbounded_channel();
    let handler = move |timeout: Timeout| {
        let tell = tell.clone();
        async move {
            let _ = tell.send((timeout, now()));
            Disposition::Ack
        }
    };
    let timeouts = Durable::new(durable::REAPER_TIMEOUTS, vec![]);
    root.tracker.spawn(bus.consume_timeouts(timeouts, handler, root.token.clone()));
    fired
}

#[tokio::test]
async fn a_timer_fires_at_its_time_and_a_past_one_soon() {
    let (_nats, bus) = broker().await;
    let root = Root::default();
    let mut fired = listen(&bus, &root);
    let (past, future) = (SessionId::generate(), SessionId::generate());
    let at = now() + Duration::from_secs(2);
    bus.schedule(future, at, EventId::generate()).await.unwrap();
    bus.schedule(past, now() - Duration::from_secs(60), EventId::generate()).await.unwrap();
    assert_eq!(next(&mut fired).await.0.session, past);
    let (timeout, when) = next(&mut fired).await;
    assert_eq!((timeout.session, timeout.attempt), (future, 1));
    assert!(when >= at - Duration::from_millis(50) && when < at + Duration::from_secs(2), "{when} for {at}");
}

#[tokio::test]
async fn a_new_message_id_moves_a_timer_and_a_repeated_one_does_not() {
    let (_nats, bus) = broker().await;
    let root = Root::default();
    let mut fired = listen(&bus, &root);
    let (moved, kept) = (SessionId::generate(), SessionId::generate());
    let (soon, later) = (now() + Duration::from_secs(2), now() + Duration::from_secs(4));
    bus.schedule(moved, soon, EventId::generate()).await.unwrap();
    bus.schedule(moved, later, EventId::generate()).await.unwrap();
    let id = EventId::generate();
    bus.schedule(kept, soon, id).await.unwrap();
    assert!(bus.schedule(kept, later, id).await.unwrap().duplicate);
    assert_eq!(next(&mut fired).await.0.session, kept);
    let (timeout, when) = next(&mut fired).await;
    assert_eq!(timeout.session, moved);
    assert!(when >= later - Duration::from_millis(50));
}

#[tokio::test]
async fn a_fired_timeout_lives_seven_days() {
    let (nats, bus) = broker().await;
    let session = SessionId::generate();
    bus.schedule(session, now(), EventId::generate()).await.unwrap();
    let (_, js) = raw(&nats).await;
    let stream = js.get_stream(names().timers_stream()).await.unwrap();
    let mut fired = None;
    lab_testkit::wait_for("the timer to fire", LIMIT, async || {
        fired = stream.get_last_raw_message_by_subject(&names().timeout(session)).await.ok();
        fired.is_some()
    })
    .await;
    let headers = fired.unwrap().headers;
    assert_eq!(headers.get("Nats-TTL").map(|v| v.as_str()), Some(lab_bus::timer::FIRED_TTL));
    assert!(headers.get("Nats-Msg-Id").is_none());
}
