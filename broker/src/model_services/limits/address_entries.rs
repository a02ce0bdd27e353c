//! Entries by token, of which one address has at most a quarter: the tokens that somebody invents leave
//! room for those of others.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

use crate::base::rate_limit::ClientNetwork;

/// Addresses that can take all entries together.
const MIN_ADDRESSES: usize = 4;
/// Minimum interval between two evictions, which visit all entries.
const EVICTION_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct AddressEntry<V> {
    /// The address that inserted it.
    client: ClientNetwork,
    value: V,
}

/// Whether it is time for an eviction. One that frees nothing is not repeated at once.
pub(super) fn is_eviction_due(evicted_at: &mut Option<Instant>, now: Instant) -> bool {
    let is_due = evicted_at.is_none_or(|at| now.duration_since(at) >= EVICTION_INTERVAL);
    if is_due {
        *evicted_at = Some(now);
    }
    is_due
}

/// A bounded number of entries.
#[derive(Debug)]
pub(super) struct AddressEntries<K, V> {
    max: usize,
    entries: HashMap<K, AddressEntry<V>>,
    /// Entries of each address that has some.
    counts: HashMap<ClientNetwork, usize>,
    evicted_at: Option<Instant>,
}

impl<K: Eq + Hash, V> AddressEntries<K, V> {
    /// At most `max` entries, and a quarter of them for one address.
    pub(super) fn new(max: usize) -> Self {
        Self { max, entries: HashMap::new(), counts: HashMap::new(), evicted_at: None }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|entry| &mut entry.value)
    }

    /// The value of a key, a new one if there is none. If there is no room, entries that are not used
    /// are evicted, at most once a second. `None` if there is still none.
    pub(super) fn get_or_insert(
        &mut self,
        key: K,
        client: ClientNetwork,
        now: Instant,
        is_used: impl Fn(&V) -> bool,
        new: impl FnOnce() -> V,
    ) -> Option<&mut V> {
        if !self.entries.contains_key(&key) {
            if !self.has_capacity(client) && is_eviction_due(&mut self.evicted_at, now) {
                self.evict(is_used);
            }
            if !self.has_capacity(client) {
                return None;
            }
            *self.counts.entry(client).or_default() += 1;
        }
        let new = || AddressEntry { client, value: new() };
        Some(&mut self.entries.entry(key).or_insert_with(new).value)
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            release(&mut self.counts, entry.client);
        }
    }

    /// Whether an address has an entry that is used. Others are evicted first, at most once a second.
    pub(super) fn has_used_entry_of(
        &mut self,
        client: ClientNetwork,
        now: Instant,
        is_used: impl Fn(&V) -> bool,
    ) -> bool {
        if self.counts.contains_key(&client) && is_eviction_due(&mut self.evicted_at, now) {
            self.evict(is_used);
        }
        self.counts.contains_key(&client)
    }

    fn has_capacity(&self, client: ClientNetwork) -> bool {
        let of_client = self.counts.get(&client).copied().unwrap_or_default();
        self.entries.len() < self.max && of_client < self.max / MIN_ADDRESSES
    }

    fn evict(&mut self, is_used: impl Fn(&V) -> bool) {
        let Self { entries, counts, .. } = self;
        entries.retain(|_, entry| {
            let is_kept = is_used(&entry.value);
            if !is_kept {
                release(counts, entry.client);
            }
            is_kept
        });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

fn release(counts: &mut HashMap<ClientNetwork, usize>, client: ClientNetwork) {
    let Some(count) = counts.get_mut(&client) else { return };
    *count = count.saturating_sub(1);
    if *count == 0 {
        counts.remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32) -> ClientNetwork {
        ClientNetwork::V4(number.into())
    }

    #[test]
    fn an_address_has_a_quarter_of_the_entries() {
        let (mut entries, now) = (AddressEntries::new(40), Instant::now());
        let insert = |entries: &mut AddressEntries<u32, bool>, key, address, now| {
            entries.get_or_insert(key, client(address), now, |is_used| *is_used, || true).is_some()
        };
        let inserted = (0..100).filter(|key| insert(&mut entries, *key, 1, now)).count();
        assert_eq!(inserted, 10);
        assert!(insert(&mut entries, 0, 1, now), "it is there");
        assert!(insert(&mut entries, 1, 2, now), "also from another address");
        for address in 2..=4 {
            assert_eq!(
                (0..100).filter(|n| insert(&mut entries, address * 1000 + n, address, now)).count(),
                10
            );
        }
        assert!(!insert(&mut entries, 9000, 9, now), "all are used");
        entries.remove(&0);
        assert!(insert(&mut entries, 9000, 9, now));
        assert_eq!(entries.counts[&client(1)], 9);
    }

    #[test]
    fn unused_entries_are_evicted_once_a_second() {
        let (mut entries, now) = (AddressEntries::new(8), Instant::now());
        let insert = |entries: &mut AddressEntries<u32, bool>, key, now| {
            entries.get_or_insert(key, client(1), now, |is_used| *is_used, || true).is_some()
        };
        assert!(insert(&mut entries, 1, now) && insert(&mut entries, 2, now));
        assert!(!insert(&mut entries, 3, now));
        *entries.get_or_insert(1, client(1), now, |_| true, || true).unwrap() = false;
        assert!(!insert(&mut entries, 3, now), "the last eviction was just now");
        assert!(insert(&mut entries, 3, now + EVICTION_INTERVAL));
        assert_eq!((entries.get(&1), entries.len()), (None, 2));
        let has_used = |entries: &mut AddressEntries<u32, bool>, now| {
            entries.has_used_entry_of(client(1), now, |is_used| *is_used)
        };
        let later = now + EVICTION_INTERVAL * 2;
        assert!(has_used(&mut entries, later));
        *entries.get_mut(&2).unwrap() = false;
        *entries.get_mut(&3).unwrap() = false;
        assert!(has_used(&mut entries, later), "the last eviction was just now");
        assert!(!has_used(&mut entries, later + EVICTION_INTERVAL));
        assert_eq!((entries.len(), entries.counts.len()), (0, 0));
        assert!(insert(&mut entries, 2, later));
        entries.remove(&2);
        assert!(entries.counts.is_empty());
    }
}
