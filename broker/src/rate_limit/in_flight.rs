//! How much is under way at once, for each client and for all clients together.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::Client;

/// A bound on how much is under way. Its keys are the clients with something under way, so there are
/// never more than the bound.
#[derive(Debug)]
pub(super) struct InFlight {
    most: usize,
    most_of_a_client: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    clients: HashMap<Client, usize>,
}

/// One thing under way; it is over when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    of: Arc<InFlight>,
    client: Client,
}

impl InFlight {
    pub(super) fn new(most: usize, most_of_a_client: usize) -> Arc<Self> {
        Arc::new(Self { most, most_of_a_client, counts: Mutex::default() })
    }

    /// Begins one more; `None` if the client, or all clients together, have enough under way.
    pub(super) fn enter(self: &Arc<Self>, client: Client) -> Option<Place> {
        let mut counts = self.lock();
        let own = counts.clients.get(&client).copied().unwrap_or_default();
        if counts.total >= self.most || own >= self.most_of_a_client {
            return None;
        }
        counts.total += 1;
        counts.clients.insert(client, own + 1);
        Some(Place { of: Arc::clone(self), client })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.of.lock();
        counts.total = counts.total.saturating_sub(1);
        if let Some(own) = counts.clients.get_mut(&self.client) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                counts.clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_take_all_places_and_gives_them_back() {
        let in_flight = InFlight::new(10, 6);
        let enter = |number: u32| in_flight.enter(Client::V4(number.into()));
        let mut first: Vec<_> = (0..100).filter_map(|_| enter(1)).collect();
        assert_eq!(first.len(), 6);
        let second: Vec<_> = (0..100).filter_map(|_| enter(2)).collect();
        assert_eq!(second.len(), 4, "ten at once, whoever asks");
        assert!(enter(3).is_none());
        first.pop();
        let third = enter(3);
        assert!(third.is_some() && enter(3).is_none());
        drop((first, second, third));
        let counts = in_flight.lock();
        assert!(counts.total == 0 && counts.clients.is_empty(), "{counts:?}");
    }
}
