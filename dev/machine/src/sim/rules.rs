//! Which machine behaves how: rules matched by labels, set at any time over `PUT /sim/v1/rules`.
//!
//! Every rule that matches is laid over the defaults in order, so a later rule wins field by field. A machine
//! keeps the behaviour that it was started with; scripted answers to `/exec` are looked up at each call.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// All rules.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// What holds for every machine; absent fields are those of the command line.
    pub defaults: Behaviour,
    /// Laid over the defaults, in order, where they match.
    pub rules: Vec<Rule>,
}

/// A behaviour for the machines that match.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// Label `ttlab.io/lab`.
    pub lab: Option<String>,
    /// Label `ttlab.io/session`.
    pub session: Option<String>,
    /// Label `ttlab.io/machine`.
    pub machine: Option<String>,
    /// Any other labels, all of which must be there with these values.
    pub labels: BTreeMap<String, String>,
    /// Applies to this many starts, then no more. Absent: to all. A machine that cannot be placed or pulled is tried
    /// again every second, and each try counts.
    pub times: Option<u32>,
    /// What to do.
    pub behaviour: Behaviour,
}

/// What a machine does. Times are milliseconds; an absent field leaves what an earlier rule said.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Behaviour {
    /// From the launcher pod to its containers being ready (image pull, disk import).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_ms: Option<u64>,
    /// From there to Running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_ms: Option<u64>,
    /// From Running to the agent's first answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_ms: Option<u64>,
    /// How long the agent says `booting` before `preparing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub booting_ms: Option<u64>,
    /// How long the agent says `preparing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepare_ms: Option<u64>,
    /// From the power button to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown_ms: Option<u64>,
    /// The launcher pod is never placed; the text is the scheduler's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unschedulable: Option<String>,
    /// The image cannot be pulled; the text is the runtime's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_error: Option<String>,
    /// The machine cannot even be begun: its launcher fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher_fails: Option<bool>,
    /// The machine never gets to Running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub never_boots: Option<bool>,
    /// The machine dies before Running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_to_boot: Option<bool>,
    /// The machine dies this long after Running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dies_after_ms: Option<u64>,
    /// How it dies then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dies_as: Option<Death>,
    /// The guest does not hear the power button: it takes the whole grace and is shot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignores_power_button: Option<bool>,
    /// What is wrong with the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentFault>,
    /// The agent stops answering this long after its first answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_stops_after_ms: Option<u64>,
    /// How the prepare script ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepare: Option<Prepare>,
    /// Scripted answers of `/exec`: the first whose text the script contains. Of several rules' lists all count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exec: Vec<Exec>,
}

/// How a machine dies by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Death {
    /// The guest powers itself off.
    Poweroff,
    /// The emulator dies.
    Crash,
    /// The guest's kernel panics.
    Panic,
}

/// What is wrong with an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentFault {
    /// Nothing listens.
    Absent,
    /// It accepts and never answers.
    Silent,
    /// It answers with what is no HTTP.
    Garbage,
    /// It answers with a body that never ends.
    Endless,
    /// It answers with a redirect to another host.
    Redirect,
    /// It refuses every token.
    Unauthorized,
}

/// How the prepare script ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Prepare {
    /// It exits with this code, after this log.
    Exit {
        /// The exit code: 0 is success.
        code: i32,
        /// What it printed.
        #[serde(default)]
        log: String,
        /// How many megabytes it printed before that.
        #[serde(default)]
        megabytes: u32,
    },
    /// It runs until the guest stops it after its limit.
    Hangs {
        /// What it printed.
        #[serde(default)]
        log: String,
    },
    /// It runs, and the guest does not stop it.
    Stuck,
    /// A signal killed it.
    Signal,
    /// cloud-init itself failed before it.
    CloudInit,
}

/// A scripted answer of `/exec`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Exec {
    /// The script must contain this; empty matches every script.
    pub contains: String,
    /// The exit code.
    pub exit: i32,
    /// The output.
    pub output: String,
    /// How long it takes; beyond the call's limit it is timed out.
    pub delay_ms: u64,
    /// The agent drops the connection instead of answering.
    pub drops: bool,
}

/// The times of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// `--sim-boot`.
    pub boot: Duration,
    /// `--sim-agent`.
    pub agent: Duration,
    /// `--sim-prepare`.
    pub prepare: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            boot: Duration::from_millis(300),
            agent: Duration::from_millis(100),
            prepare: Duration::from_millis(300),
        }
    }
}

/// What shall happen to a machine before its driver is asked to start it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// From the launcher pod to its containers being ready.
    pub pull: Duration,
    /// The pod is never placed; the scheduler's text.
    pub unschedulable: Option<String>,
    /// The image cannot be pulled; the runtime's text.
    pub image_pull_error: Option<String>,
}

impl Rule {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let named = [("lab", &self.lab), ("session", &self.session), ("machine", &self.machine)];
        named.into_iter().all(|(key, wanted)| {
            wanted.as_ref().is_none_or(|wanted| labels.get(&format!("ttlab.io/{key}")) == Some(wanted))
        }) && self.labels.iter().all(|(key, wanted)| labels.get(key) == Some(wanted))
    }
}

impl Rules {
    /// The behaviour of a machine with these labels.
    pub fn behaviour(&self, labels: &BTreeMap<String, String>) -> Behaviour {
        let mut sum = self.defaults.clone();
        for rule in self.rules.iter().filter(|rule| rule.times != Some(0) && rule.matches(labels)) {
            sum.lay_over(&rule.behaviour);
        }
        sum
    }

    /// The same for a start, which uses up one of the `times` of each rule that matches.
    pub(crate) fn take(&mut self, labels: &BTreeMap<String, String>) -> Behaviour {
        let behaviour = self.behaviour(labels);
        for rule in self.rules.iter_mut().filter(|rule| rule.matches(labels)) {
            rule.times = rule.times.map(|left| left.saturating_sub(1));
        }
        behaviour
    }
}

impl Behaviour {
    fn lay_over(&mut self, other: &Self) {
        fn set<T: Clone>(field: &mut Option<T>, value: &Option<T>) {
            if value.is_some() {
                field.clone_from(value);
            }
        }
        set(&mut self.pull_ms, &other.pull_ms);
        set(&mut self.boot_ms, &other.boot_ms);
        set(&mut self.agent_ms, &other.agent_ms);
        set(&mut self.booting_ms, &other.booting_ms);
        set(&mut self.prepare_ms, &other.prepare_ms);
        set(&mut self.shutdown_ms, &other.shutdown_ms);
        set(&mut self.unschedulable, &other.unschedulable);
        set(&mut self.image_pull_error, &other.image_pull_error);
        set(&mut self.launcher_fails, &other.launcher_fails);
        set(&mut self.never_boots, &other.never_boots);
        set(&mut self.fails_to_boot, &other.fails_to_boot);
        set(&mut self.dies_after_ms, &other.dies_after_ms);
        set(&mut self.dies_as, &other.dies_as);
        set(&mut self.ignores_power_button, &other.ignores_power_button);
        set(&mut self.agent, &other.agent);
        set(&mut self.agent_stops_after_ms, &other.agent_stops_after_ms);
        set(&mut self.prepare, &other.prepare);
        // The newest first: it shall win over an older one for the same script.
        self.exec.splice(0..0, other.exec.iter().cloned());
    }

    pub(crate) fn boot(&self, times: Times) -> Duration {
        self.boot_ms.map_or(times.boot, Duration::from_millis)
    }

    pub(crate) fn agent_up(&self, times: Times) -> Duration {
        self.agent_ms.map_or(times.agent, Duration::from_millis)
    }

    pub(crate) fn preparing(&self, times: Times) -> Duration {
        self.prepare_ms.map_or(times.prepare, Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn later_rule_wins_field_by_field() {
        let rules: Rules = serde_json::from_str(
            r#"{"defaults":{"boot_ms":1,"agent_ms":2},
                "rules":[{"lab":"a","behaviour":{"boot_ms":10,"never_boots":true}},
                         {"labels":{"x":"y"},"behaviour":{"boot_ms":20}},
                         {"lab":"b","behaviour":{"boot_ms":99}}]}"#,
        )
        .unwrap();
        let got = rules.behaviour(&labels(&[("ttlab.io/lab", "a"), ("x", "y")]));
        assert_eq!((got.boot_ms, got.agent_ms, got.never_boots), (Some(20), Some(2), Some(true)));
    }

    #[test]
    fn rule_with_a_count_is_used_up() {
        let mut rules: Rules =
            serde_json::from_str(r#"{"rules":[{"times":1,"behaviour":{"agent":"absent"}}]}"#).unwrap();
        assert_eq!(rules.take(&labels(&[])).agent, Some(AgentFault::Absent));
        assert_eq!(rules.take(&labels(&[])).agent, None);
    }

    #[test]
    fn unknown_key_in_a_rule_is_an_error() {
        assert!(serde_json::from_str::<Rules>(r#"{"rules":[{"behaviour":{"bot_ms":1}}]}"#).is_err());
    }

    #[test]
    fn prepare_is_written_as_one_of_its_forms() {
        let got: Behaviour = serde_json::from_str(r#"{"prepare":{"exit":{"code":3,"log":"no\n"}}}"#).unwrap();
        assert_eq!(got.prepare, Some(Prepare::Exit { code: 3, log: "no\n".into(), megabytes: 0 }));
        let stuck: Behaviour = serde_json::from_str(r#"{"prepare":"stuck"}"#).unwrap();
        assert_eq!(stuck.prepare, Some(Prepare::Stuck));
    }
}
