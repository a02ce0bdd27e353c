//! Limits on concurrency: requests and connections, for each client and for all clients together.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::ClientNetwork;

/// A limit on concurrency. Its keys are the clients with something in flight, so the map has at
/// most `max` entries.
#[derive(Debug)]
pub struct InFlightLimiter {
    max: usize,
    max_per_client: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    clients: HashMap<ClientNetwork, usize>,
}

/// A slot in flight; dropping it releases the slot.
#[derive(Debug)]
pub struct InFlightSlot {
    limiter: Arc<InFlightLimiter>,
    client: ClientNetwork,
}

impl InFlightLimiter {
    /// A limiter with `max` slots for all clients, of which one client gets `max_per_client`.
    pub fn new(max: usize, max_per_client: usize) -> Arc<Self> {
        Arc::new(Self { max, max_per_client, counts: Mutex::default() })
    }

    /// Takes a slot; `None` if the client, or all clients together, have no slot left.
    pub fn try_acquire(self: &Arc<Self>, client: ClientNetwork) -> Option<InFlightSlot> {
        let mut counts = self.lock();
        let client_count = counts.clients.get(&client).copied().unwrap_or_default();
        if counts.total >= self.max || client_count >= self.max_per_client {
            return None;
        }
        counts.total += 1;
        counts.clients.insert(client, client_count + 1);
        Some(InFlightSlot { limiter: Arc::clone(self), client })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlightSlot {
    fn drop(&mut self) {
        let mut counts = self.limiter.lock();
        counts.total = counts.total.saturating_sub(1);
        if let Some(client_count) = counts.clients.get_mut(&self.client) {
            *client_count = client_count.saturating_sub(1);
            if *client_count == 0 {
                counts.clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_take_all_slots_and_releases_its_own() {
        let in_flight = InFlightLimiter::new(10, 6);
        let try_acquire = |number: u32| in_flight.try_acquire(ClientNetwork::V4(number.into()));
        let mut first: Vec<_> = (0..100).filter_map(|_| try_acquire(1)).collect();
        assert_eq!(first.len(), 6);
        let second: Vec<_> = (0..100).filter_map(|_| try_acquire(2)).collect();
        assert_eq!(second.len(), 4, "ten for all clients together");
        assert!(try_acquire(3).is_none());
        first.pop();
        let third = try_acquire(3);
        assert!(third.is_some() && try_acquire(3).is_none());
        drop((first, second, third));
        let counts = in_flight.lock();
        assert!(counts.total == 0 && counts.clients.is_empty(), "{counts:?}");
    }
}
