//! Arguments of the provisioner.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::Parser;
use lab_kit::args::Common;

/// Creates the machines of sessions.
#[derive(Debug, Clone, Parser)]
#[command(name = "lab-provisioner", version)]
pub struct Args {
    /// What every service takes.
    #[command(flatten)]
    pub common: Common,
    /// Directory of the labs, the same that the api has.
    #[arg(long, env = "LAB_LABS", value_name = "DIR")]
    pub labs: PathBuf,
    /// Image table: what a lab's `image` means in this cluster.
    #[arg(long, env = "LAB_IMAGES", value_name = "FILE")]
    pub images: PathBuf,
    /// Key of the agents' tokens, the same that readiness has.
    #[arg(long, env = "LAB_TOKEN_KEY_FILE", value_name = "FILE")]
    pub token_key_file: PathBuf,
    /// The resolvers that machines may ask, separated by commas.
    #[arg(long, env = "LAB_RESOLVERS", value_delimiter = ',', default_value = "1.1.1.1,9.9.9.9")]
    pub resolvers: Vec<IpAddr>,
    /// How often all sessions are looked over, beside the events.
    #[arg(long, env = "LAB_LOOK_INTERVAL", default_value = "15s", value_parser = humantime::parse_duration)]
    pub look_interval: Duration,
}
