//! The signing key: one private key is given; the public one, with which tokens are checked, comes out of it.

use base64::{Engine as _, engine::general_purpose};
use jsonwebtoken::{
    Algorithm, EncodingKey,
    jwk::{AlgorithmParameters, Jwk},
};

/// DER before the 32 bytes of an Ed25519 SubjectPublicKeyInfo (RFC 8410).
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("not an Ed25519 private key in PKCS#8 PEM form")]
pub struct BadKey;

/// The public key, in PEM form, of a private one.
///
/// # Errors
/// If it is no Ed25519 key.
pub fn public_pem(private_pem: &[u8]) -> Result<String, BadKey> {
    let key = EncodingKey::from_ed_pem(private_pem).map_err(|_| BadKey)?;
    let jwk = Jwk::from_encoding_key(&key, Algorithm::EdDSA).map_err(|_| BadKey)?;
    let AlgorithmParameters::OctetKeyPair(pair) = jwk.algorithm else { return Err(BadKey) };
    let point = general_purpose::URL_SAFE_NO_PAD.decode(pair.x).map_err(|_| BadKey)?;
    let der = [SPKI.as_slice(), &point].concat();
    let text = general_purpose::STANDARD.encode(der);
    Ok(format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8410, section 10.3 and 10.1. The pair is a published example and guards nothing.
    const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
        -----END PRIVATE KEY-----\n";
    const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\n\
        MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n\
        -----END PUBLIC KEY-----\n";

    #[test]
    fn the_public_key_comes_out_of_the_private_one() {
        assert_eq!(public_pem(PRIVATE.as_bytes()).unwrap(), PUBLIC);
        assert!(public_pem(b"no key").is_err());
        assert!(public_pem(PUBLIC.as_bytes()).is_err());
    }
}
