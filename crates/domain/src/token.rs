//! The token by which a machine's agent knows its caller: HMAC-SHA256 of session and machine.
//!
//! Whoever has the key can make every token, so it need not be stored anywhere: the provisioner writes it into the machine,
//! readiness makes it anew. A key has an id, written on Secret and VM, so that keys can be changed while machines live.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use crate::{MachineName, SessionId};

/// A shorter key is a mistake, for example an empty file.
const LEAST_BYTES: usize = 16;

/// The key. Never shown.
#[derive(Clone)]
pub struct TokenKey(Vec<u8>);

/// A key that is too short to be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a token key has at least {LEAST_BYTES} bytes")]
pub struct TooShort;

impl TokenKey {
    /// The key of a key file: all its bytes.
    ///
    /// # Errors
    /// If it is shorter than any real key.
    pub fn new(bytes: Vec<u8>) -> Result<Self, TooShort> {
        if bytes.len() < LEAST_BYTES { Err(TooShort) } else { Ok(Self(bytes)) }
    }

    /// What objects say about the key that made their token: 8 hex digits.
    #[must_use]
    pub fn id(&self) -> String {
        hex::encode(&Sha256::digest(&self.0)[..4])
    }

    /// The token of one machine, lower-case hex.
    #[must_use]
    pub fn token(&self, session: SessionId, machine: &MachineName) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(format!("{session}/{machine}").as_bytes());
        hex::encode(mac.finalize().into_bytes())
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenKey({})", self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_has_its_own_token_and_tokens_never_change() {
        let key = TokenKey::new(b"0123456789abcdef".to_vec()).unwrap();
        let session: SessionId = "0198f6c4-7b1c-7c3e-8f00-000000000001".parse().unwrap();
        let (main, other) = (MachineName::new("main").unwrap(), MachineName::new("other").unwrap());
        // echo -n 0198f6c4-7b1c-7c3e-8f00-000000000001/main | openssl dgst -sha256 -hmac 0123456789abcdef
        assert_eq!(
            key.token(session, &main),
            "525ea67ef70593c7ff56af486d4fa41dcd742c32fa3f6c95555d986099131875"
        );
        assert_ne!(key.token(session, &main), key.token(session, &other));
        assert_ne!(key.token(session, &main), key.token(SessionId::generate(), &main));
    }

    #[test]
    fn a_key_has_an_id_and_does_not_show_itself() {
        let key = TokenKey::new(b"0123456789abcdef".to_vec()).unwrap();
        assert_eq!(format!("{key:?}"), format!("TokenKey({})", key.id()));
        assert_eq!(key.id().len(), 8);
        assert_eq!(TokenKey::new(b"short".to_vec()).unwrap_err(), TooShort);
    }
}
