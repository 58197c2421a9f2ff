//! What the gateway can be told.

use std::{net::SocketAddr, path::PathBuf};

use clap::Parser;
use lab_kit::args::Common;
use url::Url;

/// TT Lab's console gateway: a browser's WebSocket to the serial console of a student's machine.
#[derive(Debug, Clone, Parser)]
#[command(name = "lab-console-gw", version)]
pub struct Args {
    /// What every service takes.
    #[command(flatten)]
    pub common: Common,
    /// Address of the WebSocket listener, behind the front door.
    #[arg(long, env = "LAB_LISTEN", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// The page's address as browsers know it, for example `https://lab.example.org`: the only allowed Origin.
    #[arg(long, env = "LAB_PUBLIC_URL", default_value = "http://127.0.0.1:8080")]
    pub public_url: Url,
    /// File with the Ed25519 public key (SPKI, PEM) that checks tokens.
    #[arg(long, env = "LAB_JWT_PUBLIC_KEY", value_name = "FILE")]
    pub jwt_public_key: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_required_and_the_url_must_be_one() {
        assert!(Args::try_parse_from(["lab-console-gw"]).is_err());
        assert!(
            Args::try_parse_from(["lab-console-gw", "--jwt-public-key", "k", "--public-url", "nope"])
                .is_err()
        );
        let args = Args::try_parse_from(["lab-console-gw", "--jwt-public-key", "k"]).unwrap();
        assert!(args.listen.ip().is_loopback());
    }
}
