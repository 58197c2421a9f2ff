//! What a run of the bench gave, as figures.

use std::time::Duration;

use super::student::Seen;
use crate::ui;

/// One run.
pub(crate) struct Run {
    pub(crate) title: String,
    /// The machines' own boot, agent and prepare times.
    pub(crate) own: (Duration, Duration, Duration),
    pub(crate) seen: Vec<Seen>,
    pub(crate) ended: Vec<Duration>,
    pub(crate) failed: Vec<String>,
}

impl Run {
    /// The whole time beyond the machine's own.
    pub(crate) fn overhead_p99(&self) -> Option<Duration> {
        percentile(&self.overheads(), 99)
    }

    fn overheads(&self) -> Vec<Duration> {
        let own = self.own.0 + self.own.1 + self.own.2;
        self.seen.iter().map(|seen| seen.ready.saturating_sub(own)).collect()
    }
}

/// Nearest rank.
fn percentile(values: &[Duration], percent: usize) -> Option<Duration> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// Prints a run's table.
pub(crate) fn print_run(run: &Run) {
    let (boot, agent, prepare) = run.own;
    let phase = |of: fn(&Seen) -> Duration, own: Duration| -> Vec<Duration> {
        run.seen.iter().map(|seen| of(seen).saturating_sub(own)).collect()
    };
    let none = Duration::ZERO;
    let rows = [
        ("Start pressed, answered", phase(|s| s.accepted, none)),
        ("answered, provisioning seen", phase(|s| s.provisioning.saturating_sub(s.accepted), none)),
        ("provisioning, booting seen", phase(|s| s.booting.saturating_sub(s.provisioning), none)),
        ("booting, preparing seen", phase(|s| s.preparing.saturating_sub(s.booting), boot + agent)),
        ("preparing, ready seen", phase(|s| s.ready.saturating_sub(s.preparing), prepare)),
        ("sum: Start pressed, ready seen", run.overheads()),
        ("End pressed, nothing left", run.ended.clone()),
    ];
    ui::say(format_args!("\n{} ({} ready, {} failed)", run.title, run.seen.len(), run.failed.len()));
    ui::say(format_args!("{:<34} {:>9} {:>9}   beyond the machine's own", "phase", "p50 ms", "p99 ms"));
    for (name, values) in rows {
        let show = |percent| {
            percentile(&values, percent).map_or("-".to_owned(), |d| format!("{:.1}", d.as_secs_f64() * 1e3))
        };
        ui::say(format_args!("{name:<34} {:>9} {:>9}", show(50), show(99)));
    }
    for failure in run.failed.iter().take(5) {
        ui::say(format_args!("  failed: {failure}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let values: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&values, 50), Some(Duration::from_millis(100)));
        assert_eq!(percentile(&values, 99), Some(Duration::from_millis(198)));
        assert_eq!(percentile(&values[..1], 99), Some(Duration::from_millis(1)));
        assert_eq!(percentile(&[], 50), None);
    }
}
