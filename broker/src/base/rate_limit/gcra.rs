//! Rate limiter: the generic cell rate algorithm (GCRA, ITU-T I.371) for each client and for all
//! clients together.
//!
//! The state of a client is one time, the theoretical arrival time (TAT) of its next request. The
//! crate `governor` keeps that state too, but it cannot refund a request, and its number of keys is
//! not bounded.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::ClientNetwork;

/// Maximum number of clients with a state of their own, about 3 MiB.
const MAX_CLIENTS: usize = 65_536;
/// Minimum interval between two evictions of clients whose TAT has passed.
const EVICTION_INTERVAL: Duration = Duration::from_secs(1);

/// A rate of requests and its burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Requests per second, at least 1.
    pub per_second: u32,
    /// Requests that may arrive at once, at least 1.
    pub burst: u32,
}

impl Quota {
    /// Time between two requests at this rate, at least 1 ns.
    fn interval(self) -> Duration {
        (Duration::from_secs(1) / self.per_second.max(1)).max(Duration::from_nanos(1))
    }

    /// Counts one request; returns the new TAT.
    ///
    /// # Errors
    /// The time until a request passes.
    fn check(self, tat: Instant, now: Instant) -> Result<Instant, Duration> {
        let next = tat.max(now) + self.interval();
        let ahead = next.duration_since(now);
        let max = self.interval() * self.burst.max(1);
        if ahead > max { Err(ahead.saturating_sub(max)) } else { Ok(next) }
    }
}

/// The limit that refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExceededLimit {
    /// The limit of the client; a request passes after this time.
    Client(Duration),
    /// The limit for all clients together; a request passes after this time.
    Total(Duration),
}

impl ExceededLimit {
    /// The time until a request passes.
    pub(crate) fn wait(self) -> Duration {
        match self {
            Self::Client(wait) | Self::Total(wait) => wait,
        }
    }
}

/// A rate limiter for each client and for all of them together. Clients for whose state there is no room
/// share one.
#[derive(Debug)]
pub(crate) struct GcraLimiter {
    client: Quota,
    total: Quota,
    state: Mutex<LimiterState>,
}

#[derive(Debug)]
struct LimiterState {
    /// TAT of each client. The TAT of a client that is not in the map has passed.
    clients: HashMap<ClientNetwork, Instant>,
    /// Shared TAT of all clients for which the map has no room.
    others: Instant,
    total: Instant,
    evicted_at: Option<Instant>,
}

impl GcraLimiter {
    pub(crate) fn new(client: Quota, total: Quota, now: Instant) -> Self {
        let state =
            LimiterState { clients: HashMap::new(), others: now, total: now, evicted_at: None };
        Self { client, total, state: Mutex::new(state) }
    }

    /// Counts one request of this client.
    ///
    /// # Errors
    /// The limit that refused the request; then nothing was counted.
    pub(crate) fn check(&self, client: ClientNetwork, now: Instant) -> Result<(), ExceededLimit> {
        let mut state = self.lock();
        let has_capacity = state.has_capacity(client, now);
        let tat =
            if has_capacity { state.clients.get(&client).copied() } else { Some(state.others) };
        let next = self.client.check(tat.unwrap_or(now), now).map_err(ExceededLimit::Client)?;
        state.total = self.total.check(state.total, now).map_err(ExceededLimit::Total)?;
        if has_capacity {
            state.clients.insert(client, next);
        } else {
            state.others = next;
        }
        Ok(())
    }

    /// Refunds one request that this client took.
    pub(super) fn refund(&self, client: ClientNetwork) {
        let mut state = self.lock();
        let earlier = |time: Instant, by: Duration| time.checked_sub(by).unwrap_or(time);
        // It is not known whether a client without a state of its own shared `others`.
        if let Some(tat) = state.clients.get_mut(&client) {
            *tat = earlier(*tat, self.client.interval());
        }
        state.total = earlier(state.total, self.total.interval());
    }

    #[cfg(test)]
    fn clients(&self) -> usize {
        self.lock().clients.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LimiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LimiterState {
    /// Whether this client has a state of its own, or room for one. An eviction visits all clients,
    /// so it runs at most once a second.
    fn has_capacity(&mut self, client: ClientNetwork, now: Instant) -> bool {
        if self.clients.len() < MAX_CLIENTS || self.clients.contains_key(&client) {
            return true;
        }
        if self.evicted_at.is_none_or(|at| now.duration_since(at) >= EVICTION_INTERVAL) {
            self.evicted_at = Some(now);
            // A client whose TAT has passed loses nothing with its state.
            self.clients.retain(|_, tat| *tat > now);
        }
        self.clients.len() < MAX_CLIENTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const TEN: Quota = Quota { per_second: 10, burst: 20 };
    const PLENTY: Quota = Quota { per_second: 1_000_000, burst: 10_000_000 };

    fn client(number: u32) -> ClientNetwork {
        ClientNetwork::V4(number.into())
    }

    /// How many of `tried` concurrent requests pass.
    fn passed(rate: &GcraLimiter, client: ClientNetwork, tried: u32, now: Instant) -> usize {
        (0..tried).filter(|_| rate.check(client, now).is_ok()).count()
    }

    #[test]
    fn a_client_has_its_burst_and_then_its_rate() {
        let now = Instant::now();
        let rate = GcraLimiter::new(TEN, PLENTY, now);
        assert_eq!(passed(&rate, client(1), 100, now), 20);
        let wait = Duration::from_millis(100);
        assert_eq!(rate.check(client(1), now), Err(ExceededLimit::Client(wait)));
        assert_eq!(passed(&rate, client(1), 100, now + wait), 1);
        assert_eq!(passed(&rate, client(1), 100, now + wait + SECOND), 10);
        assert_eq!(
            passed(&rate, client(1), 100, now + 10 * SECOND),
            20,
            "the burst is not saved up"
        );
    }

    #[test]
    fn one_client_takes_nothing_from_another() {
        let now = Instant::now();
        let rate = GcraLimiter::new(TEN, PLENTY, now);
        assert_eq!(passed(&rate, client(1), 100_000, now), 20);
        assert_eq!(passed(&rate, client(2), 20, now), 20);
    }

    #[test]
    fn the_highest_rate_admits_a_request_that_read_the_time_before_another() {
        let now = Instant::now();
        let unlimited = Quota { per_second: u32::MAX, burst: u32::MAX };
        let rate = GcraLimiter::new(unlimited, unlimited, now);
        assert_eq!(rate.check(client(1), now + Duration::from_micros(1)), Ok(()));
        assert_eq!(rate.check(client(1), now), Ok(()));
    }

    #[test]
    fn a_refused_request_counts_for_nobody() {
        let now = Instant::now();
        let total = Quota { per_second: 10, burst: 30 };
        let rate = GcraLimiter::new(TEN, total, now);
        assert_eq!(passed(&rate, client(1), 100_000, now), 20);
        assert_eq!(passed(&rate, client(2), 20, now), 10, "10 of the total are left");
        let Err(ExceededLimit::Total(wait)) = rate.check(client(3), now) else {
            panic!("it passed")
        };
        assert_eq!(wait, Duration::from_millis(100));
        // The refusal by the total did not count against the client either.
        assert_eq!(passed(&rate, client(3), 20, now + 2 * SECOND), 20);
    }

    #[test]
    fn a_refunded_request_can_be_taken_again() {
        let now = Instant::now();
        let rate = GcraLimiter::new(TEN, Quota { per_second: 10, burst: 20 }, now);
        for _ in 0..1000 {
            rate.check(client(1), now).unwrap();
            rate.refund(client(1));
        }
        assert_eq!(passed(&rate, client(1), 100, now), 20);
    }

    #[test]
    fn the_number_of_clients_is_bounded_and_known_clients_keep_their_quota() {
        let now = Instant::now();
        let rate = GcraLimiter::new(TEN, PLENTY, now);
        let max = u32::try_from(MAX_CLIENTS).unwrap();
        for number in 0..max {
            rate.check(client(number), now).unwrap();
        }
        // All other clients share the quota of one client.
        let others = (max..2 * max).filter(|number| rate.check(client(*number), now).is_ok());
        assert_eq!(others.count(), 20);
        assert_eq!(rate.clients(), MAX_CLIENTS);
        assert_eq!(passed(&rate, client(7), 100, now), 19);
        // Clients whose TAT has passed are evicted.
        let later = now + 2 * SECOND;
        assert_eq!(passed(&rate, client(max), 100, later), 20);
        assert_eq!(rate.clients(), 1);
    }
}
