//! What can go wrong on the bus, and what kind of wrong it is.

use std::path::PathBuf;

/// A cause from below, already boxed by the client library.
pub(crate) type Source = Box<dyn std::error::Error + Send + Sync>;

/// What a caller does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It passes: try again later.
    Retry,
    /// Somebody else holds the name: an operator decides.
    Conflict,
    /// Trying again cannot help.
    Permanent,
}

/// One variant per operation that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The nkey seed could not be read.
    #[error("cannot read the nkey seed in {path}", path = path.display())]
    Seed {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No connection.
    #[error("cannot connect to the broker at {url}")]
    Connect {
        /// The address.
        url: String,
        /// Why.
        #[source]
        source: Source,
    },
    /// Older servers accept our stream settings and silently ignore them.
    #[error("the broker is nats-server {version}; at least 2.12.0 is needed")]
    ServerTooOld {
        /// What the server calls itself.
        version: String,
    },
    /// The stream gave no ack, although the message was repeated under its id.
    #[error("no ack for a message on {subject}")]
    Publish {
        /// The subject.
        subject: String,
        /// Why the last try failed.
        #[source]
        source: Source,
    },
    /// An event without content or with a malformed session id.
    #[error("this event cannot be published: {0}")]
    InvalidEvent(&'static str),
    /// A stream could not be read or made.
    #[error("cannot {operation} stream {stream}")]
    Stream {
        /// What was tried.
        operation: &'static str,
        /// The stream.
        stream: String,
        /// Why.
        #[source]
        source: Source,
    },
    /// The streams of this environment belong to another installation.
    #[error("stream {stream} belongs to installation {found}, not to {expected}")]
    OtherInstallation {
        /// The stream.
        stream: String,
        /// The id in its metadata; empty if it has none.
        found: String,
        /// Ours.
        expected: String,
    },
    /// A consumer's state could not be read.
    #[error("cannot read the state of consumer {consumer}")]
    Consumer {
        /// The durable.
        consumer: &'static str,
        /// Why.
        #[source]
        source: Source,
    },
    /// A subscription was refused.
    #[error("cannot subscribe to {subject}")]
    Subscribe {
        /// The filter.
        subject: String,
        /// Why.
        #[source]
        source: Source,
    },
    /// Nobody answered in time. It means nothing about what was asked.
    #[error("no answer to the question {question}")]
    NoAnswer {
        /// The question.
        question: &'static str,
        /// Why.
        #[source]
        source: Source,
    },
    /// The one who was asked could not answer.
    #[error("the question {question} was refused: {code}")]
    Refused {
        /// The question.
        question: &'static str,
        /// Machine-readable.
        code: String,
    },
    /// An answer that is not of the expected form.
    #[error("the answer to the question {question} cannot be decoded")]
    Undecodable {
        /// The question.
        question: &'static str,
        /// Why.
        #[source]
        source: prost::DecodeError,
    },
    /// A subscription or a connection ended before what was waited for.
    #[error("cannot {operation}")]
    Connection {
        /// What was tried.
        operation: &'static str,
        /// Why.
        #[source]
        source: Source,
    },
}

impl Error {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Connect { .. }
            | Self::Publish { .. }
            | Self::Stream { .. }
            | Self::Consumer { .. }
            | Self::Subscribe { .. }
            | Self::NoAnswer { .. }
            | Self::Refused { .. }
            | Self::Connection { .. } => Class::Retry,
            Self::OtherInstallation { .. } => Class::Conflict,
            Self::Seed { .. }
            | Self::ServerTooOld { .. }
            | Self::InvalidEvent(_)
            | Self::Undecodable { .. } => Class::Permanent,
        }
    }
}
