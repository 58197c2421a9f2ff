//! Counters of the api.

use std::time::Duration;

use axum::http::StatusCode;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// Counters; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    http: Family<HttpLabels, Counter>,
    http_seconds: Histogram,
    facts: Family<FactLabels, Counter>,
    relayed: Counter,
    admissions: Family<AdmissionLabels, Counter>,
    places: Gauge,
    ghosts: Gauge,
    ghost_hold: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            http: Family::default(),
            http_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            facts: Family::default(),
            relayed: Counter::default(),
            admissions: Family::default(),
            places: Gauge::default(),
            ghosts: Gauge::default(),
            ghost_hold: Gauge::default(),
        }
    }
}

/// Class of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Class {
    Good,
    Refused,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HttpLabels {
    class: Class,
}

/// What became of a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum FactOutcome {
    Changed,
    Unchanged,
    Rejected,
    Unknown,
    Malformed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FactLabels {
    outcome: FactOutcome,
}

/// What became of a request for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Admission {
    Admitted,
    Exists,
    Ending,
    Full,
    Unavailable,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AdmissionLabels {
    outcome: Admission,
}

impl Metrics {
    /// Adds the counters to a registry.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("lab_api");
        registry.register("http_requests", "Requests by class of answer", self.http.clone());
        registry.register("http_seconds", "Requests until the head of the answer", self.http_seconds.clone());
        registry.register("facts", "Facts by what became of them", self.facts.clone());
        registry.register("outbox_published", "Messages that left the outbox", self.relayed.clone());
        registry.register(
            "admissions",
            "Requests for a session by what became of them",
            self.admissions.clone(),
        );
        registry.register("places_used", "Machines that count against the cap", self.places.clone());
        registry.register("ghosts", "Objects that no session owns", self.ghosts.clone());
        registry.register(
            "ghost_hold",
            "1 while too many ghosts are held for an operator",
            self.ghost_hold.clone(),
        );
    }

    pub(crate) fn answered(&self, status: StatusCode, took: Duration) {
        let class = if status.is_server_error() {
            Class::Failed
        } else if status.is_client_error() {
            Class::Refused
        } else {
            Class::Good
        };
        self.http.get_or_create(&HttpLabels { class }).inc();
        self.http_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn fact(&self, outcome: FactOutcome) {
        self.facts.get_or_create(&FactLabels { outcome }).inc();
    }

    pub(crate) fn relayed(&self, messages: usize) {
        self.relayed.inc_by(u64::try_from(messages).unwrap_or(u64::MAX));
    }

    pub(crate) fn admission(&self, outcome: Admission) {
        self.admissions.get_or_create(&AdmissionLabels { outcome }).inc();
    }

    pub(crate) fn places(&self, used: usize) {
        self.places.set(i64::try_from(used).unwrap_or(i64::MAX));
    }

    pub(crate) fn ghosts(&self, count: usize, hold: bool) {
        self.ghosts.set(i64::try_from(count).unwrap_or(i64::MAX));
        self.ghost_hold.set(i64::from(hold));
    }
}
