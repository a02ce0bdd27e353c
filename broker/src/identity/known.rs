//! Secrets that stood for a live session a while ago: whoever presents one of them is not limited like
//! a client that nobody knows.
//!
//! That a secret is known proves nothing: the database is asked each time whether the session goes on.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::secret::SecretHash;

/// How long a secret stays known after it was last found good.
const KNOWN_FOR: Duration = Duration::from_mins(15);
/// Secrets that are known at once, about 4 MiB.
const MAX_KNOWN: usize = 50_000;
/// How often the secrets are searched for those to forget.
const EVICT_EVERY: Duration = Duration::from_secs(10);

/// The secrets, by hash. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownSecrets(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    good_at: HashMap<[u8; 32], Instant>,
    evicted_at: Option<Instant>,
}

impl KnownSecrets {
    /// Whether this secret was good a while ago.
    pub(super) fn contains(&self, hash: SecretHash, now: Instant) -> bool {
        let state = self.lock();
        let good_at = state.good_at.get(&hash.into_bytes());
        good_at.is_some_and(|at| now.duration_since(*at) < KNOWN_FOR)
    }

    /// This secret stands for a live session.
    pub(super) fn insert(&self, hash: SecretHash, now: Instant) {
        let mut state = self.lock();
        let is_full = state.good_at.len() >= MAX_KNOWN;
        let may_search = state.evicted_at.is_none_or(|at| now.duration_since(at) >= EVICT_EVERY);
        if is_full && may_search {
            state.evicted_at = Some(now);
            state.good_at.retain(|_, at| now.duration_since(*at) < KNOWN_FOR);
        }
        let key = hash.into_bytes();
        if state.good_at.len() < MAX_KNOWN || state.good_at.contains_key(&key) {
            state.good_at.insert(key, now);
        }
    }

    /// This secret stands for nothing any more.
    pub(super) fn remove(&self, hash: SecretHash) {
        self.lock().good_at.remove(&hash.into_bytes());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::PlainSecret;

    fn hash(number: usize) -> SecretHash {
        PlainSecret::presented(format!("tba_{number}").as_str()).hash()
    }

    #[test]
    fn a_secret_is_known_for_a_while_and_until_it_is_removed() {
        let (known, now) = (KnownSecrets::default(), Instant::now());
        assert!(!known.contains(hash(1), now));
        known.insert(hash(1), now);
        assert!(known.contains(hash(1), now) && !known.contains(hash(2), now));
        assert!(!known.contains(hash(1), now + KNOWN_FOR));
        known.remove(hash(1));
        assert!(!known.contains(hash(1), now));
    }

    #[test]
    fn the_number_of_secrets_is_bounded() {
        let (known, now) = (KnownSecrets::default(), Instant::now());
        for number in 0..=MAX_KNOWN {
            known.insert(hash(number), now);
        }
        assert_eq!(known.lock().good_at.len(), MAX_KNOWN);
        assert!(known.contains(hash(7), now) && !known.contains(hash(MAX_KNOWN), now));
        known.insert(hash(MAX_KNOWN), now + KNOWN_FOR);
        assert_eq!(known.lock().good_at.len(), 1);
    }
}
