//! Logs: one JSON object per line on standard error.

use tracing_subscriber::{
    EnvFilter, filter::ParseError, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter is malformed.
    #[error("{filter:?} is not a log filter")]
    Filter {
        /// What was given.
        filter: String,
        /// Why.
        #[source]
        source: ParseError,
    },
    /// The process has a subscriber already.
    #[error("logging is set up already")]
    Twice(#[source] tracing_subscriber::util::TryInitError),
}

/// Sets up logging for the process.
///
/// # Errors
/// If the filter is malformed, or logging was set up before.
pub fn init(filter: &str) -> Result<(), Error> {
    let filter =
        EnvFilter::try_new(filter).map_err(|source| Error::Filter { filter: filter.to_owned(), source })?;
    let json = fmt::layer().json().flatten_event(true).with_current_span(true).with_span_list(false);
    tracing_subscriber::registry()
        .with(filter)
        .with(json.with_writer(std::io::stderr))
        .try_init()
        .map_err(Error::Twice)
}

/// An error with all its causes, for one log line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
