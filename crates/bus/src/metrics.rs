//! Counters of one connection to the bus.

use std::time::Duration;

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// Counters; clones share them. Register once per process.
#[derive(Debug, Clone)]
pub struct Metrics {
    publish_seconds: Histogram,
    publish_failures: Counter,
    handled: Family<Handled, Counter>,
    rebinds: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Handled {
    outcome: Outcome,
}

/// What became of a delivered message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Outcome {
    /// Done.
    Ack,
    /// Put back.
    Nak,
    /// Given up; a dead letter tells.
    Dead,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            publish_seconds: Histogram::new(exponential_buckets(0.0005, 2.0, 14)),
            publish_failures: Counter::default(),
            handled: Family::default(),
            rebinds: Counter::default(),
        }
    }
}

impl Metrics {
    /// Adds the counters to a registry.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("lab_bus");
        registry.register("publish_seconds", "Publish until the stream's ack", self.publish_seconds.clone());
        registry.register(
            "publish_failures",
            "Publishes given up for now, without an ack",
            self.publish_failures.clone(),
        );
        registry.register(
            "messages_handled",
            "Delivered messages by what became of them",
            self.handled.clone(),
        );
        registry.register("consumer_rebinds", "Consumers that had to be bound again", self.rebinds.clone());
    }

    pub(crate) fn published(&self, took: Duration) {
        self.publish_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn publish_failed(&self) {
        self.publish_failures.inc();
    }

    pub(crate) fn handled(&self, outcome: Outcome) {
        self.handled.get_or_create(&Handled { outcome }).inc();
    }

    pub(crate) fn rebound(&self) {
        self.rebinds.inc();
    }
}
