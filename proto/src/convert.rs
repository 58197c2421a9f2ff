//! Between the open enums of the wire and the closed lists of the domain, and between times.

use std::time::Duration;

use lab_domain::{CheckOutcome, Deadline, DiskKind, EndReason, Runtime, StartLimits, State, Verdict};
use prost_types::Timestamp;
use time::OffsetDateTime;

use crate::v1;

/// A number on the wire that this build does not know (a newer replica may).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown {list} number {number}")]
pub struct UnknownNumber {
    list: &'static str,
    number: i32,
}

macro_rules! enums {
    ($($to:ident, $from:ident: $domain:ident = $wire:ident { $($d:ident = $w:ident,)+ })+) => { $(
        #[doc = concat!("The wire's number of a [`", stringify!($domain), "`].")]
        #[must_use]
        pub fn $to(value: $domain) -> i32 {
            (match value { $($domain::$d => v1::$wire::$w,)+ }) as i32
        }

        #[doc = concat!("The [`", stringify!($domain), "`] of a number on the wire.")]
        ///
        /// # Errors
        /// If the number is zero or not known to this build.
        pub fn $from(number: i32) -> Result<$domain, UnknownNumber> {
            match v1::$wire::try_from(number) {
                $(Ok(v1::$wire::$w) => Ok($domain::$d),)+
                Ok(v1::$wire::Unspecified) | Err(_) => Err(UnknownNumber { list: stringify!($domain), number }),
            }
        }
    )+ };
}

enums! {
    state_number, state: State = SessionState {
        Queued = Queued, Requested = Requested, Provisioning = Provisioning, Booting = Booting,
        Preparing = Preparing, Ready = Ready, Ending = Ending, Ended = Ended,
    }
    end_reason_number, end_reason: EndReason = EndReason {
        User = User, Expired = Expired, Idle = Idle, Admin = Admin, ProvisionFailed = ProvisionFailed,
        DiskTimeout = DiskTimeout, BootTimeout = BootTimeout, AgentUnreachable = AgentUnreachable,
        PrepareFailed = PrepareFailed, PrepareTimeout = PrepareTimeout, VmStopped = VmStopped, VmLost = VmLost,
    }
    deadline_number, deadline: Deadline = Deadline { Start = Start, Expiry = Expiry, Idle = Idle, }
    check_outcome_number, check_outcome: CheckOutcome = CheckOutcome { Passed = Passed, Failed = Failed, Error = Error, }
    disk_kind_number, disk_kind: DiskKind = DiskKind { Golden = Golden, Container = Container, DataVolume = DataVolume, }
    runtime_number, runtime: Runtime = Runtime { Vm = Vm, Pod = Pod, }
    verdict_number, verdict: Verdict = Verdict { Wanted = Wanted, Ending = Ending, Unwanted = Unwanted, Hold = Hold, }
}

/// A time for the wire.
#[must_use]
pub fn timestamp(at: OffsetDateTime) -> Timestamp {
    Timestamp { seconds: at.unix_timestamp(), nanos: i32::try_from(at.nanosecond()).unwrap_or(0) }
}

/// A time from the wire; `None` where it is outside what a date can be.
#[must_use]
pub fn time(at: &Timestamp) -> Option<OffsetDateTime> {
    let nanos = u32::try_from(at.nanos).ok().filter(|n| *n < 1_000_000_000)?;
    OffsetDateTime::from_unix_timestamp(at.seconds).ok()?.replace_nanosecond(nanos).ok()
}

/// Limits for the wire, in whole milliseconds.
#[must_use]
pub fn limits_message(limits: &StartLimits) -> v1::Limits {
    let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    v1::Limits {
        disk_ms: ms(limits.disk),
        boot_ms: ms(limits.boot),
        agent_ms: ms(limits.agent),
        prepare_ms: ms(limits.prepare),
    }
}

/// Limits from the wire.
#[must_use]
pub fn limits(message: &v1::Limits) -> StartLimits {
    StartLimits {
        disk: Duration::from_millis(message.disk_ms),
        boot: Duration::from_millis(message.boot_ms),
        agent: Duration::from_millis(message.agent_ms),
        prepare: Duration::from_millis(message.prepare_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_survives_the_wire_and_zero_is_refused() {
        for s in State::ALL {
            assert_eq!(state(state_number(*s)), Ok(*s));
        }
        for r in EndReason::ALL {
            assert_eq!(end_reason(end_reason_number(*r)), Ok(*r));
        }
        assert!(state(0).is_err());
        assert!(end_reason(99).is_err());
    }

    #[test]
    fn times_survive_the_wire_and_hostile_ones_are_refused() {
        let at = OffsetDateTime::from_unix_timestamp_nanos(1_764_547_200_123_456_789).unwrap();
        assert_eq!(time(&timestamp(at)), Some(at));
        assert_eq!(time(&Timestamp { seconds: i64::MAX, nanos: 0 }), None);
        assert_eq!(time(&Timestamp { seconds: 0, nanos: -1 }), None);
    }
}
