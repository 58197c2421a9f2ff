//! What can go wrong between readiness and the cluster.

/// One variant per operation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not answer as hoped.
    #[error("cannot {operation} {name}")]
    Cluster {
        /// What was tried.
        operation: &'static str,
        /// With what.
        name: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("no answer from the cluster: {operation} {name}")]
    TimedOut {
        /// What was tried.
        operation: &'static str,
        /// With what.
        name: String,
    },
    /// The api did not answer, or not in a way that this build can read. It says nothing about the session.
    #[error("the api did not tell about sessions")]
    Ask(#[source] lab_bus::Error),
}
