//! Time and identifiers: the only callers of the system clock.

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

/// Ticks at once and then so often; whoever was late does not hurry afterwards.
pub(crate) fn ticks(every: Duration) -> Interval {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Where time comes from: the system, or a test that turns the hands itself.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    hands: Option<Arc<AtomicI64>>,
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that stands at this time until [`Clock::advance`].
    pub fn manual(at: Timestamp) -> Self {
        Self { hands: Some(Arc::new(AtomicI64::new(at.as_millisecond()))) }
    }

    /// Milliseconds since 1970, as the database keeps them.
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the system")]
    pub fn now_ms(&self) -> i64 {
        match &self.hands {
            Some(hands) => hands.load(Ordering::SeqCst),
            None => Timestamp::now().as_millisecond(),
        }
    }

    /// The time now, to the millisecond.
    pub fn now(&self) -> Timestamp {
        timestamp(self.now_ms())
    }

    /// Moves a manual clock on; the system's clock does not move.
    pub fn advance(&self, milliseconds: i64) {
        if let Some(hands) = &self.hands {
            hands.fetch_add(milliseconds, Ordering::SeqCst);
        }
    }

    /// An identifier that sorts by time (UUIDv7, RFC 9562), for rows that are read in order.
    #[expect(clippy::disallowed_methods, reason = "the one place that makes identifiers")]
    pub fn ordered_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    /// An identifier that tells nothing (UUIDv4), for what people see.
    #[expect(clippy::disallowed_methods, reason = "the one place that makes identifiers")]
    pub fn random_id(&self) -> Uuid {
        Uuid::new_v4()
    }
}

/// A time that the database keeps as milliseconds. Milliseconds out of range give 1970.
pub fn timestamp(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}
