//! Keys and identities of one stack, made once and kept in its state directory, readable by its owner only.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine as _;
use nkeys::{KeyPair, KeyPairType};
use rand::TryRngCore as _;

use crate::paths::{make_dir, write_atomically};

/// DER in front of the 32 bytes of an Ed25519 private key (RFC 8410, PKCS#8 version 1).
const PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// DER in front of the 32 bytes of an Ed25519 public key (RFC 8410, SubjectPublicKeyInfo).
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The key files.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    dir: PathBuf,
}

impl Keys {
    /// Makes what is missing.
    pub(crate) fn ensure(state: &Path) -> Result<Self> {
        let dir = state.join("keys");
        make_dir(&dir, 0o700)?;
        let keys = Self { dir };
        if !keys.token().exists() {
            write_atomically(&keys.token(), &random()?, 0o600)?;
        }
        if !keys.jwt_private().exists() || !keys.jwt_public().exists() {
            let (private, public) = ed25519_pem()?;
            write_atomically(&keys.jwt_public(), public.as_bytes(), 0o600)?;
            write_atomically(&keys.jwt_private(), private.as_bytes(), 0o600)?;
        }
        Ok(keys)
    }

    pub(crate) fn token(&self) -> PathBuf {
        self.dir.join("token.key")
    }

    pub(crate) fn jwt_private(&self) -> PathBuf {
        self.dir.join("jwt-private.pem")
    }

    pub(crate) fn jwt_public(&self) -> PathBuf {
        self.dir.join("jwt-public.pem")
    }

    /// The seed file of a NATS identity.
    pub(crate) fn nkey(&self, identity: &str) -> PathBuf {
        self.dir.join(format!("nats-{identity}.nk"))
    }

    /// The public key of a NATS identity; the identity is made if there is none yet.
    pub(crate) fn nkey_public(&self, identity: &str) -> Result<String> {
        let file = self.nkey(identity);
        if !file.exists() {
            let seed = KeyPair::new_user().seed().context("cannot make a NATS identity")?;
            write_atomically(&file, seed.as_bytes(), 0o600)?;
        }
        let seed = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let pair = KeyPair::from_seed(seed.trim()).with_context(|| {
            format!("{} holds no NATS seed: remove the file, it is made anew", file.display())
        })?;
        Ok(pair.public_key())
    }
}

fn random() -> Result<[u8; 32]> {
    let mut bytes = [0_u8; 32];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes).context("the system gives no random bytes")?;
    Ok(bytes)
}

/// A new Ed25519 pair as PEM: private (PKCS#8), public (SPKI).
fn ed25519_pem() -> Result<(String, String)> {
    let secret = random()?;
    // An nkey is an Ed25519 key in NATS' own letters: it saves us a second implementation of the curve.
    let pair = KeyPair::new_from_raw(KeyPairType::User, secret).context("cannot make an Ed25519 key")?;
    let (_, public) =
        nkeys::from_public_key(&pair.public_key()).context("cannot read back an Ed25519 key")?;
    Ok((
        pem("PRIVATE KEY", &[&PKCS8[..], &secret[..]].concat()),
        pem("PUBLIC KEY", &[&SPKI[..], &public[..]].concat()),
    ))
}

fn pem(label: &str, der: &[u8]) -> String {
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> =
        body.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_are_private_and_stay_what_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::ensure(dir.path()).unwrap();
        let before = (fs::read(keys.token()).unwrap(), fs::read(keys.jwt_private()).unwrap());
        let api = keys.nkey_public("api").unwrap();
        let keys = Keys::ensure(dir.path()).unwrap();
        assert_eq!(before, (fs::read(keys.token()).unwrap(), fs::read(keys.jwt_private()).unwrap()));
        assert_eq!(keys.nkey_public("api").unwrap(), api);
        for file in [keys.token(), keys.jwt_private(), keys.nkey("api")] {
            assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn the_public_pem_belongs_to_the_private_one() {
        let (private, public) = ed25519_pem().unwrap();
        let der = |text: &str| {
            let body: String = text.lines().filter(|line| !line.starts_with('-')).collect();
            base64::engine::general_purpose::STANDARD.decode(body).unwrap()
        };
        let secret: [u8; 32] = der(&private)[16..].try_into().unwrap();
        let pair = KeyPair::new_from_raw(KeyPairType::User, secret).unwrap();
        let (_, expected) = nkeys::from_public_key(&pair.public_key()).unwrap();
        assert_eq!(der(&public)[12..], expected);
    }
}
