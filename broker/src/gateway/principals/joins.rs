//! Attempts to make the memberships that requests need. Concurrent requests of a person share one
//! attempt, and its result counts for a moment, because requests do not wait here for their turn in
//! the limits of a tier.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tenant_shared::Code;
use uuid::Uuid;

use crate::{http::ApiError, tenant::TenantName};

/// How long the result of an attempt for one tenant counts.
const TENANT_TTL: Duration = Duration::from_secs(1);
/// How long the result of an attempt for all tenants counts. It is longer, because a list may need
/// one although a tenant cannot be joined.
const ALL_TTL: Duration = Duration::from_secs(5);

/// How many requests wait for one attempt. The limits of a tier do not count them yet.
const MAX_WAITING: usize = 32;

/// The user, and the tenant; without one all tenants of the user.
pub(in crate::gateway) type Key = (Uuid, Option<TenantName>);

/// A finished attempt.
#[derive(Debug)]
struct Attempt {
    ended_at: Instant,
    /// Code, text and `Retry-After` of the error.
    error: Option<(Code, String, Option<u64>)>,
}

type Slot = Arc<tokio::sync::Mutex<Option<Attempt>>>;

/// The attempts. Clones share them.
#[derive(Clone, Debug, Default)]
pub(in crate::gateway) struct Joins(Arc<Mutex<BTreeMap<Key, Slot>>>);

impl Joins {
    /// Makes an attempt, unless there was one just now. Returns when it ended.
    ///
    /// # Errors
    /// The attempt failed, also if another request made it; or too many requests wait for it.
    pub(in crate::gateway) async fn attempt(
        &self,
        key: Key,
        join: impl Future<Output = Result<(), ApiError>>,
    ) -> Result<Instant, ApiError> {
        let ttl = if key.1.is_some() { TENANT_TTL } else { ALL_TTL };
        let slot = self.slot(key);
        // One is that of the map.
        if Arc::strong_count(&slot) > MAX_WAITING + 1 {
            let text = "too many of your requests wait until you are a member of the tenant";
            return Err(ApiError::new(Code::RateLimited, text).retry_after(1));
        }
        let mut last = slot.lock().await;
        let recent = last.take().filter(|attempt| attempt.ended_at.elapsed() < ttl);
        let attempt = if let Some(attempt) = recent {
            attempt
        } else {
            let error = join.await.err();
            let error = error
                .map(|error| (error.code(), error.problem().detail, error.retry_after_seconds()));
            Attempt { ended_at: Instant::now(), error }
        };
        let result = attempt.result();
        *last = Some(attempt);
        result
    }

    fn slot(&self, key: Key) -> Slot {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|_, slot| Arc::strong_count(slot) > 1 || is_recent(slot));
        Arc::clone(slots.entry(key).or_default())
    }
}

impl Attempt {
    fn result(&self) -> Result<Instant, ApiError> {
        let Some((code, text, retry_after)) = &self.error else { return Ok(self.ended_at) };
        let error = ApiError::new(*code, text.as_str());
        Err(match retry_after {
            Some(seconds) => error.retry_after(*seconds),
            None => error,
        })
    }
}

fn is_recent(slot: &Slot) -> bool {
    // A slot that is locked is in use.
    slot.try_lock().map_or(true, |last| {
        last.as_ref().is_some_and(|attempt| attempt.ended_at.elapsed() < ALL_TTL)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn key(tenant: Option<&str>) -> Key {
        (Uuid::from_u128(1), tenant.map(|name| name.parse().unwrap()))
    }

    #[tokio::test]
    async fn concurrent_requests_share_one_attempt() {
        let (joins, attempts) = (Joins::default(), AtomicUsize::new(0));
        let one = || {
            joins.attempt(key(Some("solar")), async {
                attempts.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                Ok(())
            })
        };
        let (first, second) = tokio::join!(one(), one());
        assert_eq!(first.unwrap(), second.unwrap());
        assert_eq!(attempts.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_limited_number_of_requests_waits_for_an_attempt() {
        let joins = Joins::default();
        let attempts = (0..MAX_WAITING + 2).map(|_| {
            joins.attempt(key(None), async {
                tokio::task::yield_now().await;
                Ok(())
            })
        });
        let results = futures_util::future::join_all(attempts).await;
        let refused: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        assert_eq!(refused.len(), 2);
        assert!(refused.iter().all(|error| error.code() == Code::RateLimited));
        joins.attempt(key(None), async { Ok(()) }).await.unwrap();
    }

    #[tokio::test]
    async fn a_failed_attempt_counts_for_its_tenant_only() {
        let joins = Joins::default();
        let refused = || ApiError::new(Code::RateLimited, "too many").retry_after(3);
        let failed = joins.attempt(key(Some("solar")), async { Err(refused()) }).await;
        let again = joins.attempt(key(Some("solar")), async { Ok(()) }).await;
        for error in [failed.unwrap_err(), again.unwrap_err()] {
            assert_eq!((error.code(), error.retry_after_seconds()), (Code::RateLimited, Some(3)));
            assert_eq!(error.problem().detail, "too many");
        }
        joins.attempt(key(Some("lunar")), async { Ok(()) }).await.unwrap();
        joins.attempt(key(None), async { Ok(()) }).await.unwrap();
    }
}
