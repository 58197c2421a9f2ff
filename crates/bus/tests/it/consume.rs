//! Durables: redelivery, dead letters, deletion, shutdown.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use lab_bus::{Delivery, Disposition, Durable, identity::durable};
use lab_domain::SessionId;
use lab_proto::Message as _;
use lab_testkit::wait_for;
use tokio::sync::mpsc;

use super::*;

fn facts() -> Durable {
    Durable::new(durable::API_FACTS, vec![])
}

/// A handler that tells every delivery and answers as `answer` says.
fn telling(
    tell: mpsc::UnboundedSender<Delivery>,
    answer: impl Fn(&Delivery) -> Disposition + Clone + Send + Sync + 'static,
) -> impl lab_bus::Handler<Delivery> {
    move |delivery: Delivery| {
        let disposition = answer(&delivery);
        let sent = tell.send(delivery);
        async move {
            drop(sent);
            disposition
        }
    }
}

#[tokio::test]
async fn a_message_put_back_comes_again_after_its_delay_and_an_acked_one_never() {
    let (_nats, bus) = broker().await;
    let root = Root::default();
    let (tell, mut seen) = mpsc::unbounded_channel();
    let answer = |d: &Delivery| match d.attempt {
        1 => Disposition::Nak(Duration::from_millis(300)),
        _ => Disposition::Ack,
    };
    root.tracker.spawn(bus.consume(facts(), telling(tell, answer), root.token.clone()));
    let session = SessionId::generate();
    bus.publish(&ready(session)).await.unwrap();
    let first = next(&mut seen).await;
    let put_back = std::time::Instant::now();
    let second = next(&mut seen).await;
    assert!(put_back.elapsed() >= Duration::from_millis(250));
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert_eq!((first.id, first.session, first.sequence), (second.id, session, second.sequence));
    wait_for("an empty backlog", LIMIT, async || {
        bus.backlog(durable::API_FACTS).await.is_ok_and(|b| b.is_past(1) && b.unacked == 0)
    })
    .await;
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn garbage_becomes_a_dead_letter_and_the_next_message_is_handled() {
    let (nats, bus) = broker().await;
    let root = Root::default();
    let (client, js) = raw(&nats).await;
    let mut letters = client.subscribe(names().all_dead_letters()).await.unwrap();
    let session = SessionId::generate();
    let own = bus.address(&ready(session)).unwrap().0;
    js.publish(own.clone(), "\u{1}\u{2}no event".into()).await.unwrap().await.unwrap();
    // A true event on the subject of another session.
    let foreign = bus.address(&ready(SessionId::generate())).unwrap().0;
    js.publish(foreign.clone(), ready(session).encode_to_vec().into()).await.unwrap().await.unwrap();
    bus.publish(&ready(session)).await.unwrap();
    let (tell, mut seen) = mpsc::unbounded_channel();
    root.tracker.spawn(bus.consume(facts(), telling(tell, |_| Disposition::Ack), root.token.clone()));
    assert_eq!(next(&mut seen).await.session, session);
    let mut buried = Vec::new();
    for _ in 0..2 {
        let letter = tokio::time::timeout(LIMIT, letters.next()).await.unwrap().unwrap();
        assert_eq!(letter.subject.as_str(), names().dead_letter(durable::API_FACTS));
        buried.push(letter.headers.unwrap().get("Lab-Subject").unwrap().to_string());
    }
    buried.sort();
    let mut want = vec![own, foreign];
    want.sort();
    assert_eq!(buried, want);
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn a_handler_that_gives_up_leaves_a_dead_letter_with_its_reason() {
    let (nats, bus) = broker().await;
    let root = Root::default();
    let (client, _) = raw(&nats).await;
    let mut letters = client.subscribe(names().all_dead_letters()).await.unwrap();
    let (tell, mut seen) = mpsc::unbounded_channel();
    let answer = |_: &Delivery| Disposition::Term("no such lab\nanywhere".into());
    root.tracker.spawn(bus.consume(facts(), telling(tell, answer), root.token.clone()));
    let event = ready(SessionId::generate());
    bus.publish(&event).await.unwrap();
    next(&mut seen).await;
    let letter = tokio::time::timeout(LIMIT, letters.next()).await.unwrap().unwrap();
    assert_eq!(letter.payload, event.encode_to_vec());
    assert_eq!(letter.headers.unwrap().get("Lab-Reason").unwrap().as_str(), "no such lab anywhere");
    wait_for("the message to be gone", LIMIT, async || {
        bus.backlog(durable::API_FACTS).await.is_ok_and(|b| b.pending == 0 && b.unacked == 0)
    })
    .await;
}

#[tokio::test]
async fn an_unknown_kind_waits_for_a_newer_replica() {
    let (nats, bus) = broker().await;
    let root = Root::default();
    let (client, js) = raw(&nats).await;
    let mut letters = client.subscribe(names().all_dead_letters()).await.unwrap();
    let session = SessionId::generate();
    let mut event = ready(session);
    event.event = None;
    let subject = bus.address(&ready(session)).unwrap().0.replace("session-ready", "session-frozen");
    js.publish(subject, event.encode_to_vec().into()).await.unwrap().await.unwrap();
    let (tell, mut seen) = mpsc::unbounded_channel();
    root.tracker.spawn(bus.consume(facts(), telling(tell, |_| Disposition::Ack), root.token.clone()));
    bus.publish(&ready(session)).await.unwrap();
    next(&mut seen).await;
    wait_for("it to rest unacked", LIMIT, async || {
        bus.backlog(durable::API_FACTS).await.is_ok_and(|b| b.pending == 0 && b.unacked == 1)
    })
    .await;
    root.stop().await;
    assert!(tokio::time::timeout(Duration::from_millis(200), letters.next()).await.is_err());
}

#[tokio::test]
async fn a_panic_puts_the_message_back_and_the_loop_goes_on() {
    let (_nats, bus) = broker().await;
    let root = Root::default();
    let (tell, mut seen) = mpsc::unbounded_channel();
    let bad = SessionId::generate();
    let answer = move |d: &Delivery| {
        assert_ne!(d.session, bad, "made to panic");
        Disposition::Ack
    };
    let handler = move |delivery: Delivery| {
        let tell = tell.clone();
        async move {
            let disposition = answer(&delivery);
            let _ = tell.send(delivery);
            disposition
        }
    };
    root.tracker.spawn(bus.consume(facts(), handler, root.token.clone()));
    bus.publish(&ready(bad)).await.unwrap();
    let good = SessionId::generate();
    bus.publish(&ready(good)).await.unwrap();
    assert_eq!(next(&mut seen).await.session, good);
}

#[tokio::test]
async fn a_deleted_consumer_is_made_again() {
    let (nats, bus) = broker().await;
    let root = Root::default();
    let (tell, mut seen) = mpsc::unbounded_channel();
    root.tracker.spawn(bus.consume(facts(), telling(tell, |_| Disposition::Ack), root.token.clone()));
    bus.publish(&ready(SessionId::generate())).await.unwrap();
    next(&mut seen).await;
    let (_, js) = raw(&nats).await;
    js.delete_consumer_from_stream(durable::API_FACTS, names().events_stream()).await.unwrap();
    let session = SessionId::generate();
    bus.publish(&ready(session)).await.unwrap();
    // What was acked comes again with the new consumer: at least once, always.
    while next(&mut seen).await.session != session {}
}

#[tokio::test]
async fn at_shutdown_what_was_not_begun_or_cannot_finish_is_put_back_at_once() {
    let (_nats, bus) = broker().await;
    let root = Root::default();
    let begun = Arc::new(tokio::sync::Semaphore::new(0));
    let tell = Arc::clone(&begun);
    let stuck = move |_: Delivery| {
        tell.add_permits(1);
        std::future::pending::<Disposition>()
    };
    let durable = Durable { max_in_flight: 2, ack_wait: Duration::from_secs(600), ..facts() };
    for _ in 0..5 {
        bus.publish(&ready(SessionId::generate())).await.unwrap();
    }
    root.tracker.spawn(bus.consume(durable.clone(), stuck, root.token.clone()));
    drop(tokio::time::timeout(LIMIT, begun.acquire_many(2)).await.unwrap().unwrap());
    root.stop().await;
    // The next replica gets all five long before ack_wait.
    let (root, (tell, mut seen)) = (Root::default(), mpsc::unbounded_channel());
    root.tracker.spawn(bus.consume(durable, telling(tell, |_| Disposition::Ack), root.token.clone()));
    for _ in 0..5 {
        next(&mut seen).await;
    }
}

#[tokio::test]
async fn a_handler_runs_in_the_trace_of_the_session() {
    let (_nats, bus) = broker().await;
    let root = Root::default();
    let (tell, mut seen) = mpsc::unbounded_channel();
    let handler = move |_: Delivery| {
        let tell = tell.clone();
        async move {
            let _ = tell.send(lab_bus::trace::Context::current());
            Disposition::Ack
        }
    };
    root.tracker.spawn(bus.consume(facts(), handler, root.token.clone()));
    let session = SessionId::generate();
    bus.publish(&ready(session)).await.unwrap();
    let context = next(&mut seen).await.unwrap();
    assert_eq!(context.trace_id(), session.0.simple().to_string());
}

#[tokio::test]
async fn the_tail_reads_from_a_sequence_on_and_waits_for_more() {
    let (_nats, bus) = broker().await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(SessionId::generate());
        bus.publish(&ready(*sessions.last().unwrap())).await.unwrap();
    }
    let mut tail = bus.tail(1).await.unwrap();
    for (sequence, session) in [(2, sessions[1]), (3, sessions[2])] {
        let (at, _, event) = tail.next().await.unwrap();
        assert_eq!((at, event.session_id), (sequence, session.to_string()));
    }
    let late = ready(SessionId::generate());
    let (got, published) = tokio::join!(tail.next(), bus.publish(&late));
    published.unwrap();
    assert_eq!(got.unwrap().2, late);
}
