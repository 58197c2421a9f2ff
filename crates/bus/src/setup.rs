//! Making the streams: the one step that administers anything, under an identity of its own.

use std::{collections::HashMap, time::Duration};

use async_nats::jetstream::{
    context::GetStreamErrorKind,
    stream::{Config, RetentionPolicy, Source, StorageType, SubjectTransform},
};
use lab_domain::InstallationId;
use lab_proto::subjects::{KINDS, Subjects};

use crate::{Bus, Error, event};

/// The largest message that the events stream takes, headers included.
pub const MAX_EVENT_BYTES: usize = 128 * 1024;
/// How long events are kept.
const KEEP: Duration = Duration::from_secs(30 * 24 * 3600);
/// A message id is known this long: longer than any publish is repeated without a pause.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(600);
/// The only event that carries guest text stays inside.
const NOT_PUBLIC: &str = "machine-failed";

/// Creates or updates the three streams of the environment.
///
/// # Errors
/// If the broker refuses, or a stream carries another installation's id: then nothing is changed.
pub async fn streams(bus: &Bus, installation: InstallationId, replicas: usize) -> Result<(), Error> {
    let wanted = [
        events(bus.subjects(), installation, replicas),
        timers(bus.subjects(), installation, replicas),
        public(bus.subjects(), installation, replicas),
    ];
    let mut missing = Vec::new();
    let mut present = Vec::new();
    for config in wanted {
        match bus.jetstream().get_stream(&config.name).await {
            Ok(stream) => {
                check_owner(&stream.cached_info().config, installation)?;
                present.push(config);
            }
            Err(error) if is_missing(&error) => missing.push(config),
            Err(error) => return Err(failed("read", &config.name)(Box::new(error))),
        }
    }
    for config in missing {
        let name = config.name.clone();
        bus.jetstream().create_stream(config).await.map_err(|e| failed("create", &name)(Box::new(e)))?;
        tracing::info!(stream.name = %name, "stream made");
    }
    for config in present {
        // The server refuses every change of a mirror's origin; ours has nothing else that changes.
        if config.mirror.is_none() {
            let name = config.name.clone();
            bus.jetstream().update_stream(config).await.map_err(|e| failed("update", &name)(Box::new(e)))?;
        }
    }
    Ok(())
}

fn failed<'a>(operation: &'static str, stream: &'a str) -> impl FnOnce(crate::error::Source) -> Error + 'a {
    move |source| Error::Stream { operation, stream: stream.to_owned(), source }
}

fn is_missing(error: &async_nats::jetstream::context::GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(e) if e.code() == 404)
}

fn check_owner(found: &Config, installation: InstallationId) -> Result<(), Error> {
    if installation_of(found) == Some(installation) {
        return Ok(());
    }
    Err(Error::OtherInstallation {
        stream: found.name.clone(),
        found: found.metadata.get(event::INSTALLATION_KEY).cloned().unwrap_or_default(),
        expected: event::installation_text(installation),
    })
}

/// The installation id in a stream's metadata.
pub(crate) fn installation_of(config: &Config) -> Option<InstallationId> {
    config.metadata.get(event::INSTALLATION_KEY)?.parse().ok()
}

fn metadata(installation: InstallationId) -> HashMap<String, String> {
    HashMap::from([(event::INSTALLATION_KEY.to_owned(), event::installation_text(installation))])
}

fn events(names: &Subjects, installation: InstallationId, replicas: usize) -> Config {
    Config {
        name: names.events_stream(),
        description: Some("Facts and decisions of TT Lab".into()),
        subjects: vec![names.all_events(), names.all_dead_letters()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: replicas,
        max_age: KEEP,
        max_message_size: i32::try_from(MAX_EVENT_BYTES).unwrap_or(i32::MAX),
        duplicate_window: DUPLICATE_WINDOW,
        // Nobody rewrites history, the set-up identity included.
        deny_delete: true,
        deny_purge: true,
        allow_rollup: false,
        allow_direct: true,
        metadata: metadata(installation),
        ..Default::default()
    }
}

fn timers(names: &Subjects, installation: InstallationId, replicas: usize) -> Config {
    Config {
        name: names.timers_stream(),
        description: Some("Deadlines of sessions: schedules and what they fired".into()),
        subjects: vec![names.all_timers(), names.all_timeouts()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: replicas,
        // No limit of age, size or count: each would silently drop a pending schedule (measured).
        duplicate_window: DUPLICATE_WINDOW,
        deny_delete: true,
        // The server forces roll-up on and purge open where schedules are.
        allow_rollup: true,
        allow_message_ttl: true,
        allow_message_schedules: true,
        metadata: metadata(installation),
        ..Default::default()
    }
}

fn public(names: &Subjects, installation: InstallationId, replicas: usize) -> Config {
    let kinds = KINDS.iter().filter(|kind| **kind != NOT_PUBLIC);
    // A transform without a destination is a filter, and only transforms can be many.
    let filters =
        kinds.map(|kind| SubjectTransform { source: names.every(kind), destination: String::new() });
    Config {
        name: names.public_stream(),
        description: Some("Events for outside subscribers: no guest text, no dead letters".into()),
        mirror: Some(Source {
            name: names.events_stream(),
            subject_transforms: filters.collect(),
            ..Default::default()
        }),
        storage: StorageType::File,
        num_replicas: replicas,
        max_age: KEEP,
        deny_delete: true,
        deny_purge: true,
        allow_direct: true,
        mirror_direct: true,
        metadata: metadata(installation),
        ..Default::default()
    }
}
