//! What the gateway counts.

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// Counters; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// Viewers at this moment.
    pub viewers: Gauge,
    /// Facts that found the queue full.
    pub dropped_facts: Counter,
    answers: Family<Labels, Counter>,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Answer {
    /// Upgraded.
    Opened,
    /// It would have been, had it asked for an upgrade.
    Probed,
    /// A problem document.
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    answer: Answer,
}

impl Metrics {
    /// Adds the counters to a registry.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("lab_console_gw");
        registry.register("viewers", "Viewers at this moment", self.viewers.clone());
        registry.register("dropped_facts", "Facts that found the queue full", self.dropped_facts.clone());
        registry.register("requests", "Console requests by their answer", self.answers.clone());
    }

    /// Counts a request.
    pub fn answered(&self, answer: Answer) {
        self.answers.get_or_create(&Labels { answer }).inc();
    }
}
