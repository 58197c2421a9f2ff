//! The only place of this crate that reads the wall clock.

use time::OffsetDateTime;

/// Now, in UTC.
pub(crate) fn now() -> OffsetDateTime {
    lab_kit_clock()
}

#[expect(clippy::disallowed_methods, reason = "the one reader of wall time in this crate")]
fn lab_kit_clock() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}
