//! What the provisioner counts.

use std::time::Duration;

use lab_domain::disk::Choice;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// Counters; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    reports: Family<Outcome, Counter>,
    faults: Counter,
    run_seconds: Histogram,
}

/// What was reported of a machine. The words come from closed lists.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Outcome {
    outcome: Word,
    disk: String,
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Word {
    Provisioned,
    Failed,
}

impl Outcome {
    pub(crate) fn provisioned(disk: Option<Choice>) -> Self {
        Self {
            outcome: Word::Provisioned,
            disk: disk.map_or("unknown", |d| d.kind.as_str()).to_owned(),
            reason: disk.map_or("unknown", |d| d.reason.as_str()).to_owned(),
        }
    }

    pub(crate) fn failed() -> Self {
        Self { outcome: Word::Failed, disk: "none".to_owned(), reason: "none".to_owned() }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            reports: Family::default(),
            faults: Counter::default(),
            run_seconds: Histogram::new(exponential_buckets(0.002, 2.0, 14)),
        }
    }
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("lab_provisioner");
        registry.register("reports", "Machines reported, by outcome, disk and reason", self.reports.clone());
        registry.register("faults", "Runs put off for a passing fault", self.faults.clone());
        registry.register("run_seconds", "One machine's run, from its first look", self.run_seconds.clone());
    }

    pub(crate) fn reported(&self, outcome: Outcome) {
        self.reports.get_or_create(&outcome).inc();
    }

    pub(crate) fn put_off(&self) {
        self.faults.inc();
    }

    pub(crate) fn took(&self, time: Duration) {
        self.run_seconds.observe(time.as_secs_f64());
    }
}
