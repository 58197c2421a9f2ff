//! The cluster's own controllers: collection by owner, namespaces, quota status, claims, old events.
//!
//! Each follows the store's feed, which never loses a change, and begins with a look at everything: what was due when
//! the process was killed is done then.

mod claims;
mod events;
mod garbage;
mod namespaces;
mod quotas;

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::admission::ControllerContext;

/// Starts them all.
pub(crate) fn start(context: &ControllerContext) {
    // The feeds begin here, before anything else can write; a task that is polled late loses nothing.
    let store = context.cluster.store();
    context.tracker.spawn(garbage::run(context.clone(), store.feed()));
    context.tracker.spawn(namespaces::run(context.clone(), store.feed()));
    context.tracker.spawn(quotas::run(context.clone(), store.feed()));
    context.tracker.spawn(claims::run(context.clone(), store.feed()));
    context.tracker.spawn(events::run(context.clone()));
}

/// Things to do after one and the same delay, in the order in which they came. A thing waits only once.
struct Later<T> {
    delay: Duration,
    queue: VecDeque<(Instant, T)>,
}

impl<T: PartialEq> Later<T> {
    fn new(delay: Duration) -> Self {
        Self { delay, queue: VecDeque::new() }
    }

    fn push(&mut self, thing: T) {
        // Only the tail is looked at: repeats come close together, and a doubled look does no harm.
        if !self.queue.iter().rev().take(8).any(|(_, waiting)| *waiting == thing) {
            self.queue.push_back((Instant::now() + self.delay, thing));
        }
    }

    /// The next thing, when its time has come. Cancel safe.
    async fn next(&mut self) -> T {
        let Some((at, _)) = self.queue.front() else { return std::future::pending().await };
        tokio::time::sleep_until(*at).await;
        match self.queue.pop_front() {
            Some((_, thing)) => thing,
            None => std::future::pending().await,
        }
    }
}
