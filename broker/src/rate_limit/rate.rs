//! The generic cell rate algorithm (ITU-T I.371) for each client and for all clients together.
//!
//! The state of a client is one time: when it has paid for what it took. `governor` keeps that state
//! too, but takes nothing back, and its number of keys has no bound.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::Client;

/// Clients with a state of their own, about 3 MiB.
const MAX_CLIENTS: usize = 65_536;
/// How often the clients are searched for states that say nothing any more.
const EVICT_EVERY: Duration = Duration::from_secs(1);

/// So many requests a second, of which so many may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Requests a second, at least 1.
    pub per_second: u32,
    /// Requests at once, at least 1.
    pub burst: u32,
}

impl Quota {
    fn interval(self) -> Duration {
        Duration::from_secs(1) / self.per_second.max(1)
    }

    /// Takes one request.
    ///
    /// # Errors
    /// The time until there is one.
    fn take(self, paid_at: Instant, now: Instant) -> Result<Instant, Duration> {
        let next = paid_at.max(now) + self.interval();
        let ahead = next.duration_since(now);
        let most = self.interval() * self.burst.max(1);
        if ahead > most { Err(ahead.saturating_sub(most)) } else { Ok(next) }
    }
}

/// Which limit refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The client's own; it may come back after this time.
    Client(Duration),
    /// The limit for all clients together.
    Total(Duration),
}

#[derive(Debug)]
pub(super) struct Rate {
    client: Quota,
    total: Quota,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When each client has paid. A client that is not here has paid.
    clients: HashMap<Client, Instant>,
    /// The same for all clients that find no room above.
    others: Instant,
    total: Instant,
    evicted_at: Option<Instant>,
}

impl Rate {
    pub(super) fn new(client: Quota, total: Quota, now: Instant) -> Self {
        let state = State { clients: HashMap::new(), others: now, total: now, evicted_at: None };
        Self { client, total, state: Mutex::new(state) }
    }

    /// Takes one request of this client.
    ///
    /// # Errors
    /// Which limit refused it; then nothing was taken.
    pub(super) fn take(&self, client: Client, now: Instant) -> Result<(), Refused> {
        let mut state = self.lock();
        let has_room = state.has_room(client, now);
        let paid_at =
            if has_room { state.clients.get(&client).copied() } else { Some(state.others) };
        let next = self.client.take(paid_at.unwrap_or(now), now).map_err(Refused::Client)?;
        state.total = self.total.take(state.total, now).map_err(Refused::Total)?;
        if has_room {
            state.clients.insert(client, next);
        } else {
            state.others = next;
        }
        Ok(())
    }

    /// Gives one request back to this client, which it took.
    pub(super) fn give_back(&self, client: Client) {
        let mut state = self.lock();
        let earlier = |time: Instant, by: Duration| time.checked_sub(by).unwrap_or(time);
        // Of a client without a state of its own nobody knows whether it was one of the others.
        if let Some(paid_at) = state.clients.get_mut(&client) {
            *paid_at = earlier(*paid_at, self.client.interval());
        }
        state.total = earlier(state.total, self.total.interval());
    }

    #[cfg(test)]
    fn clients(&self) -> usize {
        self.lock().clients.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether this client has a state of its own, or room for one. A search costs the time of all
    /// clients, so there is one a second at most.
    fn has_room(&mut self, client: Client, now: Instant) -> bool {
        if self.clients.len() < MAX_CLIENTS || self.clients.contains_key(&client) {
            return true;
        }
        if self.evicted_at.is_none_or(|at| now.duration_since(at) >= EVICT_EVERY) {
            self.evicted_at = Some(now);
            // Who has paid may begin anew; nothing is lost with the state.
            self.clients.retain(|_, paid_at| *paid_at > now);
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

    fn client(number: u32) -> Client {
        Client::V4(number.into())
    }

    /// How many of so many requests at once pass.
    fn passed(rate: &Rate, client: Client, tried: u32, now: Instant) -> usize {
        (0..tried).filter(|_| rate.take(client, now).is_ok()).count()
    }

    #[test]
    fn a_client_has_its_burst_and_then_its_rate() {
        let now = Instant::now();
        let rate = Rate::new(TEN, PLENTY, now);
        assert_eq!(passed(&rate, client(1), 100, now), 20);
        let wait = Duration::from_millis(100);
        assert_eq!(rate.take(client(1), now), Err(Refused::Client(wait)));
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
        let rate = Rate::new(TEN, PLENTY, now);
        assert_eq!(passed(&rate, client(1), 100_000, now), 20);
        assert_eq!(passed(&rate, client(2), 20, now), 20);
    }

    #[test]
    fn what_a_client_is_refused_counts_for_nobody() {
        let now = Instant::now();
        let total = Quota { per_second: 10, burst: 30 };
        let rate = Rate::new(TEN, total, now);
        assert_eq!(passed(&rate, client(1), 100_000, now), 20);
        assert_eq!(passed(&rate, client(2), 20, now), 10, "10 of the total are left");
        let Err(Refused::Total(wait)) = rate.take(client(3), now) else { panic!("it passed") };
        assert_eq!(wait, Duration::from_millis(100));
        // The refusal by the total took nothing of the client's own either.
        assert_eq!(passed(&rate, client(3), 20, now + 2 * SECOND), 20);
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let now = Instant::now();
        let rate = Rate::new(TEN, Quota { per_second: 10, burst: 20 }, now);
        for _ in 0..1000 {
            rate.take(client(1), now).unwrap();
            rate.give_back(client(1));
        }
        assert_eq!(passed(&rate, client(1), 100, now), 20);
    }

    #[test]
    fn the_number_of_clients_is_bounded_and_the_known_ones_keep_their_own() {
        let now = Instant::now();
        let rate = Rate::new(TEN, PLENTY, now);
        let most = u32::try_from(MAX_CLIENTS).unwrap();
        for number in 0..most {
            rate.take(client(number), now).unwrap();
        }
        // Everybody else has one client's share.
        let others = (most..2 * most).filter(|number| rate.take(client(*number), now).is_ok());
        assert_eq!(others.count(), 20);
        assert_eq!(rate.clients(), MAX_CLIENTS);
        assert_eq!(passed(&rate, client(7), 100, now), 19);
        // Clients that have paid make room.
        let later = now + 2 * SECOND;
        assert_eq!(passed(&rate, client(most), 100, later), 20);
        assert_eq!(rate.clients(), 1);
    }
}
