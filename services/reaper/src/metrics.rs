//! What the reaper counts.

use std::time::Duration;

use lab_kubevirt::kinds::Kind;
use prometheus_client::{
    encoding::EncodeLabelSet,
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
pub(crate) struct Metrics {
    deletes: Family<Of, Counter>,
    ghosts: Family<Of, Counter>,
    reaped_seconds: Histogram,
    faults: Counter,
    deadlines: Counter,
    /// Sessions being deleted.
    pub(crate) endings: Gauge,
    /// Objects without an owner in the last sweep.
    pub(crate) suspects: Gauge,
    /// Ghosts that wait for an operator.
    pub(crate) held: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    kind: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            deletes: Family::default(),
            ghosts: Family::default(),
            reaped_seconds: Histogram::new(exponential_buckets(0.1, 2.0, 14)),
            faults: Counter::default(),
            deadlines: Counter::default(),
            endings: Gauge::default(),
            suspects: Gauge::default(),
            held: Gauge::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("lab_reaper");
        registry.register("deletes", "Deletes sent for ending sessions", self.deletes.clone());
        registry.register("ghosts", "Ghosts deleted", self.ghosts.clone());
        let reaped = self.reaped_seconds.clone();
        registry.register("reaped_seconds", "From hearing of an end until everything was gone", reaped);
        registry.register("faults", "Looks and messages put off for a passing fault", self.faults.clone());
        registry.register("deadlines", "Timers that were due", self.deadlines.clone());
        registry.register("endings", "Sessions being deleted", self.endings.clone());
        registry.register("suspects", "Objects without an owner in the last sweep", self.suspects.clone());
        registry.register("held", "Ghosts that wait for an operator", self.held.clone());
    }

    pub(crate) fn deleted(&self, kind: Kind) {
        self.deletes.get_or_create(&Of { kind: kind.as_str() }).inc();
    }

    pub(crate) fn ghost(&self, kind: Kind) {
        self.ghosts.get_or_create(&Of { kind: kind.as_str() }).inc();
    }

    pub(crate) fn reaped(&self, after: Duration) {
        self.reaped_seconds.observe(after.as_secs_f64());
    }

    pub(crate) fn put_off(&self) {
        self.faults.inc();
    }

    pub(crate) fn deadline(&self) {
        self.deadlines.inc();
    }
}
