//! Cache of recently valid secrets: a request that presents one of them is exempt from the rate
//! limits on unauthenticated requests.
//!
//! An entry authenticates nobody: each request still reads the session from the database.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::base::secret::SecretHash;

/// Lifetime of an entry after the secret was last found valid.
const TTL: Duration = Duration::from_mins(15);
/// Entries at most, about 4 MiB.
const MAX_ENTRIES: usize = 50_000;
/// Minimum time between two searches of a full cache for expired entries.
const EVICTION_INTERVAL: Duration = Duration::from_secs(10);

/// Recently valid secrets, by hash. Clones share the entries.
#[derive(Clone, Debug, Default)]
pub(super) struct SecretCache(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    valid_at: HashMap<[u8; 32], Instant>,
    evicted_at: Option<Instant>,
}

impl SecretCache {
    /// Whether this secret was found valid within the last [`TTL`].
    pub(super) fn contains(&self, hash: SecretHash, now: Instant) -> bool {
        let state = self.lock();
        let valid_at = state.valid_at.get(&hash.into_bytes());
        valid_at.is_some_and(|at| now.duration_since(*at) < TTL)
    }

    /// Adds a secret that was just found valid, unless the cache is full.
    pub(super) fn insert(&self, hash: SecretHash, now: Instant) {
        let mut state = self.lock();
        let is_full = state.valid_at.len() >= MAX_ENTRIES;
        let may_search =
            state.evicted_at.is_none_or(|at| now.duration_since(at) >= EVICTION_INTERVAL);
        if is_full && may_search {
            state.evicted_at = Some(now);
            state.valid_at.retain(|_, at| now.duration_since(*at) < TTL);
        }
        let key = hash.into_bytes();
        if state.valid_at.len() < MAX_ENTRIES || state.valid_at.contains_key(&key) {
            state.valid_at.insert(key, now);
        }
    }

    /// Removes a secret that is not valid any more.
    pub(super) fn remove(&self, hash: SecretHash) {
        self.lock().valid_at.remove(&hash.into_bytes());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::secret::PlainSecret;

    fn hash(number: usize) -> SecretHash {
        PlainSecret::presented(format!("tba_{number}").as_str()).hash()
    }

    #[test]
    fn an_entry_lasts_until_its_ttl_or_its_removal() {
        let (cache, now) = (SecretCache::default(), Instant::now());
        assert!(!cache.contains(hash(1), now));
        cache.insert(hash(1), now);
        assert!(cache.contains(hash(1), now) && !cache.contains(hash(2), now));
        assert!(!cache.contains(hash(1), now + TTL));
        cache.remove(hash(1));
        assert!(!cache.contains(hash(1), now));
    }

    #[test]
    fn the_number_of_secrets_is_bounded() {
        let (cache, now) = (SecretCache::default(), Instant::now());
        for number in 0..=MAX_ENTRIES {
            cache.insert(hash(number), now);
        }
        assert_eq!(cache.lock().valid_at.len(), MAX_ENTRIES);
        assert!(cache.contains(hash(7), now) && !cache.contains(hash(MAX_ENTRIES), now));
        cache.insert(hash(MAX_ENTRIES), now + TTL);
        assert_eq!(cache.lock().valid_at.len(), 1);
    }
}
