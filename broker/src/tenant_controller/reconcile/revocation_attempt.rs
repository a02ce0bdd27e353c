//! What the revocations in the namespaces of a tenant share.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::sync::Semaphore;

use crate::tenant_controller::objects::withdraw::MAX_IN_FLIGHT;

/// How long a request holds a permit. Requests that take longer, such as deletions for which an admission
/// webhook does not answer, go on without one, so that they do not keep the rights in other namespaces. The
/// timeout of requests to the cluster limits how many there are.
const PERMIT_TIMEOUT: Duration = Duration::from_millis(500);

/// Failures after which an attempt records no more deletions.
const MAX_FAILED_RECORDS: u32 = 3;

/// An attempt at the revocation of rights in namespaces.
#[derive(Debug)]
pub(super) struct RevocationAttempt {
    permits: Semaphore,
    responses: AtomicU32,
    /// Namespaces of the tenant and whether they have the label, once they are listed.
    listed: OnceLock<BTreeMap<String, bool>>,
    /// Namespaces that a read did not show as the tenant's.
    left_out: Mutex<Vec<String>>,
    pub(super) recorded: Arc<DeletionRecord>,
}

impl RevocationAttempt {
    pub(super) fn new() -> Self {
        Self {
            permits: Semaphore::new(MAX_IN_FLIGHT),
            responses: AtomicU32::new(0),
            listed: OnceLock::new(),
            left_out: Mutex::default(),
            recorded: Arc::default(),
        }
    }

    /// Makes a request when there is a permit. Permits are given in the order in which they are asked for.
    pub(super) async fn in_flight<T>(&self, request: impl Future<Output = T>) -> T {
        let permit = self.permits.acquire().await;
        let mut request = pin!(request);
        let result = if let Ok(result) = tokio::time::timeout(PERMIT_TIMEOUT, &mut request).await {
            result
        } else {
            drop(permit);
            request.await
        };
        self.responses.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// Number of requests that have ended.
    pub(super) fn responses(&self) -> u32 {
        self.responses.load(Ordering::Relaxed)
    }

    /// Sets the namespaces of the tenant, each with whether it has the label, from a list. Once.
    pub(super) fn set_listed(&self, namespaces: BTreeMap<String, bool>) {
        let _ = self.listed.set(namespaces);
    }

    /// Whether a list showed that a namespace has the label.
    pub(super) fn is_labelled(&self, namespace: &str) -> bool {
        self.listed.get().and_then(|listed| listed.get(namespace)).is_some_and(|it| *it)
    }

    /// Records that a read did not show a namespace as the tenant's.
    pub(super) fn leave_out(&self, namespace: &str) {
        self.lock_left_out().push(namespace.to_owned());
    }

    /// The namespaces that were left out although the list shows them as the tenant's: a proxy may have
    /// answered the read, or an API server that was behind.
    pub(super) fn take_wrongly_left_out(&self) -> Vec<String> {
        let mut left_out = std::mem::take(&mut *self.lock_left_out());
        left_out.retain(|name| self.listed.get().is_some_and(|listed| listed.contains_key(name)));
        left_out
    }

    /// No code panics while it has the lock.
    fn lock_left_out(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the names of RoleBindings that an attempt deletes are still recorded.
#[derive(Debug, Default)]
pub(super) struct DeletionRecord {
    failures: AtomicU32,
}

impl DeletionRecord {
    pub(super) fn goes_on(&self) -> bool {
        self.failures.load(Ordering::Relaxed) < MAX_FAILED_RECORDS
    }

    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the record, because there is no room for another name.
    pub(super) fn end(&self) {
        self.failures.fetch_add(MAX_FAILED_RECORDS, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future;

    use super::*;

    #[tokio::test]
    async fn requests_that_hang_do_not_keep_others_from_their_permits() {
        let attempt = RevocationAttempt::new();
        let hanging = (0..3 * MAX_IN_FLIGHT).map(|_| attempt.in_flight(future::pending::<()>()));
        let hanging = future::join_all(hanging);
        let last = async {
            // The others ask first.
            tokio::task::yield_now().await;
            attempt.in_flight(future::ready(7)).await
        };
        tokio::select! {
            _ = hanging => unreachable!(),
            result = last => assert_eq!(result, 7),
        }
    }

    #[test]
    fn namespaces_that_the_list_shows_are_looked_at_again() {
        let attempt = RevocationAttempt::new();
        attempt.leave_out("solar-a");
        attempt.leave_out("solar-gone");
        let listed = [("solar-a", false), ("solar-b", true)];
        attempt.set_listed(listed.map(|(name, labelled)| (name.to_owned(), labelled)).into());
        assert!(attempt.is_labelled("solar-b") && !attempt.is_labelled("solar-a"));
        assert_eq!(attempt.take_wrongly_left_out(), ["solar-a"]);
        assert!(attempt.take_wrongly_left_out().is_empty());
    }

    #[test]
    fn a_database_that_fails_ends_the_record() {
        let recorded = DeletionRecord::default();
        for _ in 0..MAX_FAILED_RECORDS {
            assert!(recorded.goes_on());
            recorded.failed();
        }
        assert!(!recorded.goes_on());
        let full = DeletionRecord::default();
        full.end();
        assert!(!full.goes_on());
    }
}
