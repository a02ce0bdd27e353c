//! Limits of model services, in each replica: requests with a Kubernetes token, tokens that the API
//! server refuses, changes, calls to the API server, and the memory of its answers and of unsent
//! responses. Requests of sessions have the limits of their tier besides.

mod address_entries;
mod calls;
mod changes;
mod memory;
mod refused_tokens;
mod shares;
mod token_limiters;
mod unsent;

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

pub(super) use self::{
    calls::{Calls, RequestCalls},
    changes::{ChangeKey, Changes},
    memory::{KeptMemory, Memory, RequestMemory, Reservation, SMALL_ANSWER_BYTES},
    refused_tokens::RefusedTokens,
    shares::CallerKey,
    token_limiters::{TokenLimiters, TokenPermit},
    unsent::{MAX_RESPONSE_BYTES, UnsentMemory, UnsentReservation},
};
use super::{failure::Failure, settings::TokenLimits};
use crate::base::rate_limit::InFlightLimiter;

/// Searches for candidate namespaces, each of which lists all RoleBindings of the cluster.
const MAX_CANDIDATE_SEARCHES: usize = 4;
/// Searches of one user or token.
const MAX_CANDIDATE_SEARCHES_PER_CALLER: usize = 1;
/// Searches of all tokens from one address, which may be a frontend's.
const MAX_CANDIDATE_SEARCHES_PER_ADDRESS: usize = 2;
/// Searches that run or wait. Each takes a place of the requests and of the unsent responses of its
/// address.
const MAX_ADMITTED_SEARCHES: usize = 64;
/// Searches of one user or token that run or wait.
const MAX_ADMITTED_SEARCHES_PER_CALLER: usize = 4;
/// Searches of all tokens from one address that run or wait.
const MAX_ADMITTED_SEARCHES_PER_ADDRESS: usize = 16;
/// Requests with Kubernetes tokens in flight.
const MAX_TOKEN_REQUESTS: usize = 1024;
/// Requests with Kubernetes tokens in flight from one address, which may be a frontend's: a quarter of
/// all, as of the tokens themselves.
const MAX_TOKEN_REQUESTS_PER_ADDRESS: usize = 256;

#[derive(Debug)]
pub(super) struct Limits {
    pub(super) tokens: TokenLimiters,
    pub(super) refused: RefusedTokens,
    memory: Memory,
    pub(super) changes: Changes,
    pub(super) unsent: UnsentMemory,
    pub(super) token_requests: Arc<InFlightLimiter>,
    calls: Calls,
    searches: Calls,
    admitted_searches: Calls,
}

/// What one request may use. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct RequestLimits {
    pub(super) memory: RequestMemory,
    pub(super) calls: RequestCalls,
    /// Searches for candidate namespaces.
    pub(super) searches: Searches,
}

/// The searches that one request may run.
#[derive(Clone, Debug)]
pub(super) struct Searches {
    admitted: RequestCalls,
    running: RequestCalls,
}

impl Searches {
    /// Waits for the permits of a search, which runs until they are dropped.
    ///
    /// # Errors
    /// Too many searches of the caller, of the address or of all run or wait.
    pub(super) async fn acquire(&self) -> Result<[Vec<OwnedSemaphorePermit>; 2], Failure> {
        let admitted = self.admitted.try_acquire().ok_or_else(|| {
            Failure::too_many("too many searches for namespaces at once; try again", 2)
        })?;
        let running = self.running.acquire().await;
        Ok([admitted, running.map_err(|error| Failure::internal_error(&error))?])
    }
}

impl Limits {
    pub(super) fn new(tokens: TokenLimits, changes_per_user: u32) -> Self {
        Self {
            tokens: TokenLimiters::new(tokens),
            refused: RefusedTokens::default(),
            changes: Changes::new(changes_per_user),
            memory: Memory::default(),
            unsent: UnsentMemory::default(),
            token_requests: InFlightLimiter::new(
                MAX_TOKEN_REQUESTS,
                MAX_TOKEN_REQUESTS_PER_ADDRESS,
            ),
            calls: Calls::default(),
            searches: Calls::with_limits(
                MAX_CANDIDATE_SEARCHES,
                MAX_CANDIDATE_SEARCHES_PER_CALLER,
                MAX_CANDIDATE_SEARCHES_PER_ADDRESS,
            ),
            admitted_searches: Calls::with_limits(
                MAX_ADMITTED_SEARCHES,
                MAX_ADMITTED_SEARCHES_PER_CALLER,
                MAX_ADMITTED_SEARCHES_PER_ADDRESS,
            ),
        }
    }

    /// The limits of a request, which counts against the share of each of these.
    pub(super) fn of_request(&self, callers: &[CallerKey]) -> RequestLimits {
        RequestLimits {
            memory: self.memory.of_request(callers),
            calls: self.calls.of_request(callers),
            searches: Searches {
                admitted: self.admitted_searches.of_request(callers),
                running: self.searches.of_request(callers),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::base::rate_limit::Client;

    #[test]
    fn a_few_searches_of_a_caller_and_an_address_wait() {
        let limits = TokenLimits { requests_per_second: 1, requests_at_once: 1 };
        let limits = Limits::new(limits, 1);
        let searches = |token: u8, address: u32| {
            let address = CallerKey::Address(Client::V4(address.into()));
            limits.of_request(&[CallerKey::Token([token; 32]), address]).searches
        };
        let of_token = searches(1, 1);
        let running = of_token.acquire().now_or_never().unwrap().unwrap();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let mut permits = Box::pin(of_token.acquire());
                assert!(permits.as_mut().now_or_never().is_none());
                permits
            })
            .collect();
        let refused = of_token.acquire().now_or_never().unwrap().unwrap_err();
        assert_eq!(refused.status().as_u16(), 429);
        assert!(refused.retry_after_seconds().is_some());
        // Other tokens at the address, of which two searches run.
        let others: Vec<_> = (2..14).map(|token| searches(token, 1)).collect();
        let acquired: Vec<_> = others
            .iter()
            .map(|search| {
                let mut permits = Box::pin(search.acquire());
                let done = permits.as_mut().now_or_never();
                (done, permits)
            })
            .collect();
        assert!(acquired.iter().all(|(done, _)| done.as_ref().is_none_or(Result::is_ok)));
        assert_eq!(acquired.iter().filter(|(done, _)| done.is_some()).count(), 1);
        assert!(searches(14, 1).acquire().now_or_never().unwrap().is_err());
        assert!(searches(15, 2).acquire().now_or_never().unwrap().is_ok());
        drop((running, waiting));
        assert!(searches(14, 1).acquire().now_or_never().is_none(), "it waits");
    }
}
