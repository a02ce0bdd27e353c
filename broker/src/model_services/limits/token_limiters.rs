//! Rate limits of Kubernetes tokens, by their SHA-256.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::OwnedSemaphorePermit;

use crate::{
    gateway::{LimitExceeded, TenantLimiter},
    model_services::{failure::Failure, settings::TokenLimits},
    tier::GatewayLimits,
};

/// Tokens with a limiter at most, about 10 MiB.
const MAX_TOKENS: usize = 10_000;
/// An unused limiter is kept so long. After that time its burst would be full again anyway.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum interval between two evictions of unused limiters.
const EVICTION_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes per second of the API server's answers to one token.
const BYTES_PER_SECOND: u64 = 32 * 1024 * 1024;

/// A request with a token that is within its limits, until this is dropped.
#[derive(Debug)]
pub(in crate::model_services) struct TokenPermit {
    pub(in crate::model_services) limiter: Arc<TenantLimiter>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Entry {
    limiter: Arc<TenantLimiter>,
    used_at: Instant,
}

#[derive(Debug, Default)]
struct Entries {
    by_token: HashMap<[u8; 32], Entry>,
    evicted_at: Option<Instant>,
}

#[derive(Debug)]
pub(in crate::model_services) struct TokenLimiters {
    limits: GatewayLimits,
    entries: Mutex<Entries>,
}

impl TokenLimiters {
    pub(super) fn new(limits: TokenLimits) -> Self {
        let limits = GatewayLimits {
            requests_per_second: limits.requests_per_second,
            requests_at_once: limits.requests_at_once,
            streams: 0,
            bytes_per_second: BYTES_PER_SECOND,
        };
        Self { limits, entries: Mutex::default() }
    }

    /// Admits a request with this token.
    ///
    /// # Errors
    /// A limit of the token is exceeded, or too many other tokens are in use.
    pub(in crate::model_services) fn admit(
        &self,
        token: [u8; 32],
        now: Instant,
    ) -> Result<TokenPermit, Failure> {
        let limiter = self
            .limiter(token, now)
            .ok_or_else(|| Failure::too_many("too many tokens are in use; try again", 5))?;
        match limiter.acquire_call() {
            Ok(permit) => Ok(TokenPermit { limiter, _permit: permit }),
            Err(LimitExceeded::Rate(wait)) => {
                let rate = self.limits.requests_per_second;
                let text = format!("more than {rate} requests a second with this token");
                Err(Failure::too_many(text, wait.as_secs() + 1))
            }
            Err(LimitExceeded::Concurrency | LimitExceeded::Streams) => {
                let count = self.limits.requests_at_once;
                Err(Failure::too_many(
                    format!("more than {count} requests at once with this token"),
                    1,
                ))
            }
        }
    }

    /// Forgets a token that the API server refused, so that such tokens take no room from others.
    pub(in crate::model_services) fn forget(&self, token: [u8; 32]) {
        self.lock().by_token.remove(&token);
    }

    fn limiter(&self, token: [u8; 32], now: Instant) -> Option<Arc<TenantLimiter>> {
        let mut entries = self.lock();
        if !entries.has_room(token, now) {
            return None;
        }
        let entry = entries.by_token.entry(token).or_insert_with(|| Entry {
            limiter: Arc::new(TenantLimiter::new(self.limits)),
            used_at: now,
        });
        entry.used_at = now;
        Some(Arc::clone(&entry.limiter))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Whether this token has a limiter, or there is room for one. An eviction visits all tokens, so
    /// it runs at most once a second.
    fn has_room(&mut self, token: [u8; 32], now: Instant) -> bool {
        if self.by_token.len() < MAX_TOKENS || self.by_token.contains_key(&token) {
            return true;
        }
        if self.evicted_at.is_none_or(|at| now.duration_since(at) >= EVICTION_INTERVAL) {
            self.evicted_at = Some(now);
            self.by_token.retain(|_, entry| {
                Arc::strong_count(&entry.limiter) > 1
                    || now.duration_since(entry.used_at) < IDLE_TIMEOUT
            });
        }
        self.by_token.len() < MAX_TOKENS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: usize) -> [u8; 32] {
        let mut token = [0; 32];
        token[..8].copy_from_slice(&number.to_le_bytes());
        token
    }

    #[test]
    fn each_token_has_its_rate_and_its_requests_at_once() {
        let limits = TokenLimits { requests_per_second: 2, requests_at_once: 3 };
        let (limiters, now) = (TokenLimiters::new(limits), Instant::now());
        let held: Vec<_> = (0..3).map(|_| limiters.admit(token(1), now).unwrap()).collect();
        let refused = limiters.admit(token(1), now).unwrap_err();
        assert!(refused.message().contains("3 requests at once"), "{refused}");
        assert!(limiters.admit(token(2), now).is_ok());
        drop(held);
        let passed = (0..100).filter(|_| limiters.admit(token(1), now).is_ok()).count();
        assert!(passed <= 5, "the burst is eight: {passed}");
        let refused = limiters.admit(token(1), now).unwrap_err();
        assert!(refused.retry_after_seconds().is_some(), "{refused}");
    }

    #[test]
    fn the_number_of_tokens_is_bounded() {
        let limits = TokenLimits { requests_per_second: 2, requests_at_once: 3 };
        let (limiters, now) = (TokenLimiters::new(limits), Instant::now());
        for number in 0..MAX_TOKENS {
            drop(limiters.admit(token(number), now).unwrap());
        }
        assert!(limiters.admit(token(MAX_TOKENS), now).is_err());
        assert!(limiters.admit(token(7), now).is_ok(), "a known token has its limiter");
        assert!(limiters.admit(token(MAX_TOKENS), now + IDLE_TIMEOUT).is_ok());
        assert_eq!(limiters.lock().by_token.len(), 1);
    }
}
