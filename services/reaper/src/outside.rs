//! Everything outside this process that the reaper touches, behind one trait: the real thing, and a stand-in in the tests.

use std::time::Duration;

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Preconditions},
    core::ObjectMeta,
};
use lab_bus::{Bus, Envelope, event};
use lab_domain::{ObjectUid, SessionId, Verdict};
use lab_kit::Clock;
use lab_kubevirt::{Installation, kinds::Kind};
use lab_proto::{
    convert,
    subjects::{CLASSIFY_OBJECT, GET_SESSION, LIST_SESSIONS},
    v1,
};
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::{decide::Object, error::Error};

/// No request to the cluster takes longer.
const REQUEST: Duration = Duration::from_secs(5);
/// No question takes longer.
const ASK: Duration = Duration::from_secs(3);
/// Objects per page of a list.
const PAGE: u32 = 500;

/// A fresh look over every kind.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    /// When the first list was begun.
    pub(crate) began: Instant,
    pub(crate) objects: Vec<Object>,
    /// Every kind that the cluster serves answered.
    pub(crate) is_complete: bool,
}

impl Snapshot {
    /// The part of it that `belongs`.
    pub(crate) fn clone_of(&self, belongs: impl Fn(&Object) -> bool) -> Self {
        let objects = self.objects.iter().filter(|object| belongs(object)).cloned().collect();
        Self { began: self.began, objects, is_complete: self.is_complete }
    }
}

/// The outside.
pub(crate) trait Outside: Send + Sync + 'static {
    /// A session as the api knows it.
    fn ask(&self, session: SessionId) -> impl Future<Output = Result<Option<v1::Session>, Error>> + Send;
    /// All live and ending sessions.
    fn sessions(&self) -> impl Future<Output = Result<Vec<v1::Session>, Error>> + Send;
    /// What is to become of an object.
    fn classify(
        &self,
        session: SessionId,
        object: &Object,
    ) -> impl Future<Output = Result<Verdict, Error>> + Send;
    /// Our objects of one session, or all of ours.
    fn look(&self, us: &Installation, session: Option<SessionId>) -> impl Future<Output = Snapshot> + Send;
    /// The Secret of this name, if it is ours.
    fn secret(
        &self,
        us: &Installation,
        name: &str,
    ) -> impl Future<Output = Result<Option<Object>, Error>> + Send;
    /// Deletes exactly this object. Gone already, or replaced by another, is success.
    fn delete(&self, object: &Object) -> impl Future<Output = Result<(), Error>> + Send;
    /// Publishes a fact.
    fn publish(
        &self,
        envelope: &Envelope,
        kind: event::Kind,
    ) -> impl Future<Output = Result<(), Error>> + Send;
    /// Wall time.
    fn now(&self) -> OffsetDateTime;
}

/// The real thing.
#[derive(Clone)]
pub(crate) struct Real<C> {
    bus: Bus,
    clock: C,
    client: Client,
    namespace: String,
}

impl<C: Clock> Real<C> {
    pub(crate) fn new(bus: Bus, client: Client, namespace: &str, clock: C) -> Self {
        Self { bus, clock, client, namespace: namespace.to_owned() }
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource())
    }

    /// All objects of a kind; `None` if one page could not be had. A kind that is not served has no objects.
    async fn list(&self, us: &Installation, kind: Kind, selector: &str) -> Option<Vec<Object>> {
        let api = self.api(kind);
        let (mut all, mut next) = (Vec::new(), None);
        loop {
            // No resourceVersion: the answer is not older than the question.
            let params =
                ListParams { continue_token: next, ..ListParams::default().labels(selector).limit(PAGE) };
            let page = match bounded("list", kind, selector, api.list_metadata(&params)).await {
                Ok(page) => page,
                Err(Error::Cluster { source, .. }) if code(&source) == Some(404) => return Some(Vec::new()),
                Err(error) => {
                    tracing::warn!(error = %lab_kit::telemetry::chain(&error), "a look is not complete");
                    return None;
                }
            };
            all.extend(page.items.iter().filter_map(|item| object(us, kind, &item.metadata)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => next = Some(token),
                None => return Some(all),
            }
        }
    }
}

/// The object, if it is ours: the selector asked for our labels, but what decides is what the object carries.
fn object(us: &Installation, kind: Kind, meta: &ObjectMeta) -> Option<Object> {
    if !us.owns(meta) {
        return None;
    }
    Some(Object {
        kind,
        name: meta.name.clone()?,
        uid: ObjectUid::new(meta.uid.clone()?).ok()?,
        identity: us.identity(meta),
        is_leaving: meta.deletion_timestamp.is_some(),
    })
}

impl<C: Clock> Outside for Real<C> {
    async fn ask(&self, session: SessionId) -> Result<Option<v1::Session>, Error> {
        let request = v1::GetSessionRequest { session_id: session.to_string() };
        let answer: v1::GetSessionResponse = self
            .bus
            .ask(GET_SESSION, &request, ASK)
            .await
            .map_err(|source| Error::Ask { session, source })?;
        Ok(answer.session)
    }

    async fn sessions(&self) -> Result<Vec<v1::Session>, Error> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let request = v1::ListSessionsRequest { after, limit: 0 };
            let page: v1::ListSessionsResponse =
                self.bus.ask(LIST_SESSIONS, &request, ASK).await.map_err(Error::List)?;
            all.extend(page.sessions);
            if page.next.is_empty() {
                return Ok(all);
            }
            after = page.next;
        }
    }

    async fn classify(&self, session: SessionId, object: &Object) -> Result<Verdict, Error> {
        let machine = object.identity.as_ref().and_then(|i| i.machine.as_ref());
        let request = v1::ClassifyObjectRequest {
            session_id: session.to_string(),
            machine: machine.map(ToString::to_string).unwrap_or_default(),
            kind: object.kind.as_str().to_owned(),
            uid: object.uid.to_string(),
        };
        let answer: v1::ClassifyObjectResponse = self
            .bus
            .ask(CLASSIFY_OBJECT, &request, ASK)
            .await
            .map_err(|source| Error::Ask { session, source })?;
        // A verdict that this build does not know deletes nothing.
        Ok(convert::verdict(answer.verdict).unwrap_or(Verdict::Hold))
    }

    async fn look(&self, us: &Installation, session: Option<SessionId>) -> Snapshot {
        let selector = session.map_or_else(|| us.selector(), |s| us.session_selector(s));
        let began = Instant::now();
        let lists = Kind::ALL.map(|kind| self.list(us, kind, &selector));
        let lists = futures::future::join_all(lists).await;
        let is_complete = lists.iter().all(Option::is_some);
        Snapshot { began, objects: lists.into_iter().flatten().flatten().collect(), is_complete }
    }

    async fn secret(&self, us: &Installation, name: &str) -> Result<Option<Object>, Error> {
        let api = self.api(Kind::Secret);
        let found = bounded("get", Kind::Secret, name, api.get_metadata_opt(name)).await?;
        Ok(found.and_then(|secret| object(us, Kind::Secret, &secret.metadata)))
    }

    async fn delete(&self, object: &Object) -> Result<(), Error> {
        let exactly = Preconditions { uid: Some(object.uid.to_string()), resource_version: None };
        let params = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
        let api = self.api(object.kind);
        match bounded("delete", object.kind, &object.name, api.delete(&object.name, &params)).await {
            Ok(_) => Ok(()),
            // 409: another object of that name has come. The next look shows it.
            Err(Error::Cluster { source, .. }) if matches!(code(&source), Some(404 | 409)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn publish(&self, envelope: &Envelope, kind: event::Kind) -> Result<(), Error> {
        let event = event::new(self.bus.environment(), envelope, kind, self.clock.now());
        let session = envelope.session;
        self.bus.publish(&event).await.map(drop).map_err(|source| Error::Publish { session, source })
    }

    fn now(&self) -> OffsetDateTime {
        self.clock.now()
    }
}

fn code(error: &kube::Error) -> Option<u16> {
    let kube::Error::Api(status) = error else { return None };
    Some(status.code)
}

async fn bounded<T>(
    operation: &'static str,
    kind: Kind,
    name: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    let kind = kind.as_str();
    match tokio::time::timeout(REQUEST, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => {
            Err(Error::Cluster { operation, kind, name: name.to_owned(), source: Box::new(source) })
        }
        Err(_) => Err(Error::TimedOut { operation, kind, name: name.to_owned() }),
    }
}
