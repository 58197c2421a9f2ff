//! Arguments of the api, checked before any socket is opened.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Parser, Subcommand};
use lab_domain::Environment;
use lab_kit::args;
use secrecy::SecretString;
use url::Url;

/// Owns Postgres and every session's state; serves browsers and operators.
#[derive(Debug, Parser)]
#[command(name = "lab-api", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve.
    Serve(Box<Serve>),
    /// Migrate the database, make the streams and the environment's ConfigMap; creates only.
    Setup(Box<Setup>),
}

/// Arguments of `serve`.
#[derive(Debug, Clone, clap::Args)]
pub struct Serve {
    /// Environment, broker, cluster, process.
    #[command(flatten)]
    pub common: args::Common,
    /// Address for browsers.
    #[arg(long, env = "LAB_LISTEN", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// File with the database's URL.
    #[arg(long, env = "LAB_DATABASE_URL_FILE", value_name = "FILE")]
    pub database_url_file: PathBuf,
    /// Directory of labs.
    #[arg(long, env = "LAB_LABS", value_name = "DIR")]
    pub labs: PathBuf,
    /// Our own origin, as browsers see it.
    #[arg(long, env = "LAB_PUBLIC_URL", default_value = "http://127.0.0.1:8080")]
    pub public_url: Url,
    /// Ed25519 key that signs tokens, PKCS#8 PEM.
    #[arg(long, env = "LAB_JWT_PRIVATE_KEY", value_name = "FILE")]
    pub jwt_private_key: PathBuf,
    /// Anyone who comes from this machine may sign in under any name. Loopback only.
    #[arg(long, env = "LAB_DEV_LOGIN")]
    pub dev_login: bool,
    /// Static files of the page.
    #[arg(long, env = "LAB_WEB", value_name = "DIR")]
    pub web: Option<PathBuf>,
    /// Machines that this environment may have.
    #[arg(long, env = "LAB_VM_CAP", default_value_t = 8)]
    pub vm_cap: usize,
    /// Stretches start limits where guests run in emulation.
    #[arg(long, env = "LAB_TIME_FACTOR", default_value_t = 1.0)]
    pub time_factor: f64,
    /// Sign-in of production.
    #[command(flatten)]
    pub oidc: OidcArgs,
}

/// The operator's identity provider.
#[derive(Debug, Clone, clap::Args)]
pub struct OidcArgs {
    /// Issuer of an OpenID Connect provider; without it there is no such sign-in.
    #[arg(long, env = "LAB_OIDC_ISSUER", requires = "oidc_client_id")]
    pub oidc_issuer: Option<Url>,
    /// Our client id there.
    #[arg(long, env = "LAB_OIDC_CLIENT_ID")]
    pub oidc_client_id: Option<String>,
    /// File with our client secret there; a public client has none.
    #[arg(long, env = "LAB_OIDC_CLIENT_SECRET_FILE", value_name = "FILE")]
    pub oidc_client_secret_file: Option<PathBuf>,
    /// Claim of the ID token that lists `teacher` and `admin`.
    #[arg(long, env = "LAB_OIDC_ROLES_CLAIM", default_value = "roles")]
    pub oidc_roles_claim: String,
}

/// Arguments of `setup`.
#[derive(Debug, Clone, clap::Args)]
pub struct Setup {
    /// The environment.
    #[arg(long, env = "LAB_ENVIRONMENT", default_value = "dev")]
    pub environment: Environment,
    /// The broker.
    #[command(flatten)]
    pub nats: args::Nats,
    /// The cluster.
    #[command(flatten)]
    pub cluster: args::Cluster,
    /// File with the database's URL.
    #[arg(long, env = "LAB_DATABASE_URL_FILE", value_name = "FILE")]
    pub database_url_file: PathBuf,
    /// Copies of each stream.
    #[arg(long, env = "LAB_NATS_REPLICAS", default_value_t = 1)]
    pub nats_replicas: usize,
    /// What is logged.
    #[arg(long, env = "LAB_LOG", default_value = "info")]
    pub log: String,
}

/// Arguments that cannot work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Two arguments contradict each other, or one is out of range.
    #[error("{0}")]
    Invalid(&'static str),
    /// A file cannot be read.
    #[error("cannot read {path}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl Serve {
    /// Checks what clap cannot.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn check(&self) -> Result<(), Error> {
        if self.dev_login && !self.listen.ip().is_loopback() {
            return Err(Error::Invalid(
                "--dev-login lets anyone in as anyone: --listen must be a loopback address",
            ));
        }
        if !self.time_factor.is_finite() || !(0.01..=100.0).contains(&self.time_factor) {
            return Err(Error::Invalid("--time-factor must be between 0.01 and 100"));
        }
        if !matches!(self.public_url.scheme(), "http" | "https") {
            return Err(Error::Invalid("--public-url must begin with http:// or https://"));
        }
        if self.vm_cap > 100_000 {
            return Err(Error::Invalid("--vm-cap must be at most 100000"));
        }
        Ok(())
    }

    /// The origin without a path.
    #[must_use]
    pub fn origin(&self) -> String {
        self.public_url.origin().ascii_serialization()
    }
}

/// Reads a file that holds a secret.
///
/// # Errors
/// If it cannot be read.
pub fn read_secret(path: &PathBuf) -> Result<SecretString, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::File { path: path.clone(), source })?;
    Ok(SecretString::from(text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(more: &[&str]) -> Result<(), Error> {
        let base = ["lab-api", "serve", "--database-url-file", "u", "--labs", "l", "--jwt-private-key", "k"];
        let cli = Cli::try_parse_from(base.iter().chain(more)).unwrap();
        match cli.command {
            Command::Serve(args) => args.check(),
            Command::Setup(_) => panic!("serve was asked for"),
        }
    }

    #[test]
    fn signing_in_by_name_is_refused_anywhere_but_on_loopback() {
        assert!(serve(&["--dev-login"]).is_ok());
        assert!(serve(&["--dev-login", "--listen", "0.0.0.0:8080"]).is_err());
        assert!(serve(&["--listen", "0.0.0.0:8080"]).is_ok());
    }

    #[test]
    fn senseless_numbers_are_refused() {
        for factor in ["0", "-1", "NaN", "inf", "1000"] {
            assert!(serve(&[&format!("--time-factor={factor}")]).is_err(), "{factor}");
        }
    }
}
