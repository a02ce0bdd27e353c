//! Rate limits of Kubernetes tokens, by their SHA-256.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::OwnedSemaphorePermit;

use super::address_entries::AddressEntries;
use crate::{
    base::rate_limit::ClientNetwork,
    gateway::{LimitExceeded, TenantLimiter},
    model_services::{failure::Failure, settings::TokenLimits},
    tier::GatewayLimits,
};

/// Tokens with a limiter at most, about 10 MiB; a quarter of them from one address.
const MAX_TOKENS: usize = 10_000;
/// An unused limiter is kept so long. After that time its burst would be full again anyway.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes per second of the API server's responses to one token.
const BYTES_PER_SECOND: u64 = 32 * 1024 * 1024;

/// A request with a token that is within its limits, until this is dropped.
#[derive(Debug)]
pub(in crate::model_services) struct TokenPermit {
    pub(in crate::model_services) limiter: Arc<TenantLimiter>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct TokenLimiterEntry {
    limiter: Arc<TenantLimiter>,
    used_at: Instant,
}

#[derive(Debug)]
pub(in crate::model_services) struct TokenLimiters {
    limits: GatewayLimits,
    entries: Mutex<AddressEntries<[u8; 32], TokenLimiterEntry>>,
}

impl TokenLimiters {
    pub(super) fn new(limits: TokenLimits) -> Self {
        let limits = GatewayLimits {
            requests_per_second: limits.requests_per_second,
            requests_at_once: limits.requests_at_once,
            streams: 0,
            bytes_per_second: BYTES_PER_SECOND,
        };
        Self { limits, entries: Mutex::new(AddressEntries::new(MAX_TOKENS)) }
    }

    /// Admits a request with this token from this address.
    ///
    /// # Errors
    /// A limit of the token is exceeded, or too many other tokens are in use, here or at that address.
    pub(in crate::model_services) fn admit(
        &self,
        token: [u8; 32],
        client: ClientNetwork,
        now: Instant,
    ) -> Result<TokenPermit, Failure> {
        let limiter = self
            .limiter(token, client, now)
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
        self.lock().remove(&token);
    }

    fn limiter(
        &self,
        token: [u8; 32],
        client: ClientNetwork,
        now: Instant,
    ) -> Option<Arc<TenantLimiter>> {
        let is_used = |entry: &TokenLimiterEntry| {
            Arc::strong_count(&entry.limiter) > 1
                || now.duration_since(entry.used_at) < IDLE_TIMEOUT
        };
        let new = || TokenLimiterEntry {
            limiter: Arc::new(TenantLimiter::new(self.limits)),
            used_at: now,
        };
        let mut entries = self.lock();
        let entry = entries.get_or_insert(token, client, now, is_used, new)?;
        entry.used_at = now;
        Some(Arc::clone(&entry.limiter))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, AddressEntries<[u8; 32], TokenLimiterEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ClientNetwork = ClientNetwork::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn token(number: usize) -> [u8; 32] {
        let mut token = [0; 32];
        token[..8].copy_from_slice(&number.to_le_bytes());
        token
    }

    #[test]
    fn each_token_has_its_rate_and_its_requests_at_once() {
        let limits = TokenLimits { requests_per_second: 2, requests_at_once: 3 };
        let (limiters, now) = (TokenLimiters::new(limits), Instant::now());
        let held: Vec<_> = (0..3).map(|_| limiters.admit(token(1), ONE, now).unwrap()).collect();
        let refused = limiters.admit(token(1), ONE, now).unwrap_err();
        assert!(refused.message().contains("3 requests at once"), "{refused}");
        assert!(limiters.admit(token(2), ONE, now).is_ok());
        drop(held);
        let passed = (0..100).filter(|_| limiters.admit(token(1), ONE, now).is_ok()).count();
        assert!(passed <= 5, "the burst is eight: {passed}");
        let refused = limiters.admit(token(1), ONE, now).unwrap_err();
        assert!(refused.retry_after_seconds().is_some(), "{refused}");
    }

    #[test]
    fn the_number_of_tokens_is_bounded_for_all_and_for_an_address() {
        let limits = TokenLimits { requests_per_second: 2, requests_at_once: 3 };
        let (limiters, now) = (TokenLimiters::new(limits), Instant::now());
        let quarter = MAX_TOKENS / 4;
        for number in 0..quarter {
            drop(limiters.admit(token(number), ONE, now).unwrap());
        }
        assert!(limiters.admit(token(quarter), ONE, now).is_err());
        assert!(limiters.admit(token(7), ONE, now).is_ok(), "a known token has its limiter");
        for number in quarter..MAX_TOKENS {
            let address = ClientNetwork::V4(u32::try_from(number % 3).unwrap().into());
            drop(limiters.admit(token(number), address, now).unwrap());
        }
        assert!(limiters.admit(token(MAX_TOKENS), ClientNetwork::Unknown, now).is_err());
        let later = now + IDLE_TIMEOUT;
        assert!(limiters.admit(token(MAX_TOKENS), ClientNetwork::Unknown, later).is_ok());
        assert_eq!(limiters.lock().len(), 1);
    }
}
