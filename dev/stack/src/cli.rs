//! The command line of `./lab`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{checks, commands, ui};

#[derive(Parser)]
#[command(name = "lab", about = "TT Lab on one machine: real Linux machines for students, in the browser")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Bring everything up and print where to go
    Up(UpArgs),
    /// End everything that `up` started, the machines too
    Down {
        /// Also forget all state: sessions, keys, streams (caches stay)
        #[arg(long)]
        forget: bool,
    },
    /// What runs, how it is, how much memory it takes
    Status {
        /// For scripts
        #[arg(long)]
        json: bool,
    },
    /// Show logs
    Logs {
        /// A process, for example lab-api; none: all
        name: Option<String>,
        /// Keep on showing
        #[arg(short, long)]
        follow: bool,
        /// How many lines from the end
        #[arg(short = 'n', long, default_value_t = 40)]
        lines: usize,
    },
    /// Print the path of a kubeconfig for the one-machine cluster
    Kubeconfig {
        /// A service's identity, for example reaper, instead of the administrator's
        #[arg(long, value_name = "SERVICE")]
        r#as: Option<String>,
    },
    /// Test everything, or the named parts
    Test(TestArgs),
    /// Formatting, clippy, contract and dependencies
    Lint,
    /// Write .sqlx anew after a query or a migration changed
    SqlxPrepare,
    /// Print the Secrets that deploy/ expects, for kubectl apply -f -
    Secrets(commands::secrets::SecretsArgs),
    /// Build programs and page without starting anything
    Build,
    /// Measure
    Bench {
        /// What to measure
        #[arg(value_enum)]
        what: Bench,
        /// How many sessions
        #[arg(long, default_value_t = 200)]
        sessions: u32,
        /// Starts a second in the steady run
        #[arg(long, default_value_t = 5.0)]
        rate: f64,
        /// Set by the runner once it runs in release form
        #[arg(long, hide = true)]
        here: bool,
    },
    /// Prints where to go if the stack is up; exit code 1 if it is not
    #[command(hide = true)]
    Again,
    #[command(hide = true)]
    Supervise(UpArgs),
    #[command(hide = true)]
    FrontDoor {
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long)]
        api: SocketAddr,
        #[arg(long)]
        console: SocketAddr,
    },
    #[command(hide = true)]
    Warden {
        #[arg(long)]
        state_dir: PathBuf,
        #[arg(long)]
        remove: bool,
    },
}

/// How `up` starts the stack.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct UpArgs {
    /// Stay attached; Ctrl-C ends everything
    #[arg(long)]
    pub(crate) foreground: bool,
    /// The port of the page, if it is free
    #[arg(long, default_value_t = 8080, env = "LAB_PORT")]
    pub(crate) port: u16,
    /// Machines at once (default: what the memory holds, at most 8)
    #[arg(long, env = "LAB_VM_CAP")]
    pub(crate) vm_cap: Option<u32>,
    /// Real guests, or scripted ones without a virtual machine
    #[arg(long, value_enum, default_value_t = DriverName::Qemu, env = "LAB_DRIVER")]
    pub(crate) driver: DriverName,
}

/// The cluster's driver.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DriverName {
    Qemu,
    Sim,
}

/// What `test` runs.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TestArgs {
    /// Leave out what needs a guest or a browser
    #[arg(long)]
    pub(crate) quick: bool,
    /// Parts: unit, web, proto, guest, e2e, browser, lint, sqlx, python; none: all
    #[arg(value_enum)]
    pub(crate) parts: Vec<checks::Part>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Bench {
    /// The time that the services add to the machines' own
    Overhead,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            ui::warn(format_args!("\nlab: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Up(args) => commands::up::up(&args),
        Command::Again => commands::up::again(),
        Command::Supervise(args) => commands::supervise::supervise(&args, false),
        Command::Down { forget } => commands::down::down(forget),
        Command::Status { json } => commands::status::status(json),
        Command::Logs { name, follow, lines } => commands::logs::logs(name.as_deref(), follow, lines),
        Command::Kubeconfig { r#as } => commands::status::kubeconfig(r#as.as_deref()),
        Command::Test(args) => checks::test(&args),
        Command::Lint => checks::lint(),
        Command::SqlxPrepare => checks::sqlx::prepare(),
        Command::Secrets(args) => commands::secrets::secrets(&args),
        Command::Build => commands::up::build_only(),
        Command::Bench { what: Bench::Overhead, sessions, rate, here } => {
            commands::bench::overhead(sessions, rate, here)
        }
        Command::FrontDoor { listen, api, console } => commands::door::front_door(listen, api, console),
        Command::Warden { state_dir, remove } => commands::warden::warden(&state_dir, remove),
    }
}
