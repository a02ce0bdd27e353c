//! A limit of the creations of namespaces that a person has under way. A creation goes on without its
//! client, so that the limits of requests do not count it any more.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use super::error::TenantError;

/// Maximum number of concurrent creations of a person.
const MAX_CONCURRENT: usize = 8;
/// How long a request waits for a permit.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// The creations of each person who has some under way. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct CreationLimiter(Arc<Mutex<BTreeMap<Uuid, Arc<Semaphore>>>>);

impl CreationLimiter {
    /// Waits until the user may begin another creation, which is under way until the permit is
    /// dropped.
    ///
    /// # Errors
    /// [`TenantError::NotReady`] if the others do not end in time.
    pub(super) async fn acquire(&self, user: Uuid) -> Result<OwnedSemaphorePermit, TenantError> {
        let permit = tokio::time::timeout(ACQUIRE_TIMEOUT, self.of(user).acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or_else(|| TenantError::NotReady {
            reason: format!(
                "{MAX_CONCURRENT} namespaces that you requested are still being created, and you \
                 may have no more at a time; try again later"
            ),
        })
    }

    fn of(&self, user: Uuid) -> Arc<Semaphore> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Permits and waiting requests have clones.
        all.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        Arc::clone(all.entry(user).or_insert_with(|| Arc::new(Semaphore::new(MAX_CONCURRENT))))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_person_has_a_limited_number_of_creations_under_way() {
        let limiter = CreationLimiter::default();
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut permits = Vec::new();
        for _ in 0..MAX_CONCURRENT {
            permits.push(limiter.acquire(one).await.unwrap());
        }
        assert!(limiter.acquire(one).now_or_never().is_none(), "it waits");
        drop(limiter.acquire(other).await.unwrap());
        permits.pop();
        permits.push(limiter.acquire(one).await.unwrap());
        permits.clear();
        drop(limiter.acquire(other).await.unwrap());
        assert_eq!(limiter.0.lock().unwrap().len(), 1, "who has none under way is forgotten");
    }
}
