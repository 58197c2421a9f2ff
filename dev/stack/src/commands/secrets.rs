//! `./lab secrets`: the Secrets that `deploy/` expects, for `kubectl apply -f -`.
//!
//! Keys are made once in a directory that the operator keeps; the same directory gives the same Secrets again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use base64::Engine as _;
use lab_bus::Identity;
use serde_json::{Value, json};

use crate::keys::Keys;
use crate::{nats, ui};

/// What the Secrets are made for.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct SecretsArgs {
    /// The environment: [a-z0-9]{1,16}
    #[arg(long)]
    environment: String,
    /// The namespace of the services
    #[arg(long, default_value = "ttlab")]
    namespace: String,
    /// A directory for the keys; keep it, and keep it secret
    #[arg(long)]
    keys: PathBuf,
    /// A file with the URL of the environment's PostgreSQL database
    #[arg(long)]
    database_url_file: Option<PathBuf>,
}

/// Prints a List of Secrets.
pub(crate) fn secrets(args: &SecretsArgs) -> Result<ExitCode> {
    let keys = Keys::ensure(&args.keys)?;
    let secret = |name: &str, data: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
            "metadata": {"name": name, "namespace": args.namespace},
        })
    };
    let everywhere = |port: u16| std::net::SocketAddr::from(([0, 0, 0, 0], port));
    let broker =
        nats::render(&args.environment, everywhere(4222), everywhere(8222), Path::new("/data"), &keys)?;
    let mut items = vec![
        secret("ttlab-nats", json!({"nats.conf": encode(broker.as_bytes())})),
        secret("ttlab-token-key", json!({"token.key": file(&keys.token())?})),
        secret(
            "ttlab-jwt",
            json!({"private.pem": file(&keys.jwt_private())?, "public.pem": file(&keys.jwt_public())?}),
        ),
    ];
    for identity in Identity::ALL {
        let name = identity.as_str();
        let mut data = serde_json::Map::new();
        data.insert(format!("{name}.nk"), file(&keys.nkey(name))?);
        items.push(secret(&format!("ttlab-nats-{name}"), Value::Object(data)));
    }
    if let Some(url) = &args.database_url_file {
        items.push(secret("ttlab-database", json!({"url": file(url)?})));
    }
    ui::say(serde_json::to_string_pretty(&json!({"apiVersion": "v1", "kind": "List", "items": items}))?);
    Ok(ExitCode::SUCCESS)
}

fn file(path: &Path) -> Result<Value> {
    Ok(encode(&fs::read(path).with_context(|| format!("cannot read {}", path.display()))?))
}

fn encode(bytes: &[u8]) -> Value {
    Value::String(base64::engine::general_purpose::STANDARD.encode(bytes))
}
