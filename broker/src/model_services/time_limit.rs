//! Time limits of operations. A call has a limit of its own; an operation has one for all of its
//! calls together, because a list may have 100 pages, and an installation 50 models.

use std::time::{Duration, Instant};

use crate::gateway::Verb;

/// Limit of an operation, from the arrival of its request.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of an installation.
const INSTALL_TIMEOUT: Duration = Duration::from_mins(1);
/// Limit of what an installation reads. The rest of its time is for what it creates, so that slow
/// reads do not leave half of an installation.
const INSTALL_READS_TIMEOUT: Duration = Duration::from_secs(40);

/// What limits a call besides its own timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallLimit {
    /// The time of what the operation reads.
    Reads,
    /// The time of the operation.
    Operation,
    /// Nothing, because the call finishes a change, takes one back, or looks whether a write was
    /// carried out.
    Own,
}

/// The time that an operation has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeLimit {
    reads_until: Instant,
    writes_until: Instant,
}

impl TimeLimit {
    /// The limit of an operation whose request arrived at this time.
    pub(super) fn new(verb: Verb, started_at: Instant) -> Self {
        let (reads, writes) = match verb {
            Verb::Create => (INSTALL_READS_TIMEOUT, INSTALL_TIMEOUT),
            _ => (OPERATION_TIMEOUT, OPERATION_TIMEOUT),
        };
        Self { reads_until: started_at + reads, writes_until: started_at + writes }
    }

    /// How long reads may take from now on.
    pub(super) fn reads(&self, now: Instant) -> Duration {
        self.reads_until.saturating_duration_since(now)
    }

    /// How long a call with this timeout may take.
    pub(super) fn call(&self, limit: CallLimit, timeout: Duration, now: Instant) -> Duration {
        match limit {
            CallLimit::Own => timeout,
            CallLimit::Reads => timeout.min(self.reads(now)),
            CallLimit::Operation => timeout.min(self.writes_until.saturating_duration_since(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_calls_of_an_operation_have_its_limit_together() {
        let started_at = Instant::now();
        let call = |verb: Verb, of: CallLimit, after: u64| {
            let now = started_at + Duration::from_secs(after);
            let limit = TimeLimit::new(verb, started_at);
            limit.call(of, Duration::from_secs(25), now).as_secs()
        };
        for (verb, of, after, expected) in [
            (Verb::List, CallLimit::Reads, 0, 25),
            (Verb::List, CallLimit::Reads, 20, 10),
            (Verb::List, CallLimit::Operation, 20, 10),
            (Verb::List, CallLimit::Reads, 30, 0),
            (Verb::Get, CallLimit::Reads, 1000, 0),
            (Verb::Delete, CallLimit::Reads, 30, 0),
            (Verb::Delete, CallLimit::Own, 30, 25),
            (Verb::Create, CallLimit::Reads, 30, 10),
            (Verb::Create, CallLimit::Reads, 40, 0),
            (Verb::Create, CallLimit::Operation, 40, 20),
            (Verb::Create, CallLimit::Operation, 60, 0),
            (Verb::Create, CallLimit::Own, 60, 25),
        ] {
            assert_eq!(call(verb, of, after), expected, "{verb:?} {of:?} {after}");
        }
    }
}
