//! The only source of wall time. Durations that guard an action are measured with `Instant`, not with this.

use std::sync::{Arc, Mutex, PoisonError};

use time::OffsetDateTime;

/// Tells the time.
pub trait Clock: Send + Sync + std::fmt::Debug + 'static {
    /// Now, in UTC.
    fn now(&self) -> OffsetDateTime;
}

/// The clock of the host.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Clock for System {
    #[expect(clippy::disallowed_methods, reason = "this is the one caller")]
    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc()
    }
}

/// A clock that a test sets. Clones show the same time.
#[derive(Debug, Clone)]
pub struct Manual(Arc<Mutex<OffsetDateTime>>);

impl Manual {
    /// Stands at `at` until it is moved.
    #[must_use]
    pub fn new(at: OffsetDateTime) -> Self {
        Self(Arc::new(Mutex::new(at)))
    }

    /// Moves on.
    pub fn advance(&self, by: std::time::Duration) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now += by;
    }

    /// Sets the time.
    pub fn set(&self, at: OffsetDateTime) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
}

impl Clock for Manual {
    fn now(&self) -> OffsetDateTime {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
