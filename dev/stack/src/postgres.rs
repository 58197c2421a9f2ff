//! PostgreSQL with a data directory of its own, reached over a Unix socket only, never as root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::paths::{make_dir, others_can_enter};
use crate::process::keeper::Launch;
use crate::settings;

/// A socket's path must fit in 107 bytes; its file name takes 15 of them.
const MAX_SOCKET_DIR: usize = 90;

/// Where one server lives.
#[derive(Debug, Clone)]
pub(crate) struct Postgres {
    bin: PathBuf,
    data: PathBuf,
    socket: PathBuf,
    /// The user that it runs as where we are root.
    user: Option<String>,
    /// Whether a power cut may lose nothing.
    durable: bool,
}

impl Postgres {
    /// Chooses the places and makes the data directory if there is none.
    pub(crate) fn prepare(state: &Path, key: &str) -> Result<Self> {
        let bin = find_bin().context(
            "PostgreSQL's server is not installed: install it (Debian, Ubuntu: apt-get install postgresql)",
        )?;
        let user = settings::is_root().then(|| "postgres".to_owned());
        let home = if user.is_some() && !others_can_enter(state) {
            // Its user could not enter: a state directory under a private home, for example.
            PathBuf::from("/var/lib/ttlab").join(key).join("postgres")
        } else {
            state.join("postgres")
        };
        let socket = if home.join("run").as_os_str().len() <= MAX_SOCKET_DIR {
            home.join("run")
        } else {
            PathBuf::from("/tmp").join(format!("ttlab-{key}-pg"))
        };
        let server = Self { bin, data: home.join("data"), socket, user, durable: true };
        make_dir(&home, 0o711)?;
        server.own_dir(&server.data)?;
        server.own_dir(&server.socket)?;
        if !server.data.join("PG_VERSION").exists() {
            server.initialise()?;
        }
        server.check_version()?;
        Ok(server)
    }

    /// The same without waiting for the disk: for tests.
    pub(crate) fn careless(self) -> Self {
        Self { durable: false, ..self }
    }

    /// The URL of a database in it.
    pub(crate) fn url(&self, database: &str) -> String {
        let socket =
            self.socket.to_string_lossy().replace('%', "%25").replace('/', "%2F").replace(' ', "%20");
        format!("postgres://postgres@{socket}/{database}")
    }

    /// How to start it. A lost keeper lets it stop in good order.
    pub(crate) fn launch(&self, log: PathBuf) -> Launch {
        let mut args: Vec<std::ffi::OsString> = vec!["-D".into(), self.data.clone().into()];
        args.extend(["-k".into(), self.socket.clone().into()]);
        for setting in ["listen_addresses=", "unix_socket_permissions=0700", "max_connections=200"] {
            args.extend(["-c".into(), setting.into()]);
        }
        if !self.durable {
            for setting in ["fsync=off", "synchronous_commit=off", "full_page_writes=off"] {
                args.extend(["-c".into(), setting.into()]);
            }
        }
        Launch {
            name: "postgres".to_owned(),
            program: self.bin.join("postgres"),
            args,
            cwd: PathBuf::from("/"),
            log,
            user: self.user.clone(),
            death_signal: "INT",
        }
    }

    /// Whether it accepts connections.
    pub(crate) fn accepts(&self) -> bool {
        let mut probe = self.client("pg_isready");
        probe.args(["-q", "-t", "2"]);
        probe.status().is_ok_and(|status| status.success())
    }

    /// Makes a database unless it is there.
    pub(crate) fn ensure_database(&self, name: &str) -> Result<()> {
        let exists = self.query(&format!("select 1 from pg_database where datname = '{name}'"))?;
        if exists.trim() != "1" {
            self.query(&format!("create database \"{name}\""))?;
        }
        Ok(())
    }

    /// Runs SQL in the maintenance database and returns what it printed.
    pub(crate) fn query(&self, sql: &str) -> Result<String> {
        let mut psql = self.client("psql");
        psql.args(["-d", "postgres", "-At", "-v", "ON_ERROR_STOP=1", "-c", sql]);
        run(&mut psql)
    }

    /// Runs a file of SQL in a database, as one transaction.
    pub(crate) fn run_file(&self, database: &str, file: &Path) -> Result<()> {
        let mut psql = self.client("psql");
        psql.args(["-d", database, "-q", "-1", "-v", "ON_ERROR_STOP=1", "-f"]).arg(file);
        run(&mut psql).map(|_| ())
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.arg("-h").arg(&self.socket).args(["-U", "postgres"]).current_dir("/");
        command
    }

    fn own_dir(&self, dir: &Path) -> Result<()> {
        make_dir(dir, 0o700)?;
        if let Some(name) = &self.user {
            let user = nix::unistd::User::from_name(name)
                .context("cannot look up users")?
                .with_context(|| format!("there is no user {name}: install the package postgresql"))?;
            nix::unistd::chown(dir, Some(user.uid), Some(user.gid))
                .with_context(|| format!("cannot give {} to the user {name}", dir.display()))?;
        }
        Ok(())
    }

    fn initialise(&self) -> Result<()> {
        let initdb = self.bin.join("initdb");
        let mut command = match &self.user {
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", user, "--regid", user, "--init-groups", "--"]).arg(initdb);
                command
            }
            None => Command::new(initdb),
        };
        command.arg("-D").arg(&self.data).current_dir("/");
        command.args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale",
            "C",
            "--no-sync",
            "--no-instructions",
        ]);
        run(&mut command).map(|_| ()).context("cannot make PostgreSQL's data directory")
    }

    fn check_version(&self) -> Result<()> {
        let file = self.data.join("PG_VERSION");
        let of_data = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let of_program = run(Command::new(self.bin.join("postgres")).arg("--version"))?;
        let major = |text: &str| {
            text.chars()
                .skip_while(|c| !c.is_ascii_digit())
                .take_while(char::is_ascii_digit)
                .collect::<String>()
        };
        if major(&of_data) != major(&of_program) {
            bail!(
                "the data in {} is of PostgreSQL {}, installed is {}: install that version, or remove the folder (its sessions are lost)",
                self.data.display(),
                major(&of_data),
                major(&of_program)
            );
        }
        Ok(())
    }
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{:?} failed ({}): {}", command.get_program(), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The directory of the server's programs: the newest of Debian's, else where `initdb` on the PATH really lies.
pub(crate) fn find_bin() -> Option<PathBuf> {
    let has_server = |dir: &PathBuf| {
        let program = |name: &str| {
            fs::metadata(dir.join(name)).is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0)
        };
        program("initdb") && program("postgres") && program("psql")
    };
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, dir)| has_server(dir))
        .collect();
    versions.sort();
    versions.pop().map(|(_, dir)| dir).or_else(|| {
        let initdb = settings::find_program("initdb")?.canonicalize().ok()?;
        initdb.parent().map(Path::to_path_buf).filter(has_server)
    })
}
