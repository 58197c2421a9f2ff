//! One connection of one identity of one environment.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, jetstream};
use lab_domain::{Environment, InstallationId};
use lab_proto::subjects::Subjects;
use secrecy::{ExposeSecret as _, SecretString};

use crate::{Error, Identity, Metrics, setup};

/// How to reach the broker and as whom.
#[derive(Debug, Clone)]
pub struct Config {
    /// `nats://host:port`, several separated by commas.
    pub url: String,
    /// File with the seed of this identity's nkey; none where the broker asks for none.
    pub nkey_file: Option<PathBuf>,
    /// The environment whose subjects are spoken.
    pub environment: Environment,
    /// Who we are: decides the inbox prefix and the connection's name.
    pub identity: Identity,
    /// Counters of this connection.
    pub metrics: Metrics,
}

/// The bus as one service sees it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Bus {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Client,
    stream: jetstream::Context,
    subjects: Subjects,
    identity: Identity,
    metrics: Metrics,
}

/// How long one request to the broker may take.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest pause between two tries to reach a lost broker.
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(2);
/// How long the first connection is tried.
const FIRST_CONNECTION: Duration = Duration::from_secs(15);
/// The oldest server whose promises we rely on: schedules came with 2.12.
const OLDEST_SERVER: (i64, i64, i64) = (2, 12, 0);

impl Bus {
    /// Connects, and refuses a server that would silently ignore our stream settings.
    ///
    /// # Errors
    /// If the seed cannot be read, nobody listens, we are not let in, or the server is too old.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let Config { url, nkey_file, environment, identity, metrics } = config;
        let subjects = Subjects::new(environment);
        let mut options = ConnectOptions::new()
            .name(format!("lab-{} {}", identity.as_str(), subjects.environment()))
            .custom_inbox_prefix(identity.inbox_prefix(&subjects))
            .request_timeout(Some(REQUEST_TIMEOUT))
            .ping_interval(Duration::from_secs(10))
            .reconnect_delay_callback(|attempt| {
                let ms = 50_u64.saturating_mul(1 << attempt.min(6));
                Duration::from_millis(ms).min(MAX_RECONNECT_DELAY)
            })
            .event_callback(|event| async move {
                match event {
                    async_nats::Event::Connected => tracing::info!("connected to the broker"),
                    async_nats::Event::Disconnected => tracing::warn!("the broker is lost; reconnecting"),
                    async_nats::Event::ServerError(error) => {
                        tracing::error!(error = %error, "the broker refused something");
                    }
                    async_nats::Event::SlowConsumer(subscription) => {
                        tracing::warn!(subscription, "messages were dropped: a subscriber is too slow");
                    }
                    async_nats::Event::ClientError(_)
                    | async_nats::Event::LameDuckMode
                    | async_nats::Event::Draining
                    | async_nats::Event::Closed => tracing::debug!(event = %event, "broker connection"),
                }
            });
        if let Some(path) = nkey_file {
            options = options.nkey(read_seed(path).await?.expose_secret().to_owned());
        }
        let servers: Vec<String> = url.split(',').map(|s| s.trim().to_owned()).collect();
        let client = reach(options, &servers)
            .await
            .map_err(|source| Error::Connect { url, source: Box::new(source) })?;
        let (major, minor, patch) = OLDEST_SERVER;
        if !client.is_server_compatible(major, minor, patch) {
            return Err(Error::ServerTooOld { version: client.server_info().version });
        }
        let stream = jetstream::ContextBuilder::new().timeout(REQUEST_TIMEOUT).build(client.clone());
        Ok(Self { inner: Arc::new(Inner { client, stream, subjects, identity, metrics }) })
    }

    /// The names of this environment.
    #[must_use]
    pub fn subjects(&self) -> &Subjects {
        &self.inner.subjects
    }

    /// The environment.
    #[must_use]
    pub fn environment(&self) -> &Environment {
        self.inner.subjects.environment()
    }

    /// Who we are on the bus.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.inner.identity
    }

    /// Whether the connection stands at this moment.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.inner.client.connection_state() == async_nats::connection::State::Connected
    }

    /// The installation id in the events stream's metadata; `None` where the stream has none.
    ///
    /// # Errors
    /// If the stream does not exist or cannot be read.
    pub async fn installation(&self) -> Result<Option<InstallationId>, Error> {
        let name = self.subjects().events_stream();
        let stream = self.jetstream().get_stream(&name).await.map_err(|source| Error::Stream {
            operation: "read",
            stream: name,
            source: Box::new(source),
        })?;
        Ok(setup::installation_of(&stream.cached_info().config))
    }

    /// Waits until everything written so far has left this process.
    ///
    /// # Errors
    /// If the connection is gone for good.
    pub async fn flush(&self) -> Result<(), Error> {
        let flush = tokio::time::timeout(REQUEST_TIMEOUT, self.client().flush());
        match flush.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(source)) => Err(Error::Connection { operation: "flush", source: Box::new(source) }),
            Err(source) => Err(Error::Connection { operation: "flush", source: Box::new(source) }),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(crate) fn jetstream(&self) -> &jetstream::Context {
        &self.inner.stream
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }
}

/// The first connection: a broker that is just being started again is waited for, a refusal is not.
async fn reach(options: ConnectOptions, servers: &[String]) -> Result<Client, ConnectError> {
    let started = Instant::now();
    loop {
        match options.clone().connect(servers).await {
            Err(error)
                if matches!(error.kind(), ConnectErrorKind::Io | ConnectErrorKind::TimedOut)
                    && started.elapsed() < FIRST_CONNECTION =>
            {
                tracing::debug!(error = %error, "the broker is not there yet");
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            result => return result,
        }
    }
}

async fn read_seed(path: PathBuf) -> Result<SecretString, Error> {
    match tokio::fs::read_to_string(&path).await {
        Ok(text) => Ok(SecretString::from(text.trim().to_owned())),
        Err(source) => Err(Error::Seed { path, source }),
    }
}
