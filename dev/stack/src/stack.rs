//! A whole stack of processes, from an empty directory to a page that answers.
//!
//! The supervisor behind `./lab up`, the end-to-end tests and the bench all start it here. Everything it starts is
//! gone when it is dropped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::cluster::{self, Access};
use crate::http::Http;
use crate::images::{self, Image};
use crate::keys::Keys;
use crate::paths::{Paths, cache_dir, image_store, make_dir, write_atomically};
use crate::plan::{self, Plan};
use crate::ports::Ports;
use crate::postgres::Postgres;
use crate::process::board::Board;
use crate::process::crew::Crew;
use crate::process::ident::Ident;
use crate::process::keeper::Launch;
use crate::process::sweep;
use crate::record::{Addresses, Phase, Record};
use crate::{nats, settings};

/// How the machines are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Driver {
    /// Real guests.
    Qemu,
    /// Scripted agents and consoles with these delays.
    Sim {
        /// From the start of a machine to Running.
        boot: Duration,
        /// From Running to the agent's first answer.
        agent: Duration,
        /// From the agent's first answer to the end of the prepare script.
        prepare: Duration,
    },
}

/// What to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// How the machines are made.
    pub driver: Driver,
    /// Where its state lies; none: a temporary directory that goes with the stack.
    pub state_dir: Option<PathBuf>,
    /// The port of the page, if it is free; none: any.
    pub web_port: Option<u16>,
    /// Machines at once.
    pub vm_cap: u32,
    /// Stretches the limits of a start.
    pub time_factor: f64,
    /// The folder of labs; none: the clone's own.
    pub labs: Option<PathBuf>,
    /// Further arguments by process name (`lab-api`, `lab-cluster`, …), after the runner's own.
    pub extra_args: Vec<(String, Vec<String>)>,
    /// Where the programs lie; none: beside the running program.
    pub bin_dir: Option<PathBuf>,
}

impl Options {
    /// A throw-away stack without guests: short delays, many machines.
    pub fn sim() -> Self {
        let ms = Duration::from_millis;
        Self {
            driver: Driver::Sim { boot: ms(300), agent: ms(100), prepare: ms(300) },
            vm_cap: 200,
            time_factor: 1.0,
            ..Self::qemu()
        }
    }

    /// A throw-away stack with real guests.
    pub fn qemu() -> Self {
        Self {
            driver: Driver::Qemu,
            state_dir: None,
            web_port: None,
            vm_cap: default_vm_cap(),
            time_factor: default_time_factor(),
            labs: None,
            extra_args: Vec::new(),
            bin_dir: None,
        }
    }
}

/// As many guests as the machine's memory holds, at most eight.
pub(crate) fn default_vm_cap() -> u32 {
    // A guest of 512 MiB takes up to 620 MiB of the host under emulation (measured); 2 GiB are for everything else.
    let fit = settings::memory_mib().saturating_sub(2048) / 640;
    u32::try_from(fit.clamp(1, 8)).unwrap_or(1)
}

/// Guests in emulation start several times slower.
pub(crate) fn default_time_factor() -> f64 {
    if settings::has_kvm() { 1.0 } else { 3.0 }
}

/// A running stack.
pub struct Stack {
    crew: Crew,
    board: Arc<Board>,
    state: PathBuf,
    /// Removed last.
    _temporary: Option<tempfile::TempDir>,
}

impl Stack {
    /// Brings a stack up and returns when all of it is healthy.
    pub async fn start(options: Options) -> Result<Self> {
        let paths = Paths::discover()?;
        let temporary = match &options.state_dir {
            Some(_) => None,
            None => Some(
                tempfile::Builder::new()
                    .prefix("ttlab-")
                    .tempdir()
                    .context("cannot make a temporary directory")?,
            ),
        };
        let state = match (&options.state_dir, &temporary) {
            (Some(state), _) => state.clone(),
            (None, Some(dir)) => dir.path().to_path_buf(),
            (None, None) => bail!("no place for the state"),
        };
        make_dir(&state, 0o711)?;
        let state = state.canonicalize().with_context(|| format!("cannot resolve {}", state.display()))?;
        clear_leftovers(&state);
        let bin = bin_dir(&options)?;
        let record = Record {
            phase: Phase::Starting,
            step: "starting".to_owned(),
            error: None,
            notes: Vec::new(),
            supervisor: Ident::own().context("cannot read /proc/self/stat")?,
            addresses: Addresses::default(),
            processes: Vec::new(),
        };
        let board = Arc::new(Board::new(state.join("state.json"), record));
        let crew = Crew::assemble(Arc::clone(&board), &state, &bin.join("lab-stack"), temporary.is_some())?;
        let stack = Self { crew, board, state, _temporary: temporary };
        match stack.bring_up(&paths, &options, bin).await {
            Ok(()) => {
                stack.board.phase(Phase::Up);
                Ok(stack)
            }
            Err(error) => {
                stack.board.change(|record| {
                    record.phase = Phase::Failed;
                    record.error = Some(format!("{error:#}"));
                });
                Err(error)
            }
        }
    }

    async fn bring_up(&self, paths: &Paths, options: &Options, bin: PathBuf) -> Result<()> {
        let state = &self.state;
        for (dir, mode) in [("logs", 0o700), ("ports", 0o700), ("cluster", 0o700), ("kubeconfig", 0o700)] {
            make_dir(&state.join(dir), mode)?;
        }
        let cache = cache_dir()?;
        let (image, store) = image_of(options, paths, &cache, state)?;
        let plan = self.plan(paths, options, bin, store)?;
        let mib = images::disk_mib(&plan.image_store, &image);
        images::write_table(&plan.images_table(), &image, mib)?;

        plan.write_deploy()?;
        self.board.step("starting PostgreSQL, nats-server and the one-machine cluster");
        let postgres = Postgres::prepare(state, &key_of(state))?;
        write_atomically(&plan.database_url_file(), postgres.url(plan::DATABASE).as_bytes(), 0o600)?;
        self.crew.start(plan.postgres(&postgres)).await?;
        self.crew.start(plan.nats(&nats::find_server(&cache)?)?).await?;
        self.crew.start(plan.cluster()).await?;
        self.crew.healthy(&["postgres"], Duration::from_secs(60)).await?;
        postgres.ensure_database(plan::DATABASE)?;
        self.crew.healthy(&["nats-server", "lab-cluster"], Duration::from_secs(60)).await?;

        let access = Access::read(&plan.kubeconfig("admin"))?;
        self.board.change(|record| {
            record.addresses = Addresses {
                web: plan.public_url(),
                nats: plan.nats_url(),
                database: postgres.url(plan::DATABASE),
                kubeconfig: plan.kubeconfig("admin"),
                kubernetes: access.server().to_owned(),
                namespace: plan::NAMESPACE.to_owned(),
                environment: plan::ENVIRONMENT.to_owned(),
                driver: plan.driver_name().to_owned(),
            };
        });
        self.board.step("setting up the database, the streams and the environment");
        run_once(plan.setup(), Duration::from_secs(60)).await?;

        self.board.step("starting the five services");
        for service in plan.services() {
            self.crew.start(service).await?;
        }
        let golden = cluster::ensure_golden(&access, plan::NAMESPACE, &image, mib, Duration::from_secs(120));
        if let Err(error) = golden.await {
            // A lab that asks for the golden disk takes the container disk then, and says so.
            self.board.note(format!("no golden disk, machines start from the container disk: {error:#}"));
        }
        self.crew.healthy(&plan::SERVICES, Duration::from_secs(90)).await?;
        self.board.step("opening the front door");
        self.crew.start(plan.front_door()).await?;
        self.crew.healthy(&["front-door"], Duration::from_secs(30)).await?;
        self.check_page(&plan).await
    }

    fn plan(&self, paths: &Paths, options: &Options, bin: PathBuf, image_store: PathBuf) -> Result<Plan> {
        let mut ports = Ports::load(&self.state);
        Ok(Plan {
            repo: paths.repo.clone(),
            state: self.state.clone(),
            bin,
            image_store,
            labs: options.labs.clone().unwrap_or_else(|| paths.repo.join("labs")),
            driver: options.driver.clone(),
            vm_cap: options.vm_cap,
            time_factor: options.time_factor,
            extra_args: options.extra_args.clone(),
            web: ports.take("web", options.web_port)?,
            api: ports.take("api", None)?,
            console: ports.take("console", None)?,
            cluster: ports.take("cluster", None)?,
            nats: ports.take("nats", options.web_port.filter(|port| *port != 0).map(|_| 4222))?,
            monitor: ports.take("nats-monitor", None)?,
            keys: Keys::ensure(&self.state)?,
        })
    }

    /// The page itself, through the front door: the last thing that must work before anybody is sent there.
    async fn check_page(&self, plan: &Plan) -> Result<()> {
        let url = format!("{}/api/me", plan.public_url());
        let answer = Http::new().get(&url, Duration::from_secs(10)).await?;
        if answer.status.is_server_error() {
            bail!("the front door answers {} for {url}: {}", answer.status, answer.text());
        }
        Ok(())
    }

    /// The address of the page.
    pub fn web_url(&self) -> String {
        self.board.snapshot().addresses.web
    }

    /// The broker's address.
    pub fn nats_url(&self) -> String {
        self.board.snapshot().addresses.nats
    }

    /// The database's address.
    pub fn database_url(&self) -> String {
        self.board.snapshot().addresses.database
    }

    /// The kubeconfig of `admin`, or of a service account such as `ttlab-reaper`.
    pub fn kubeconfig(&self, identity: &str) -> PathBuf {
        self.state.join("kubeconfig").join(format!("{identity}.kubeconfig"))
    }

    /// The seed file of a NATS identity, for example `api` or `subscriber`.
    pub fn nkey_file(&self, identity: &str) -> PathBuf {
        self.state.join("keys").join(format!("nats-{identity}.nk"))
    }

    /// The namespace of the machines.
    pub fn namespace(&self) -> &'static str {
        plan::NAMESPACE
    }

    /// The environment's name.
    pub fn environment(&self) -> &'static str {
        plan::ENVIRONMENT
    }

    /// Where its state and logs lie.
    pub fn state_dir(&self) -> &Path {
        &self.state
    }

    /// The pid of a process, for example `lab-reaper`.
    pub fn pid(&self, name: &str) -> Option<i32> {
        self.crew.ident(name).map(|ident| ident.pid)
    }

    /// Kills a process at once; it is started again like any that crashed. False if there is none of this name.
    pub fn kill(&self, name: &str) -> bool {
        self.crew.ident(name).is_some_and(|ident| ident.signal(Signal::SIGKILL))
    }

    /// Waits until a process is healthy again.
    pub async fn wait_healthy(&self, name: &str, within: Duration) -> Result<()> {
        self.crew.healthy(&[name], within).await
    }

    /// The pids of the guests that run now.
    pub fn guests(&self) -> Vec<i32> {
        sweep::guests(&self.state).into_iter().map(|ident| ident.pid).collect()
    }

    pub(crate) fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Ends everything; dropping does the same, but blocks the thread that drops.
    pub async fn stop(self) {
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if self.board.snapshot().phase != Phase::Failed {
            self.board.phase(Phase::Stopping);
        }
        self.crew.stop();
    }
}

fn key_of(state: &Path) -> String {
    state.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_else(|| "stack".to_owned())
}

/// Ends what a killed supervisor left, should its warden have been killed as well.
pub(crate) fn clear_leftovers(state: &Path) {
    if let Some(old) = Record::read(&state.join("state.json")) {
        for process in old.processes.iter().rev() {
            process.ident.end(Signal::SIGTERM, Duration::from_secs(10));
        }
    }
    sweep::end_guests(state);
}

fn bin_dir(options: &Options) -> Result<PathBuf> {
    let dir = match &options.bin_dir {
        Some(dir) => dir.clone(),
        None => {
            let own = std::env::current_exe().context("cannot find the running program")?;
            let dir = own.parent().context("a program without a folder")?;
            // Tests lie one below the programs that they start.
            if dir.ends_with("deps") { dir.parent().unwrap_or(dir).to_path_buf() } else { dir.to_path_buf() }
        }
    };
    for program in plan::SERVICES.iter().chain(&["lab-cluster", "lab-stack"]) {
        if !dir.join(program).is_file() {
            bail!(
                "{} is not built: run `cargo build --workspace --bins` first (./lab does it by itself)",
                dir.join(program).display()
            );
        }
    }
    Ok(dir)
}

fn image_of(options: &Options, paths: &Paths, cache: &Path, state: &Path) -> Result<(Image, PathBuf)> {
    if options.driver != Driver::Qemu {
        let store = state.join("images");
        return Ok((images::simulated(&store)?, store));
    }
    let image = match settings::path("LAB_GUEST_IMAGE") {
        Some(file) => images::import(&file, cache)?,
        None => images::ensure_built(&paths.repo, cache)?,
    };
    Ok((image, image_store(cache)))
}

/// Runs a program that does its work and ends.
async fn run_once(launch: Launch, within: Duration) -> Result<()> {
    let name = launch.name.clone();
    let log = launch.log.clone();
    let done = tokio::task::spawn_blocking(move || -> Result<std::process::ExitStatus> {
        let file = std::fs::File::create(&launch.log)
            .with_context(|| format!("cannot write {}", launch.log.display()))?;
        Command::new("timeout")
            .arg(within.as_secs().to_string())
            .arg(&launch.program)
            .args(&launch.args)
            .current_dir(&launch.cwd)
            .stdin(std::process::Stdio::null())
            .stdout(file.try_clone().context("cannot share a log file")?)
            .stderr(file)
            .status()
            .with_context(|| format!("cannot start {}", launch.program.display()))
    });
    let status = done.await.context("the runner is stopping")??;
    if !status.success() {
        bail!("{name} failed ({status}). Its log, {}, ends:\n{}", log.display(), crate::ui::tail(&log, 15));
    }
    Ok(())
}
