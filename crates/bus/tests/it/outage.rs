//! The broker goes away and comes back.

use lab_bus::{Delivery, Disposition, Durable, identity::durable};
use lab_testkit::{Proxy, wait_for};

use super::*;

#[tokio::test]
async fn a_publish_during_an_outage_is_stored_once() {
    let (nats, direct) = broker().await;
    let proxy = Proxy::start(([127, 0, 0, 1], nats.port()).into()).await.unwrap();
    let bus = connect(format!("nats://{}", proxy.address()), Identity::Api).await;
    proxy.cut();
    wait_for("the cut to be noticed", LIMIT, async || !bus.is_connected()).await;
    let event = ready(SessionId::generate());
    let mend = async {
        // Long enough for the first try to time out, so that the message goes twice.
        tokio::time::sleep(Duration::from_secs(6)).await;
        proxy.mend();
    };
    let (stored, ()) = tokio::join!(bus.publish(&event), mend);
    let stored = stored.unwrap();
    let again = direct.publish(&event).await.unwrap();
    assert_eq!((again.sequence, again.duplicate), (stored.sequence, true));
    assert_eq!(direct.last_sequence().await.unwrap(), 1);
}

#[tokio::test]
async fn consumers_timers_and_the_installation_survive_a_killed_broker() {
    let (mut nats, bus) = broker().await;
    let root = Root::default();
    let (tell, mut seen) = mpsc::unbounded_channel();
    let handler = move |delivery: Delivery| {
        let tell = tell.clone();
        async move {
            let _ = tell.send(delivery.session);
            Disposition::Ack
        }
    };
    let durable = Durable::new(durable::API_FACTS, vec![]);
    root.tracker.spawn(bus.consume(durable, handler, root.token.clone()));
    let first = SessionId::generate();
    bus.publish(&ready(first)).await.unwrap();
    assert_eq!(next(&mut seen).await, first);
    let (tell, mut fired) = mpsc::unbounded_channel();
    let handler = move |timeout: lab_bus::Timeout| {
        let tell = tell.clone();
        async move {
            let _ = tell.send(timeout.session);
            Disposition::Ack
        }
    };
    let timeouts = Durable::new(durable::REAPER_TIMEOUTS, vec![]);
    root.tracker.spawn(bus.consume_timeouts(timeouts, handler, root.token.clone()));
    let at = timers::now() + Duration::from_secs(3);
    bus.schedule(first, at, lab_domain::EventId::generate()).await.unwrap();
    nats.kill();
    nats.restart().await.unwrap();
    let second = SessionId::generate();
    bus.publish(&ready(second)).await.unwrap();
    // The first may come again: an ack is not synced to disk before it is sent.
    while next(&mut seen).await != second {}
    assert_eq!(next(&mut fired).await, first);
    let installation = bus.installation().await.unwrap().unwrap();
    assert_eq!(installation.0.as_u128(), 1);
}

#[tokio::test]
async fn set_up_twice_changes_nothing_and_another_installation_is_refused() {
    let (_nats, bus) = broker().await;
    let ours = InstallationId(uuid::Uuid::from_u128(1));
    bus.publish(&ready(SessionId::generate())).await.unwrap();
    setup::streams(&bus, ours, 1).await.unwrap();
    assert_eq!(bus.last_sequence().await.unwrap(), 1);
    let theirs = InstallationId(uuid::Uuid::from_u128(2));
    let refused = setup::streams(&bus, theirs, 1).await.unwrap_err();
    assert_eq!(refused.class(), lab_bus::Class::Conflict);
    assert_eq!(bus.installation().await.unwrap(), Some(ours));
}

#[tokio::test]
async fn a_service_that_starts_before_its_broker_waits_for_it() {
    let mut nats = Nats::start().await.unwrap();
    let url = nats.url();
    nats.kill();
    let (bus, restarted) = tokio::join!(connect(url, Identity::Api), nats.restart());
    restarted.unwrap();
    assert!(bus.is_connected());
}
