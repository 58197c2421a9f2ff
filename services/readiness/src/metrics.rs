//! Counters of readiness.

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// Counters; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// Sessions that are followed.
    pub followed: Gauge,
    /// Facts published, repeats included.
    pub facts: Counter,
    /// Fresh looks at a machine.
    pub looks: Counter,
    calls: Family<Call, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    kind: CallKind,
    answered: Answered,
}

/// What the agent was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum CallKind {
    /// How the start goes.
    Ready,
    /// A grader.
    Exec,
    /// The terminal's size.
    Tty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Answered {
    Yes,
    No,
}

impl Metrics {
    /// Adds the counters to a registry.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("lab_readiness");
        registry.register("sessions_followed", "Sessions that are followed", self.followed.clone());
        registry.register("facts_published", "Facts published, repeats included", self.facts.clone());
        registry.register("machine_looks", "Fresh looks at a machine", self.looks.clone());
        registry.register("agent_calls", "Calls to agents by kind and success", self.calls.clone());
    }

    /// Counts a call to an agent.
    pub fn called(&self, kind: CallKind, is_answered: bool) {
        let answered = if is_answered { Answered::Yes } else { Answered::No };
        self.calls.get_or_create(&Call { kind, answered }).inc();
    }
}
