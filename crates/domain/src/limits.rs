//! How long each phase of a start may take.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Beyond the sum of the phases, so that the phase's own limit, which knows the cause, comes first.
pub const START_BACKSTOP: Duration = Duration::from_secs(60);
/// Readiness waits this much longer than the guest, which stops the script by itself.
pub const PREPARE_GRACE: Duration = Duration::from_secs(30);

/// The limits of one start, as the session carries them: the operator's time factor is applied already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartLimits {
    /// MachineProvisioned to VMI Scheduled: import, image pull.
    pub disk: Duration,
    /// Scheduled to Running.
    pub boot: Duration,
    /// Running to the agent's first answer.
    pub agent: Duration,
    /// AgentReached to the end of the prepare script.
    pub prepare: Duration,
}

impl Default for StartLimits {
    fn default() -> Self {
        Self {
            disk: Duration::from_secs(600),
            boot: Duration::from_secs(150),
            agent: Duration::from_secs(150),
            prepare: Duration::from_secs(300),
        }
    }
}

impl StartLimits {
    /// All limits times `factor`, for hosts whose guests run in emulation.
    ///
    /// # Panics
    /// If `factor` is negative, not finite or makes a limit overflow; arguments are checked where they enter.
    #[must_use]
    pub fn stretched(self, factor: f64) -> Self {
        let Self { disk, boot, agent, prepare } = self;
        Self {
            disk: disk.mul_f64(factor),
            boot: boot.mul_f64(factor),
            agent: agent.mul_f64(factor),
            prepare: prepare.mul_f64(factor),
        }
    }

    /// The whole start's limit, a backstop behind the phases' own.
    #[must_use]
    pub fn start(&self) -> Duration {
        self.disk + self.boot + self.agent + self.prepare + START_BACKSTOP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_limit_is_the_sum_and_a_minute() {
        assert_eq!(StartLimits::default().start(), Duration::from_secs(1260));
        assert_eq!(StartLimits::default().stretched(2.0).start(), Duration::from_secs(2460));
    }
}
