//! Arguments of the reaper.

use std::time::Duration;

use clap::Parser;
use lab_kit::args::Common;

/// Deletes what sessions leave behind, and says when it is gone.
#[derive(Debug, Clone, Parser)]
#[command(name = "lab-reaper", version)]
pub struct Args {
    /// What every service takes.
    #[command(flatten)]
    pub common: Common,
    /// How long a suspected ghost is watched before the api is asked about it.
    #[arg(long, env = "LAB_GHOST_GRACE", default_value = "2m", value_parser = humantime::parse_duration)]
    pub ghost_grace: Duration,
    /// How often ghosts are looked for; SIGUSR1 looks at once.
    #[arg(long, env = "LAB_GHOST_INTERVAL", default_value = "60s", value_parser = humantime::parse_duration)]
    pub ghost_interval: Duration,
    /// How often the api is asked for all ending sessions, beside the events.
    #[arg(long, env = "LAB_LOOK_INTERVAL", default_value = "10s", value_parser = humantime::parse_duration)]
    pub look_interval: Duration,
}
