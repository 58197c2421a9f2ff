//! W3C trace context in message headers: a session is one trace.
//!
//! The trace id is the session's UUID unless the work already belongs to a trace (an HTTP request that came with a
//! `traceparent`, a handler of a message that carried one), so events of services that react to looks and timers, not
//! to messages, still join the session's trace. No exporter is needed: the ids are in the headers and in the logs.

use std::{fmt, str::FromStr};

use async_nats::HeaderMap;
use lab_domain::SessionId;

use crate::Headers;

/// Name of the header.
pub const TRACEPARENT: &str = "traceparent";

tokio::task_local! {
    static CURRENT: Context;
}

/// Ids of the work that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    trace: u128,
    span: u64,
    flags: u8,
}

/// A header that is not of the form `00-<32 hex>-<16 hex>-<2 hex>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent")]
pub struct Malformed;

impl Context {
    /// The trace of a session, with a span of its own.
    #[must_use]
    pub fn of_session(session: SessionId) -> Self {
        Self { trace: session.0.as_u128(), span: new_span(), flags: 1 }
    }

    /// A step inside this one: same trace, new span.
    #[must_use]
    pub fn child(self) -> Self {
        Self { span: new_span(), ..self }
    }

    /// The context of the running task, if it has one.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|c| *c).ok()
    }

    /// The trace id as logs show it.
    #[must_use]
    pub fn trace_id(self) -> String {
        format!("{:032x}", self.trace)
    }
}

/// Zero is no span id.
fn new_span() -> u64 {
    rand::random_range(1..=u64::MAX)
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

impl FromStr for Context {
    type Err = Malformed;

    fn from_str(s: &str) -> Result<Self, Malformed> {
        let hex = |part: &str, len: usize| {
            let ok = part.len() == len && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            if ok { u128::from_str_radix(part, 16).map_err(|_| Malformed) } else { Err(Malformed) }
        };
        let mut parts = s.split('-');
        let mut next = || parts.next().ok_or(Malformed);
        let (version, trace, span, flags) = (next()?, next()?, next()?, next()?);
        // Later versions may append parts; version 00 may not.
        if hex(version, 2)? == 0xff || (version == "00" && parts.next().is_some()) {
            return Err(Malformed);
        }
        let (trace, span, flags) = (hex(trace, 32)?, hex(span, 16)?, hex(flags, 2)?);
        if trace == 0 || span == 0 {
            return Err(Malformed);
        }
        let narrow = |_| Malformed;
        Ok(Self { trace, span: span.try_into().map_err(narrow)?, flags: flags.try_into().map_err(narrow)? })
    }
}

/// Runs `work` as part of `context`.
pub async fn scope<F: Future>(context: Context, work: F) -> F::Output {
    CURRENT.scope(context, work).await
}

/// Headers of a message about `session` that is sent now.
#[must_use]
pub fn headers(session: SessionId) -> Headers {
    let context = Context::current().map_or_else(|| Context::of_session(session), Context::child);
    Headers::from([(TRACEPARENT.to_owned(), context.to_string())])
}

/// The context in which a received message is handled: a child of its sender's.
pub(crate) fn received(headers: Option<&HeaderMap>, session: Option<SessionId>) -> Option<Context> {
    let sent = headers.and_then(|h| h.get(TRACEPARENT)).and_then(|v| v.as_str().parse::<Context>().ok());
    sent.map(Context::child).or_else(|| session.map(Context::of_session))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_reads_back_and_malformed_ones_are_refused() {
        let context = Context::of_session(SessionId::generate());
        assert_eq!(context.to_string().parse(), Ok(context));
        assert_eq!(context.child().trace, context.trace);
        for bad in [
            "",
            "00-0-0-0",
            "00-00000000000000000000000000000000-0000000000000001-01",
            "ff-0198f6c47b1c7c3e8f00000000000001-0000000000000001-01",
            "00-0198F6C47b1c7c3e8f00000000000001-0000000000000001-01",
            "00-0198f6c47b1c7c3e8f00000000000001-0000000000000001-01-x",
            "00-+198f6c47b1c7c3e8f00000000000001-0000000000000001-01",
        ] {
            assert_eq!(bad.parse::<Context>(), Err(Malformed), "{bad}");
        }
    }

    #[tokio::test]
    async fn what_is_sent_inside_a_trace_stays_in_it() {
        let outer = Context::of_session(SessionId::generate());
        let sent = scope(outer, async { headers(SessionId::generate()) }).await;
        let sent: Context = sent[TRACEPARENT].parse().unwrap();
        assert_eq!(sent.trace, outer.trace);
        assert_ne!(sent.span, outer.span);
    }
}
