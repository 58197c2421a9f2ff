//! Questions and answers.

use lab_bus::{Error, Refusal};
use lab_proto::subjects::{API_QUEUE, CLASSIFY_OBJECT, GET_SESSION, LIST_SESSIONS};

use super::*;

async fn ask(bus: &Bus, session: &str) -> Result<v1::GetSessionResponse, Error> {
    let request = v1::GetSessionRequest { session_id: session.into() };
    bus.ask(GET_SESSION, &request, Duration::from_secs(2)).await
}

#[tokio::test]
async fn a_question_gets_an_answer_a_refusal_or_none() {
    let (nats, bus) = broker().await;
    let root = Root::default();
    let unheard = ask(&bus, "x").await.unwrap_err();
    assert!(matches!(unheard, Error::NoAnswer { .. }) && unheard.is_unheard());
    let answer = |request: v1::GetSessionRequest| async move {
        match request.session_id.as_str() {
            "slow" => std::future::pending().await,
            "bad" => Err(Refusal("cluster_unknown")),
            id => Ok(v1::GetSessionResponse {
                session: Some(v1::Session { session_id: id.into(), ..Default::default() }),
            }),
        }
    };
    root.tracker.spawn(bus.answer(GET_SESSION, API_QUEUE, answer, root.token.clone()));
    let asker = connect(nats.url(), Identity::Reaper).await;
    lab_testkit::wait_for("somebody to listen", LIMIT, async || ask(&asker, "x").await.is_ok()).await;
    assert_eq!(ask(&asker, "s1").await.unwrap().session.unwrap().session_id, "s1");
    assert!(
        matches!(ask(&asker, "bad").await, Err(Error::Refused { code, .. }) if code == "cluster_unknown")
    );
    let slow = ask(&asker, "slow").await.unwrap_err();
    assert!(matches!(slow, Error::NoAnswer { .. }) && !slow.is_unheard());
    // Bytes that are no question.
    let (client, _) = raw(&nats).await;
    let answer = client.request(names().ask(GET_SESSION), "\u{ff}\u{ff}".into()).await.unwrap();
    assert_eq!(answer.headers.unwrap().get(lab_bus::ERROR_HEADER).unwrap().as_str(), "malformed");
}

#[tokio::test]
async fn no_answer_becomes_an_event() {
    let (nats, bus) = broker().await;
    let root = Root::default();
    let answer = |_: v1::ListSessionsRequest| async { Ok(v1::ListSessionsResponse::default()) };
    root.tracker.spawn(bus.answer(LIST_SESSIONS, API_QUEUE, answer, root.token.clone()));
    let classify = |_: v1::ClassifyObjectRequest| async { Ok(v1::ClassifyObjectResponse { verdict: 1 }) };
    root.tracker.spawn(bus.answer(CLASSIFY_OBJECT, API_QUEUE, classify, root.token.clone()));
    let request = v1::ListSessionsRequest::default();
    lab_testkit::wait_for("somebody to listen", LIMIT, async || {
        bus.ask::<_, v1::ListSessionsResponse>(LIST_SESSIONS, &request, LIMIT).await.is_ok()
    })
    .await;
    let (client, _) = raw(&nats).await;
    let forged = bus.address(&ready(SessionId::generate())).unwrap().0;
    client.publish_with_reply(names().ask(CLASSIFY_OBJECT), forged, "".into()).await.unwrap();
    client.flush().await.unwrap();
    let request = v1::ClassifyObjectRequest::default();
    let answer = bus.ask::<_, v1::ClassifyObjectResponse>(CLASSIFY_OBJECT, &request, LIMIT).await;
    assert_eq!(answer.unwrap().verdict, 1);
    root.stop().await;
    assert_eq!(bus.last_sequence().await.unwrap(), 0);
}
