//! Limits of lists and watches with the broker's own credential, of each person and of all together.
//!
//! The API server takes them all for requests of one user, the broker, and a list may be of all nodes.
//! So they are limited besides the requests of each membership, of which a person may have many. Each
//! replica counts for itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tenant_shared::Code;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use crate::http::ApiError;

/// Lists in flight, until the client has read the response.
const MAX_LISTS: usize = 64;
/// Lists of one person in flight.
const MAX_LISTS_OF_PERSON: usize = 8;
/// Open watches.
const MAX_WATCHES: usize = 4_096;
/// Open watches of one person.
const MAX_WATCHES_OF_PERSON: usize = 64;
/// How long a request waits for others to end.
const WAIT_TIMEOUT: Duration = Duration::from_secs(1);
/// `Retry-After` of a refusal, in seconds.
const RETRY_SECONDS: u64 = 2;
/// Persons without requests that are kept before they are forgotten.
const MAX_IDLE: usize = 1_000;

/// The limits. Clones share them.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct BrokerReadLimiter {
    lists: Arc<Pool>,
    watches: Arc<Pool>,
}

/// A request within the limits, until it is dropped.
#[derive(Debug)]
pub(in crate::gateway) struct BrokerReadPermit {
    _of_person: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Default for BrokerReadLimiter {
    fn default() -> Self {
        Self {
            lists: Arc::new(Pool::new(MAX_LISTS, MAX_LISTS_OF_PERSON)),
            watches: Arc::new(Pool::new(MAX_WATCHES, MAX_WATCHES_OF_PERSON)),
        }
    }
}

impl BrokerReadLimiter {
    /// A permit for a list or watch of a user. Waits a moment for others to end.
    ///
    /// # Errors
    /// A limit is exceeded.
    pub(in crate::gateway) async fn acquire(
        &self,
        user: Uuid,
        is_watch: bool,
    ) -> Result<BrokerReadPermit, ApiError> {
        let pool = if is_watch { &self.watches } else { &self.lists };
        pool.acquire(user, WAIT_TIMEOUT).await.ok_or_else(|| refusal(is_watch))
    }
}

fn refusal(is_watch: bool) -> ApiError {
    let text = if is_watch {
        format!(
            "too many watches of namespaces and cluster-scoped resources are open at this broker, or \
             more than {MAX_WATCHES_OF_PERSON} of yours; end some"
        )
    } else {
        format!(
            "too many lists of namespaces and cluster-scoped resources are in flight at this broker, \
             or more than {MAX_LISTS_OF_PERSON} of yours; try again"
        )
    };
    ApiError::new(Code::RateLimited, text).retry_after(RETRY_SECONDS)
}

/// Requests of one kind.
#[derive(Debug)]
struct Pool {
    of_all: Arc<Semaphore>,
    max_of_person: usize,
    /// Each lives as long as a request of the person.
    of_persons: Mutex<HashMap<Uuid, Weak<Semaphore>>>,
}

impl Pool {
    fn new(max: usize, max_of_person: usize) -> Self {
        let of_all = Arc::new(Semaphore::new(max));
        Self { of_all, max_of_person, of_persons: Mutex::default() }
    }

    async fn acquire(&self, user: Uuid, timeout: Duration) -> Option<BrokerReadPermit> {
        let permits = async {
            // First that of the person, so that a person who waits for it keeps nobody else waiting.
            let of_person = self.of_person(user).acquire_owned().await.ok()?;
            let of_all = Arc::clone(&self.of_all).acquire_owned().await.ok()?;
            Some(BrokerReadPermit { _of_person: of_person, _of_all: of_all })
        };
        tokio::time::timeout(timeout, permits).await.ok().flatten()
    }

    fn of_person(&self, user: Uuid) -> Arc<Semaphore> {
        // No code panics while it has the lock.
        let mut of_persons = self.of_persons.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = of_persons.get(&user).and_then(Weak::upgrade) {
            return semaphore;
        }
        if of_persons.len() >= MAX_IDLE {
            of_persons.retain(|_, semaphore| semaphore.strong_count() > 0);
        }
        let semaphore = Arc::new(Semaphore::new(self.max_of_person));
        of_persons.insert(user, Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Uuid = Uuid::from_u128(1);
    /// Limit of what takes milliseconds.
    const STEP_TIMEOUT: Duration = Duration::from_secs(30);
    const BOB: Uuid = Uuid::from_u128(2);

    #[tokio::test]
    async fn one_person_leaves_room_for_others_and_all_together_are_limited() {
        let pool = Pool::new(3, 2);
        let acquire = |user| pool.acquire(user, Duration::from_millis(10));
        let of_alice = [acquire(ALICE).await.unwrap(), acquire(ALICE).await.unwrap()];
        assert!(acquire(ALICE).await.is_none());
        let of_bob = acquire(BOB).await.unwrap();
        assert!(acquire(BOB).await.is_none(), "three are in flight");
        drop(of_alice);
        assert!(acquire(BOB).await.is_some());
        assert!(acquire(ALICE).await.is_some());
        drop(of_bob);
    }

    #[tokio::test]
    async fn a_request_waits_a_moment_for_another_one() {
        let pool = Arc::new(Pool::new(1, 1));
        let first = pool.acquire(ALICE, STEP_TIMEOUT).await.unwrap();
        let second = {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move { pool.acquire(ALICE, STEP_TIMEOUT).await.is_some() })
        };
        tokio::task::yield_now().await;
        drop(first);
        assert!(second.await.unwrap());
    }

    #[tokio::test]
    async fn persons_without_requests_are_forgotten() {
        let pool = Pool::new(1, 1);
        for user in 0..=MAX_IDLE as u128 {
            drop(pool.acquire(Uuid::from_u128(user), WAIT_TIMEOUT).await.unwrap());
        }
        assert_eq!(pool.of_persons.lock().unwrap().len(), 1);
    }
}
