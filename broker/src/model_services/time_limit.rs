//! Time limits of operations. A call has a limit of its own; an operation has one for all of its
//! calls together, because a list may have 100 pages, and an installation 50 models.

use std::time::{Duration, Instant};

use http::Method;

use crate::gateway::Verb;

/// Limit of an operation, from the arrival of its request.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of an installation.
const INSTALL_TIMEOUT: Duration = Duration::from_mins(1);
/// Limit of what an installation reads. The rest of its time is for what it creates, so that slow
/// reads do not leave half of an installation.
const INSTALL_READS_TIMEOUT: Duration = Duration::from_secs(40);

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

    /// How long a call may take that has this limit of its own. A deletion has that alone, because it
    /// finishes a change, or takes one back.
    pub(super) fn call(&self, method: &Method, timeout: Duration, now: Instant) -> Duration {
        match *method {
            Method::DELETE => timeout,
            Method::GET => timeout.min(self.reads(now)),
            _ => timeout.min(self.writes_until.saturating_duration_since(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_calls_of_an_operation_have_its_limit_together() {
        let started_at = Instant::now();
        let call = |verb: Verb, method: Method, after: u64| {
            let now = started_at + Duration::from_secs(after);
            let limit = TimeLimit::new(verb, started_at);
            limit.call(&method, Duration::from_secs(25), now).as_secs()
        };
        for (verb, method, after, expected) in [
            (Verb::List, Method::GET, 0, 25),
            (Verb::List, Method::GET, 20, 10),
            (Verb::List, Method::POST, 20, 10),
            (Verb::List, Method::GET, 30, 0),
            (Verb::Get, Method::GET, 1000, 0),
            (Verb::Delete, Method::GET, 30, 0),
            (Verb::Delete, Method::DELETE, 30, 25),
            (Verb::Create, Method::GET, 30, 10),
            (Verb::Create, Method::GET, 40, 0),
            (Verb::Create, Method::POST, 40, 20),
            (Verb::Create, Method::POST, 60, 0),
            (Verb::Create, Method::DELETE, 60, 25),
        ] {
            assert_eq!(call(verb, method.clone(), after), expected, "{verb:?} {method} {after}");
        }
    }
}
