//! Who may do what on the bus, and the server configuration that enforces it.
//!
//! Each service publishes only its own facts (decisions and timers: the api), administers only its own durables, and
//! reads replies only in its own inbox. Streams belong to a set-up identity. What is not listed is refused.

use std::fmt::Write as _;

use lab_proto::subjects::{self, Subjects, publishes};
use secrecy::SecretString;

/// A user of the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// Makes the streams, nothing else.
    Setup,
    /// Decides.
    Api,
    /// Creates machines.
    Provisioner,
    /// Watches machines.
    Readiness,
    /// Deletes machines.
    Reaper,
    /// Opens consoles.
    ConsoleGw,
    /// Reads the public mirror.
    Subscriber,
}

impl Identity {
    /// Every identity.
    pub const ALL: &'static [Self] = &[
        Self::Setup,
        Self::Api,
        Self::Provisioner,
        Self::Readiness,
        Self::Reaper,
        Self::ConsoleGw,
        Self::Subscriber,
    ];

    /// Its name: the service's.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Api => "api",
            Self::Provisioner => "provisioner",
            Self::Readiness => "readiness",
            Self::Reaper => "reaper",
            Self::ConsoleGw => "console-gw",
            Self::Subscriber => "subscriber",
        }
    }

    /// Where replies to it arrive. Its own, or every service could read every answer.
    #[must_use]
    pub fn inbox_prefix(self, names: &Subjects) -> String {
        match self {
            // Any client's default.
            Self::Subscriber => "_INBOX".to_owned(),
            Self::Setup
            | Self::Api
            | Self::Provisioner
            | Self::Readiness
            | Self::Reaper
            | Self::ConsoleGw => {
                format!("_INBOX_{}_{}", names.environment(), self.as_str())
            }
        }
    }

    /// Durables of the events stream that it may create and bind.
    #[must_use]
    pub const fn durables(self) -> &'static [&'static str] {
        match self {
            Self::Api => &[durable::API_FACTS],
            Self::Provisioner => &[durable::PROVISIONER_REQUESTS],
            Self::Readiness => &[durable::READINESS_PROVISIONED],
            Self::Reaper => &[durable::REAPER_ENDINGS],
            Self::Setup | Self::ConsoleGw | Self::Subscriber => &[],
        }
    }

    /// Durables of the timers stream that it may create and bind.
    #[must_use]
    pub const fn timer_durables(self) -> &'static [&'static str] {
        match self {
            Self::Reaper => &[durable::REAPER_TIMEOUTS],
            Self::Setup
            | Self::Api
            | Self::Provisioner
            | Self::Readiness
            | Self::ConsoleGw
            | Self::Subscriber => &[],
        }
    }

    const fn events(self) -> &'static [&'static str] {
        match self {
            Self::Api => publishes::API,
            Self::Provisioner => publishes::PROVISIONER,
            Self::Readiness => publishes::READINESS,
            Self::Reaper => publishes::REAPER,
            Self::ConsoleGw => publishes::CONSOLE_GW,
            Self::Setup | Self::Subscriber => &[],
        }
    }

    const fn asks(self) -> &'static [&'static str] {
        match self {
            Self::Api => &[subjects::GRADE],
            Self::Provisioner | Self::Reaper => {
                &[subjects::GET_SESSION, subjects::LIST_SESSIONS, subjects::CLASSIFY_OBJECT]
            }
            Self::Readiness => &[subjects::GET_SESSION, subjects::LIST_SESSIONS],
            Self::ConsoleGw => &[subjects::GET_SESSION, subjects::LIST_SESSIONS, subjects::RESIZE],
            Self::Setup | Self::Subscriber => &[],
        }
    }

    const fn answers(self) -> &'static [&'static str] {
        match self {
            Self::Api => &[subjects::GET_SESSION, subjects::LIST_SESSIONS, subjects::CLASSIFY_OBJECT],
            Self::Readiness => &[subjects::GRADE, subjects::RESIZE],
            Self::Setup | Self::Provisioner | Self::Reaper | Self::ConsoleGw | Self::Subscriber => &[],
        }
    }
}

/// Names of the durables: service and purpose.
pub mod durable {
    /// Facts to project.
    pub const API_FACTS: &str = "api-facts";
    /// Sessions to provision.
    pub const PROVISIONER_REQUESTS: &str = "provisioner-requests";
    /// Machines to watch.
    pub const READINESS_PROVISIONED: &str = "readiness-provisioned";
    /// Sessions to delete.
    pub const REAPER_ENDINGS: &str = "reaper-endings";
    /// Fired timers.
    pub const REAPER_TIMEOUTS: &str = "reaper-timeouts";
}

/// What the broker lets one identity do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    /// Subjects that it may publish on.
    pub publish: Vec<String>,
    /// Subjects that it may subscribe to.
    pub subscribe: Vec<String>,
    /// Whether it may reply to what it is asked.
    pub replies: bool,
}

/// The permissions of `identity` in one environment.
#[must_use]
pub fn permissions(names: &Subjects, identity: Identity) -> Permissions {
    let mut publish = Vec::new();
    let mut subscribe = vec![format!("{}.>", identity.inbox_prefix(names))];
    publish.extend(identity.events().iter().map(|kind| names.every(kind)));
    publish.extend(identity.asks().iter().map(|question| names.ask(question)));
    subscribe.extend(identity.answers().iter().map(|question| names.ask(question)));
    for (stream, durables) in
        [(names.events_stream(), identity.durables()), (names.timers_stream(), identity.timer_durables())]
    {
        for durable in durables {
            publish.extend([
                format!("$JS.API.CONSUMER.CREATE.{stream}.{durable}"),
                format!("$JS.API.CONSUMER.INFO.{stream}.{durable}"),
                format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"),
                format!("$JS.ACK.{stream}.{durable}.>"),
                names.dead_letter(durable),
            ]);
        }
    }
    let (events, public) = (names.events_stream(), names.public_stream());
    match identity {
        Identity::Setup => {
            for stream in [events, names.timers_stream(), public] {
                for verb in ["CREATE", "UPDATE", "INFO"] {
                    publish.push(format!("$JS.API.STREAM.{verb}.{stream}"));
                }
            }
        }
        Identity::Api => {
            publish.push(format!("$JS.API.STREAM.INFO.{events}"));
            publish.push(format!("$JS.API.DIRECT.GET.{events}"));
            publish.push(names.all_timers());
            subscribe.push(names.all_events());
        }
        Identity::Provisioner | Identity::Readiness | Identity::Reaper => {
            publish.push(format!("$JS.API.STREAM.INFO.{events}"));
        }
        Identity::ConsoleGw => {
            publish.push(format!("$JS.API.STREAM.INFO.{events}"));
            subscribe.push(names.every("session-ending"));
        }
        Identity::Subscriber => {
            publish.extend([
                "$JS.API.INFO".to_owned(),
                "$JS.API.STREAM.NAMES".to_owned(),
                format!("$JS.API.STREAM.INFO.{public}"),
                format!("$JS.API.DIRECT.GET.{public}"),
                format!("$JS.API.CONSUMER.CREATE.{public}.>"),
                format!("$JS.API.CONSUMER.CREATE.{public}"),
                format!("$JS.API.CONSUMER.DURABLE.CREATE.{public}.>"),
                format!("$JS.API.CONSUMER.INFO.{public}.>"),
                format!("$JS.API.CONSUMER.DELETE.{public}.>"),
                format!("$JS.API.CONSUMER.MSG.NEXT.{public}.>"),
                format!("$JS.ACK.{public}.>"),
                format!("$JS.FC.{public}.>"),
            ]);
        }
    }
    Permissions { publish, subscribe, replies: !identity.answers().is_empty() }
}

/// One user of the server.
#[derive(Debug, Clone)]
pub struct User {
    /// Who.
    pub identity: Identity,
    /// The public half of its nkey (`U…`).
    pub public_key: String,
}

/// A new nkey: the seed for a file that only its service reads, and the public key for the server.
#[must_use]
pub fn new_key() -> (SecretString, String) {
    let pair = nkeys::KeyPair::new_user();
    let seed = pair.seed().expect("a pair that was just made has its seed");
    (SecretString::from(seed), pair.public_key())
}

/// The public key of a seed; `None` if it is none.
#[must_use]
pub fn public_key(seed: &str) -> Option<String> {
    nkeys::KeyPair::from_seed(seed.trim()).ok().map(|pair| pair.public_key())
}

/// The `authorization` block of a server configuration.
#[must_use]
pub fn authorization(names: &Subjects, users: &[User]) -> String {
    let mut text = String::from("authorization {\n  users = [\n");
    for User { identity, public_key } in users {
        let Permissions { publish, subscribe, replies } = permissions(names, *identity);
        let list = |subjects: &[String]| {
            let quoted: Vec<String> = subjects.iter().map(|s| format!("          {s:?}")).collect();
            quoted.join("\n")
        };
        let responses =
            // The longest grader may take 600 s, and its answer is a reply.
            if replies { "        allow_responses = { max = 1, expires = \"700s\" }\n" } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "    # {name} of {env}\n    {{\n      nkey = {public_key:?}\n      permissions = {{\n        \
             publish = {{ allow = [\n{publish}\n        ] }}\n        subscribe = {{ allow = [\n{subscribe}\n        \
             ] }}\n{responses}      }}\n    }}\n",
            name = identity.as_str(),
            env = names.environment(),
            publish = list(&publish),
            subscribe = list(&subscribe),
        );
    }
    text.push_str("  ]\n}\n");
    text
}
