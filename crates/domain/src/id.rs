//! Typed identifiers: no bare `String` or `Uuid` crosses a function boundary.
//!
//! Each type checks its form when it is made, so a value of it is always safe in a subject, a label, a name or a path.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// A string that is not of the form that its type asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a valid {what}: {rule}")]
pub struct Malformed {
    what: &'static str,
    rule: &'static str,
    value: String,
}

impl Malformed {
    fn new(what: &'static str, rule: &'static str, value: &str) -> Self {
        // Hostile input must not fill a log line.
        Self { what, rule, value: value.chars().take(80).collect() }
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            #[doc = concat!("Checks and wraps the text of a ", $what, ".")]
            ///
            /// # Errors
            /// Says the rule that the text breaks.
            pub fn new(value: impl Into<String>) -> Result<Self, Malformed> {
                let value = value.into();
                let check: fn(&str) -> bool = $check;
                if check(&value) { Ok(Self(value)) } else { Err(Malformed::new($what, $rule, &value)) }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Malformed;
            fn from_str(s: &str) -> Result<Self, Malformed> {
                Self::new(s)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Malformed;
            fn try_from(s: String) -> Result<Self, Malformed> {
                Self::new(s)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = Malformed;
            /// Takes the hyphenated lower-case form only: one id has one spelling in names and subjects.
            fn from_str(s: &str) -> Result<Self, Malformed> {
                match Uuid::try_parse(s) {
                    Ok(id) if id.to_string() == s => Ok(Self(id)),
                    Ok(_) | Err(_) => Err(Malformed::new($what, "a hyphenated lower-case UUID", s)),
                }
            }
        }
    };
}

uuid_id!(
    /// One student's run of one lab: a UUIDv7, so ids sort by creation.
    SessionId,
    "session id"
);
uuid_id!(
    /// One event: UUIDv5 for facts, UUIDv7 for decisions. Also the `Nats-Msg-Id`.
    EventId,
    "event id"
);
uuid_id!(
    /// Written by the first migration of an environment's database; guards two environments of one name.
    InstallationId,
    "installation id"
);

impl SessionId {
    /// A new id of the current time. The time inside serves only the order.
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }
}

impl EventId {
    /// A new id for a decision.
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }
}

fn is_slug(s: &str, max: usize) -> bool {
    let mut bytes = s.bytes();
    s.len() <= max
        && bytes.next().is_some_and(|b| b.is_ascii_lowercase())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !s.ends_with('-')
}

text_id!(
    /// `dev`, `staging`, `prod`…: several may share one Kubernetes namespace.
    Environment,
    "environment",
    "1 to 16 of a-z and 0-9",
    |s| (1..=16).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
);
text_id!(
    /// A machine's name within its session.
    MachineName,
    "machine name",
    "1 to 20 of a-z, 0-9 and -, beginning with a letter, not ending with -",
    |s| is_slug(s, 20)
);
text_id!(
    /// A lab's id: the name of its directory.
    LabId,
    "lab id",
    "1 to 40 of a-z, 0-9 and -, beginning with a letter, not ending with -",
    |s| is_slug(s, 40)
);
text_id!(
    /// SHA-256 of a lab's content or an image, lower-case hex without a prefix.
    Digest,
    "digest",
    "64 lower-case hex digits",
    |s| s.len() == 64 && s.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
);
text_id!(
    /// The user as events know them: opaque, stable within an installation.
    UserId,
    "user id",
    "u- and 32 lower-case hex digits",
    |s| s.strip_prefix("u-").is_some_and(|h| h.len() == 32 && h.bytes().all(|b| b.is_ascii_hexdigit()))
);
text_id!(
    /// The user as the token names them (`sub`). Personal: never in an event, a log or a label.
    OwnerName,
    "user name",
    "1 to 200 characters, none of them a control character",
    |s| (1..=200).contains(&s.chars().count()) && !s.chars().any(char::is_control)
);
text_id!(
    /// `metadata.uid` of a Kubernetes object.
    ObjectUid,
    "object uid",
    "1 to 64 of a-z, A-Z, 0-9 and -",
    |s| (1..=64).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
);

impl UserId {
    /// The opaque id of `owner` in this installation. Another installation gives the same person another id.
    #[must_use]
    pub fn of(installation: InstallationId, owner: &OwnerName) -> Self {
        let mut hash = Sha256::new();
        hash.update(installation.0.as_bytes());
        hash.update(owner.as_str().as_bytes());
        Self(format!("u-{}", &hex::encode(hash.finalize())[..32]))
    }
}

/// Name of the VirtualMachine, of its VMI and of its Secret. At most 61 bytes, so it is a DNS label.
#[must_use]
pub fn object_name(session: SessionId, machine: &MachineName) -> String {
    format!("lab-{session}-{machine}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_object_name_is_a_dns_label() {
        let machine = MachineName::new("abcdefghij0123456789").unwrap();
        assert!(object_name(SessionId::generate(), &machine).len() <= 63);
    }

    #[test]
    fn malformed_ids_are_refused() {
        for bad in ["", "Dev", "a-b", "averyveryverylong1", "ü", "a b", "a.b", "*", ">"] {
            assert!(Environment::new(bad).is_err(), "{bad}");
        }
        for bad in ["", "1a", "-a", "a-", "A", "a_b", "abcdefghij01234567890", "a.b", "../x"] {
            assert!(MachineName::new(bad).is_err(), "{bad}");
        }
        for bad in [
            "",
            "not-a-uuid",
            "0198F6C4-7B1C-7C3E-8F00-000000000000",
            "{0198f6c4-7b1c-7c3e-8f00-000000000000}",
        ] {
            assert!(bad.parse::<SessionId>().is_err(), "{bad}");
        }
        assert!(OwnerName::new("a\nb").is_err());
    }

    #[test]
    fn a_user_id_tells_neither_the_name_nor_the_installation() {
        let owner = OwnerName::new("alice@example.org").unwrap();
        let (one, two) = (InstallationId(Uuid::from_u128(1)), InstallationId(Uuid::from_u128(2)));
        assert_eq!(UserId::of(one, &owner), UserId::of(one, &owner));
        assert_ne!(UserId::of(one, &owner), UserId::of(two, &owner));
        assert!(!UserId::of(one, &owner).as_str().contains("alice"));
        assert!(UserId::new(UserId::of(one, &owner).as_str()).is_ok());
    }
}
