//! What can go wrong. Every one of these means: nothing more is deleted now, and nothing is called gone.

use lab_domain::SessionId;

use crate::known::Malformed;

/// One variant per operation that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No answer of the api.
    #[error("cannot ask the api about session {session}")]
    Ask {
        session: SessionId,
        #[source]
        source: lab_bus::Error,
    },
    /// An answer that this build cannot read.
    #[error("cannot read the api's answer about session {session}")]
    Answer {
        session: SessionId,
        #[source]
        source: Malformed,
    },
    /// The sessions could not be listed.
    #[error("cannot list the sessions")]
    List(#[source] lab_bus::Error),
    /// A fact got no ack.
    #[error("cannot publish a fact of session {session}")]
    Publish {
        session: SessionId,
        #[source]
        source: lab_bus::Error,
    },
    /// The cluster refused or did not answer.
    #[error("cannot {operation} {kind} {name}")]
    Cluster {
        operation: &'static str,
        kind: &'static str,
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer of the cluster in time: it may have happened all the same.
    #[error("no answer in time to: {operation} {kind} {name}")]
    TimedOut { operation: &'static str, kind: &'static str, name: String },
    /// Not everything of the session could be seen.
    #[error("not everything of session {session} could be seen")]
    Unseen { session: SessionId },
    /// The installation is not agreed, so nothing may be deleted.
    #[error("the installation is not agreed")]
    Closed,
}
