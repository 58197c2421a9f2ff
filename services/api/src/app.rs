//! What every part of the api shares.

use std::sync::Arc;

use lab_bus::Bus;
use lab_catalog::Catalog;
use lab_domain::session::{Projection, Session};
use lab_kit::{
    Clock,
    auth::{Signer, Verifier},
    installation::Gate,
};
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{cluster::View, effects::Publisher, live::Live, metrics::Metrics, oidc::Oidc, store::Store};

/// Admissions that may hold a connection at once: one that has the lock, one that is next.
pub(crate) const ADMISSIONS: usize = 2;

/// One replica.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) publisher: Publisher,
    pub(crate) store: Store,
    pub(crate) bus: Bus,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) catalog: Catalog,
    pub(crate) cluster: View,
    pub(crate) live: Live,
    pub(crate) gate: Gate,
    pub(crate) metrics: Metrics,
    pub(crate) access: Access,
    pub(crate) settings: Settings,
    /// Turns at the admission lock, for this replica.
    pub(crate) admissions: Semaphore,
    /// Ends the streams to browsers.
    pub(crate) shutdown: CancellationToken,
}

/// Who is let in, and how.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) signer: Signer,
    pub(crate) verifier: Verifier,
    pub(crate) cookie: String,
    /// Own origin.
    pub(crate) public_url: String,
    /// Anyone may say who they are: only where we listen on loopback, and only to who comes from there.
    pub(crate) dev_login: bool,
    pub(crate) oidc: Option<Oidc>,
}

impl Access {
    pub(crate) fn is_https(&self) -> bool {
        self.public_url.starts_with("https:")
    }
}

/// What the operator chose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) vm_cap: usize,
    pub(crate) time_factor: f64,
}

impl App {
    /// Now, as exact as the database keeps it: what is compared later must not differ by what was cut off.
    pub(crate) fn now(&self) -> OffsetDateTime {
        let now = self.clock.now();
        now.replace_nanosecond(now.nanosecond() / 1000 * 1000).unwrap_or(now)
    }

    /// One line per step of a session's life.
    pub(crate) fn note_change(&self, before: &Session, made: &Projection) {
        let (from, to) = (before.state(), made.next.state());
        if from != to {
            let reason = made.next.end_of().map(|e| e.reason.as_str());
            tracing::info!(session.id = %before.id, from = %from, to = %to, reason, "session moved");
        }
    }
}
