//! Questions and answers: request-reply, any replica answers.
//!
//! No answer means nothing about what was asked. Who answers replies only into an inbox: a question whose reply
//! subject is a stream's would make the answer an event.

use std::time::Duration;

use async_nats::{HeaderMap, Message as Wire, client::RequestErrorKind};
use futures::StreamExt as _;
use lab_proto::Message;
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

use crate::{Bus, Error, trace};

/// Header of an answer that is a refusal: its value is the code, and there is no payload.
pub const ERROR_HEADER: &str = "Lab-Error";
/// Answers in work at once, per question and replica.
const MAX_ANSWERS: usize = 256;
/// What cannot be answered in this time at shutdown stays unanswered.
const DRAIN: Duration = Duration::from_secs(5);

/// Why a question is not answered; the text is a machine-readable code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub &'static str);

impl Bus {
    /// Asks, and waits for one answer until `limit` has passed.
    ///
    /// # Errors
    /// If nobody answers in time, or the answer is a refusal or malformed.
    pub async fn ask<Q: Message, A: Message + Default>(
        &self,
        question: &'static str,
        request: &Q,
        limit: Duration,
    ) -> Result<A, Error> {
        let mut headers = HeaderMap::new();
        if let Some(context) = trace::Context::current() {
            headers.insert(trace::TRACEPARENT, context.child().to_string());
        }
        let request = async_nats::Request::new()
            .headers(headers)
            .payload(request.encode_to_vec().into())
            .timeout(Some(limit));
        let answer = self.client().send_request(self.subjects().ask(question), request).await;
        let answer = answer.map_err(|source| Error::NoAnswer { question, source: Box::new(source) })?;
        if let Some(code) = answer.headers.as_ref().and_then(|h| h.get(ERROR_HEADER)) {
            return Err(Error::Refused { question, code: code.as_str().chars().take(80).collect() });
        }
        A::decode(answer.payload).map_err(|source| Error::Undecodable { question, source })
    }

    /// Answers a question until `shutdown`, sharing the work with the other replicas of `queue`. Spawn it on the
    /// service's tracker.
    pub fn answer<Q, A, F, Fut>(
        &self,
        question: &'static str,
        queue: &'static str,
        handler: F,
        shutdown: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        Q: Message + Default + 'static,
        A: Message + 'static,
        F: Fn(Q) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<A, Refusal>> + Send + 'static,
    {
        let bus = self.clone();
        async move {
            let subject = bus.subjects().ask(question);
            let mut questions = loop {
                match bus.client().queue_subscribe(subject.clone(), queue.to_owned()).await {
                    Ok(subscription) => break subscription,
                    Err(error) => {
                        tracing::warn!(question, error = %error, "cannot subscribe to a question yet");
                        let pause = tokio::time::sleep(Duration::from_secs(1));
                        if shutdown.run_until_cancelled(pause).await.is_none() {
                            return;
                        }
                    }
                }
            };
            let tasks = TaskTracker::new();
            let slots = std::sync::Arc::new(Semaphore::new(MAX_ANSWERS));
            while let Some(Some(message)) = shutdown.run_until_cancelled(questions.next()).await {
                // Beyond what can be in work the asker hears at once that it must come again.
                let slot = std::sync::Arc::clone(&slots).try_acquire_owned();
                let (bus, handler) = (bus.clone(), handler.clone());
                tasks.spawn(async move {
                    match slot {
                        Ok(_slot) => bus.answer_one(question, message, handler).await,
                        Err(_) => bus.reply::<A>(question, &message, Err(Refusal("busy"))).await,
                    }
                });
            }
            if let Err(error) = questions.unsubscribe().await {
                tracing::debug!(question, error = %error, "unsubscribe");
            }
            tasks.close();
            if tokio::time::timeout(DRAIN, tasks.wait()).await.is_err() {
                tracing::warn!(question, "questions were left unanswered at shutdown");
            }
        }
    }

    async fn answer_one<Q, A, F, Fut>(&self, question: &'static str, message: Wire, handler: F)
    where
        Q: Message + Default,
        A: Message,
        F: Fn(Q) -> Fut,
        Fut: Future<Output = Result<A, Refusal>>,
    {
        let answer = match Q::decode(message.payload.clone()) {
            Ok(request) => {
                let span = tracing::info_span!("answer", question);
                let work = handler(request).instrument(span);
                match trace::received(message.headers.as_ref(), None) {
                    Some(context) => trace::scope(context, work).await,
                    None => work.await,
                }
            }
            Err(_) => Err(Refusal("malformed")),
        };
        self.reply(question, &message, answer).await;
    }

    async fn reply<A: Message>(&self, question: &'static str, message: &Wire, answer: Result<A, Refusal>) {
        let Some(inbox) = message.reply.clone().filter(|r| r.starts_with("_INBOX")) else {
            tracing::warn!(question, "a question without an inbox is left unanswered");
            return;
        };
        let sent = match answer {
            Ok(answer) => self.client().publish(inbox, answer.encode_to_vec().into()).await,
            Err(Refusal(code)) => {
                let mut headers = HeaderMap::new();
                headers.insert(ERROR_HEADER, code);
                self.client().publish_with_headers(inbox, headers, bytes::Bytes::new()).await
            }
        };
        if let Err(error) = sent {
            tracing::warn!(question, error = %error, "an answer could not be sent");
        }
    }
}

impl Error {
    /// Whether nobody at all listened for the question, which is known at once.
    #[must_use]
    pub fn is_unheard(&self) -> bool {
        let Self::NoAnswer { source, .. } = self else { return false };
        source
            .downcast_ref::<async_nats::RequestError>()
            .is_some_and(|e| e.kind() == RequestErrorKind::NoResponders)
    }
}
