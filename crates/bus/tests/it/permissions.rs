//! Every identity can do its part and is refused the rest, by a real server with the generated configuration.

use std::{collections::HashMap, io::Write as _, path::PathBuf};

use futures::StreamExt as _;
use lab_bus::{
    Delivery, Disposition, Durable, Timeout,
    identity::{self, User},
};
use lab_domain::EventId;
use lab_proto::subjects::{self, GET_SESSION, GRADE, publishes};
use lab_testkit::wait_for;
use secrecy::ExposeSecret as _;

use super::*;

struct Guarded {
    nats: Nats,
    seeds: HashMap<Identity, PathBuf>,
    _dir: tempfile::TempDir,
}

impl Guarded {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (mut users, mut seeds) = (Vec::new(), HashMap::new());
        for identity in Identity::ALL {
            let (seed, public_key) = identity::new_key();
            assert_eq!(identity::public_key(seed.expose_secret()), Some(public_key.clone()));
            let path = dir.path().join(identity.as_str());
            writeln!(std::fs::File::create(&path).unwrap(), "{}", seed.expose_secret()).unwrap();
            seeds.insert(*identity, path);
            users.push(User { identity: *identity, public_key });
        }
        let nats = Nats::start_with(&identity::authorization(&names(), &users)).await.unwrap();
        let guarded = Self { nats, seeds, _dir: dir };
        let installation = InstallationId(uuid::Uuid::from_u128(1));
        setup::streams(&guarded.bus(Identity::Setup).await, installation, 1).await.unwrap();
        guarded
    }

    async fn bus(&self, identity: Identity) -> Bus {
        let nkey_file = Some(self.seeds[&identity].clone());
        let (url, environment, metrics) = (self.nats.url(), dev(), Metrics::default());
        Bus::connect(Config { url, nkey_file, environment, identity, metrics }).await.unwrap()
    }

    /// A raw client of an identity, with a short patience for requests that are refused.
    async fn raw(&self, identity: Identity) -> async_nats::Client {
        let seed = std::fs::read_to_string(&self.seeds[&identity]).unwrap();
        async_nats::ConnectOptions::with_nkey(seed.trim().to_owned())
            .custom_inbox_prefix(identity.inbox_prefix(&names()))
            .request_timeout(Some(Duration::from_millis(700)))
            .connect(self.nats.url())
            .await
            .unwrap()
    }
}

fn kinds(identity: Identity) -> &'static [&'static str] {
    match identity {
        Identity::Api => publishes::API,
        Identity::Provisioner => publishes::PROVISIONER,
        Identity::Readiness => publishes::READINESS,
        Identity::Reaper => publishes::REAPER,
        Identity::ConsoleGw => publishes::CONSOLE_GW,
        Identity::Setup | Identity::Subscriber => &[],
    }
}

#[tokio::test]
async fn nobody_without_a_key_comes_in() {
    let guarded = Guarded::start().await;
    let (nkey_file, environment, metrics) = (None, dev(), Metrics::default());
    let (url, identity) = (guarded.nats.url(), Identity::Api);
    let refused = Bus::connect(Config { url, nkey_file, environment, identity, metrics }).await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn each_identity_publishes_its_own_events_and_no_others() {
    let guarded = Guarded::start().await;
    for identity in Identity::ALL {
        let client = guarded.raw(*identity).await;
        let requests = subjects::KINDS.iter().map(|kind| {
            let subject = names().every(kind).replace('*', &SessionId::generate().to_string());
            let client = client.clone();
            async move { (*kind, client.request(subject, "x".into()).await.is_ok()) }
        });
        let mut stored: Vec<&str> = futures::future::join_all(requests)
            .await
            .into_iter()
            .filter_map(|(kind, ok)| ok.then_some(kind))
            .collect();
        let mut own = kinds(*identity).to_vec();
        stored.sort_unstable();
        own.sort_unstable();
        assert_eq!(stored, own, "{}", identity.as_str());
    }
}

#[tokio::test]
async fn each_service_consumes_with_its_own_durables() {
    let guarded = Guarded::start().await;
    let root = Root::default();
    let api = guarded.bus(Identity::Api).await;
    let (tell, mut seen) = mpsc::unbounded_channel();
    for identity in Identity::ALL {
        let bus = guarded.bus(*identity).await;
        for name in identity.durables() {
            let (tell, tag) = (tell.clone(), *name);
            let handler = move |_: Delivery| {
                let tell = tell.clone();
                async move {
                    let _ = tell.send(tag);
                    Disposition::Ack
                }
            };
            root.tracker.spawn(bus.consume(Durable::new(name, vec![]), handler, root.token.clone()));
        }
        for name in identity.timer_durables() {
            let (tell, tag) = (tell.clone(), *name);
            let handler = move |_: Timeout| {
                let tell = tell.clone();
                async move {
                    let _ = tell.send(tag);
                    Disposition::Ack
                }
            };
            root.tracker.spawn(bus.consume_timeouts(Durable::new(name, vec![]), handler, root.token.clone()));
        }
    }
    let session = SessionId::generate();
    api.publish(&ready(session)).await.unwrap();
    api.schedule(session, timers::now(), EventId::generate()).await.unwrap();
    let mut heard = Vec::new();
    for _ in 0..5 {
        heard.push(next(&mut seen).await);
    }
    heard.sort_unstable();
    assert_eq!(
        heard,
        ["api-facts", "provisioner-requests", "readiness-provisioned", "reaper-endings", "reaper-timeouts"]
    );
    wait_for("the acks to count", LIMIT, async || {
        api.backlog("api-facts").await.is_ok_and(|b| b.is_past(1) && b.unacked == 0)
    })
    .await;
    assert!(api.backlog("reaper-endings").await.is_err(), "another's durable is none of its business");
}

#[tokio::test]
async fn questions_go_only_where_they_are_for() {
    let guarded = Guarded::start().await;
    let root = Root::default();
    let api = guarded.bus(Identity::Api).await;
    let answer = |_: v1::GetSessionRequest| async { Ok(v1::GetSessionResponse::default()) };
    root.tracker.spawn(api.answer(GET_SESSION, subjects::API_QUEUE, answer, root.token.clone()));
    let readiness = guarded.bus(Identity::Readiness).await;
    let graded = |_: v1::GradeRequest| async { Ok(v1::GradeResponse::default()) };
    root.tracker.spawn(readiness.answer(GRADE, subjects::READINESS_QUEUE, graded, root.token.clone()));
    let patience = Duration::from_millis(700);
    for identity in [Identity::Provisioner, Identity::Readiness, Identity::Reaper, Identity::ConsoleGw] {
        let bus = guarded.bus(identity).await;
        wait_for("an answer of the api", LIMIT, async || {
            let question = v1::GetSessionRequest::default();
            bus.ask::<_, v1::GetSessionResponse>(GET_SESSION, &question, patience).await.is_ok()
        })
        .await;
        let question = v1::GradeRequest::default();
        assert!(bus.ask::<_, v1::GradeResponse>(GRADE, &question, patience).await.is_err());
    }
    wait_for("an answer of readiness", LIMIT, async || {
        let question = v1::GradeRequest::default();
        api.ask::<_, v1::GradeResponse>(GRADE, &question, patience).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn administering_listening_and_foreign_timers_are_refused() {
    let guarded = Guarded::start().await;
    let stream = names().events_stream();
    for identity in Identity::ALL {
        let client = guarded.raw(*identity).await;
        let mut forbidden = vec![
            format!("$JS.API.STREAM.DELETE.{stream}"),
            format!("$JS.API.STREAM.PURGE.{stream}"),
            format!("$JS.API.STREAM.MSG.DELETE.{stream}"),
            format!("$JS.API.CONSUMER.DELETE.{stream}.api-facts"),
            format!("$JS.API.CONSUMER.CREATE.{stream}.somebody"),
            format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.somebody"),
            format!("$JS.API.STREAM.SNAPSHOT.{stream}"),
            "$JS.API.STREAM.CREATE.ANOTHER".to_owned(),
            names().timeout(SessionId::generate()),
            "lab.v1.prod.session.x.session-ready".to_owned(),
        ];
        if *identity != Identity::Api {
            forbidden.push(names().timer(SessionId::generate()));
        }
        if *identity != Identity::Setup {
            forbidden.push(format!("$JS.API.STREAM.UPDATE.{stream}"));
        }
        let requests = forbidden.iter().map(|subject| {
            let client = client.clone();
            async move { (subject, client.request(subject.clone(), "{}".into()).await.is_ok()) }
        });
        for (subject, went_through) in futures::future::join_all(requests).await {
            assert!(!went_through, "{} on {subject}", identity.as_str());
        }
    }
    // The server ends a subscription that is not allowed.
    let reaper = guarded.raw(Identity::Reaper).await;
    for subject in [names().all_events(), format!("{}.>", Identity::Api.inbox_prefix(&names())), ">".into()] {
        let mut listening = reaper.subscribe(subject.clone()).await.unwrap();
        reaper.flush().await.unwrap();
        let api = guarded.bus(Identity::Api).await;
        api.publish(&ready(SessionId::generate())).await.unwrap();
        let heard = tokio::time::timeout(Duration::from_millis(300), listening.next()).await;
        assert!(!matches!(heard, Ok(Some(_))), "{subject}");
    }
}

#[tokio::test]
async fn outsiders_read_the_mirror_without_guest_text_and_dead_letters() {
    let guarded = Guarded::start().await;
    let session = SessionId::generate();
    let failed =
        event::Kind::MachineFailed(v1::MachineFailed { log_tail: "guest".into(), ..Default::default() });
    let failed = event::new(&dev(), &Envelope::bare(session), failed, OffsetDateTime::UNIX_EPOCH);
    guarded.bus(Identity::Readiness).await.publish(&failed).await.unwrap();
    guarded.bus(Identity::Api).await.publish(&ready(session)).await.unwrap();
    let reaper = guarded.raw(Identity::Reaper).await;
    reaper.request(names().dead_letter("reaper-endings"), "x".into()).await.unwrap();
    let js = async_nats::jetstream::new(guarded.raw(Identity::Subscriber).await);
    let mirror = js.get_stream_no_info(names().public_stream()).await.unwrap();
    let consumer =
        mirror.create_consumer(async_nats::jetstream::consumer::pull::Config::default()).await.unwrap();
    let mut messages = consumer.messages().await.unwrap();
    let first = tokio::time::timeout(LIMIT, messages.next()).await.unwrap().unwrap().unwrap();
    assert!(first.subject.ends_with("session-ready"), "{}", first.subject);
    first.ack().await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(500), messages.next()).await.is_err());
    assert!(js.get_stream(names().events_stream()).await.is_err());
}
