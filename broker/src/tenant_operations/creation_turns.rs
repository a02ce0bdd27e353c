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

/// Creations of a person that are under way at once.
const MAX_AT_ONCE: usize = 8;
/// How long a request waits for its turn.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The creations of each person who has some under way. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct CreationTurns(Arc<Mutex<BTreeMap<Uuid, Arc<Semaphore>>>>);

impl CreationTurns {
    /// Waits until the user may begin another creation, which is under way until the permit is
    /// dropped.
    ///
    /// # Errors
    /// [`TenantError::NotReady`] if the others do not end in time.
    pub(super) async fn turn(&self, user: Uuid) -> Result<OwnedSemaphorePermit, TenantError> {
        let turn = tokio::time::timeout(TIMEOUT, self.of(user).acquire_owned()).await;
        turn.ok().and_then(Result::ok).ok_or(TenantError::NotReady {
            reason: "too many namespaces that you requested are still being created; try again \
                     later",
        })
    }

    fn of(&self, user: Uuid) -> Arc<Semaphore> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Permits and waiting requests have clones.
        all.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        Arc::clone(all.entry(user).or_insert_with(|| Arc::new(Semaphore::new(MAX_AT_ONCE))))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_person_has_a_limited_number_of_creations_under_way() {
        let turns = CreationTurns::default();
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut permits = Vec::new();
        for _ in 0..MAX_AT_ONCE {
            permits.push(turns.turn(one).await.unwrap());
        }
        assert!(turns.turn(one).now_or_never().is_none(), "it waits");
        drop(turns.turn(other).await.unwrap());
        permits.pop();
        permits.push(turns.turn(one).await.unwrap());
        permits.clear();
        drop(turns.turn(other).await.unwrap());
        assert_eq!(turns.0.lock().unwrap().len(), 1, "who has none under way is forgotten");
    }
}
