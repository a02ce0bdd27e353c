//! The clock and the generators of identifiers: the only callers of the system clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::{Interval, MissedTickBehavior};
use uuid::Uuid;

/// An interval that ticks immediately and then at every `every`. After a late tick it keeps the
/// full interval and does not catch up.
pub(crate) fn ticks(every: Duration) -> Interval {
    let mut interval = tokio::time::interval(every);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// A source of time: the system clock, or a manual clock for tests.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    manual_ms: Option<Arc<AtomicI64>>,
    /// By how much the system clock is wrong.
    #[cfg(test)]
    ahead_ms: i64,
}

impl Clock {
    /// The system clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that stands still at this time until [`Clock::advance`].
    pub fn manual(at: Timestamp) -> Self {
        Self {
            manual_ms: Some(Arc::new(AtomicI64::new(at.as_millisecond()))),
            #[cfg(test)]
            ahead_ms: 0,
        }
    }

    /// A system clock that is ahead by so many milliseconds.
    #[cfg(test)]
    pub(crate) fn ahead(ahead_ms: i64) -> Self {
        Self { ahead_ms, ..Self::default() }
    }

    /// The time in milliseconds since 1970, as the database stores it.
    #[expect(clippy::disallowed_methods, reason = "the only caller of the system clock")]
    pub fn now_ms(&self) -> i64 {
        match &self.manual_ms {
            Some(manual_ms) => manual_ms.load(Ordering::SeqCst),
            #[cfg(test)]
            None => Timestamp::now().as_millisecond() + self.ahead_ms,
            #[cfg(not(test))]
            None => Timestamp::now().as_millisecond(),
        }
    }

    /// The time of a manual clock; `None` for the system clock, instead of which a database that
    /// several replicas share has one of its own.
    pub(crate) fn manual_ms(&self) -> Option<i64> {
        self.manual_ms.as_ref().map(|manual_ms| manual_ms.load(Ordering::SeqCst))
    }

    /// The current time, with millisecond precision.
    pub fn now(&self) -> Timestamp {
        timestamp(self.now_ms())
    }

    /// Advances a manual clock; the system clock is not affected.
    pub fn advance(&self, milliseconds: i64) {
        if let Some(manual_ms) = &self.manual_ms {
            manual_ms.fetch_add(milliseconds, Ordering::SeqCst);
        }
    }

    /// An identifier that sorts by time (UUIDv7, RFC 9562), for rows that are read in order.
    #[expect(clippy::disallowed_methods, reason = "the only generator of identifiers")]
    pub fn ordered_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    /// An identifier that reveals nothing (UUIDv4), for what users see.
    #[expect(clippy::disallowed_methods, reason = "the only generator of identifiers")]
    pub fn random_id(&self) -> Uuid {
        Uuid::new_v4()
    }
}

/// A time from the milliseconds that the database stores. Milliseconds out of range give 1970.
pub fn timestamp(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}
