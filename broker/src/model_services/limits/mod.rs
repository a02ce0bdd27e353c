//! Limits of model services, in each replica: requests with a Kubernetes token, tokens that the API
//! server refuses, changes, calls to the API server, and the memory of its responses and of
//! unsent responses. Requests of sessions have the limits of their tier besides.

mod address_entries;
mod calls;
mod changes;
mod memory;
mod per_caller;
mod refused_tokens;
mod token_limiters;
mod unsent;

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

pub(super) use self::{
    calls::{Calls, RequestCalls},
    changes::{ChangeKey, Changes},
    memory::{Memory, RequestMemory, Reservation, SMALL_UPSTREAM_BYTES, SmallResponseReservation},
    per_caller::{CallerKey, SERVICE_ACCOUNT_PREFIX},
    refused_tokens::RefusedTokens,
    token_limiters::{TokenLimiters, TokenPermit},
    unsent::{MAX_RESPONSE_BYTES, UnsentError, UnsentMemory, UnsentReservation},
};
use super::{failure::Failure, settings::TokenLimits};
use crate::base::rate_limit::{ClientNetwork, InFlightLimiter};

/// Searches for candidate namespaces, each of which lists all RoleBindings of the cluster.
const MAX_CANDIDATE_SEARCHES: usize = 4;
/// Searches of one user.
const MAX_CANDIDATE_SEARCHES_PER_CALLER: usize = 1;
/// Searches from one address, which may be a frontend's.
const MAX_CANDIDATE_SEARCHES_PER_ADDRESS: usize = 2;
/// Searches that run or wait. Each takes a place of the requests and of the unsent responses of its
/// address.
const MAX_ADMITTED_SEARCHES: usize = 64;
/// Searches of one user that run or wait. A share of a token would leave little to others, because
/// somebody has as many tokens as they like.
const MAX_ADMITTED_SEARCHES_PER_CALLER: usize = 2;
/// Searches from one address that run or wait.
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

/// Limits of one request. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct RequestLimits {
    pub(super) memory: RequestMemory,
    pub(super) calls: RequestCalls,
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

    /// The limits of a request, which counts against those of its caller and of the address.
    /// Somebody may have many tokens, for example of ServiceAccounts, or several accounts.
    pub(super) fn of_request(&self, caller: CallerKey, client: ClientNetwork) -> RequestLimits {
        let callers = [caller, CallerKey::Address(client)];
        RequestLimits {
            memory: self.memory.of_request(&callers),
            calls: self.calls.of_request(&callers),
        }
    }

    /// Waits for the permits of a search for candidate namespaces of this Kubernetes user, which runs
    /// until they are dropped.
    ///
    /// # Errors
    /// Too many searches of the user, of the address or of all run or wait.
    pub(super) async fn acquire_search(
        &self,
        user: &str,
        client: ClientNetwork,
    ) -> Result<[Vec<OwnedSemaphorePermit>; 2], Failure> {
        let callers = [CallerKey::of_kubernetes_user(user), CallerKey::Address(client)];
        let admitted = self.admitted_searches.of_request(&callers).try_acquire();
        let admitted = admitted.ok_or_else(|| {
            Failure::too_many("too many searches for namespaces at once; try again", 2)
        })?;
        let running = self.searches.of_request(&callers).acquire().await;
        Ok([admitted, running.map_err(|error| Failure::internal_error(&error))?])
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_few_searches_of_a_user_and_an_address_wait() {
        let limits = TokenLimits { requests_per_second: 1, requests_at_once: 1 };
        let limits = Limits::new(limits, 1);
        let search = |user: usize, address: u32| {
            let limits = &limits;
            let (user, client) = (format!("user-{user}"), ClientNetwork::V4(address.into()));
            Box::pin(async move { limits.acquire_search(&user, client).await })
        };
        let running = search(1, 1).now_or_never().unwrap().unwrap();
        let mut waiting = search(1, 1);
        assert!(waiting.as_mut().now_or_never().is_none());
        let refused = search(1, 1).now_or_never().unwrap().unwrap_err();
        assert_eq!(refused.status().as_u16(), 429);
        assert!(refused.retry_after_seconds().is_some());
        // Other users at the address, of which two searches run.
        let mut others: Vec<_> = (2..16).map(|user| search(user, 1)).collect();
        let acquired: Vec<_> =
            others.iter_mut().map(|search| search.as_mut().now_or_never()).collect();
        assert!(acquired.iter().all(|done| done.as_ref().is_none_or(Result::is_ok)));
        assert_eq!(acquired.iter().flatten().count(), 1);
        assert!(search(16, 1).now_or_never().unwrap().is_err());
        assert!(search(17, 2).now_or_never().unwrap().is_ok());
        drop((running, waiting));
        assert!(search(16, 1).now_or_never().is_none(), "it waits");
    }

    #[test]
    fn callers_of_one_address_leave_calls_and_memory_to_others() {
        const LARGE_BYTES: usize = 64 * 1024 * 1024;
        let limits = TokenLimits { requests_per_second: 1, requests_at_once: 1 };
        let limits = Limits::new(limits, 1);
        let address = |number: u32| ClientNetwork::V4(number.into());
        let acquire = |caller: CallerKey, client: ClientNetwork| {
            let request = limits.of_request(caller, client);
            let mut memory = request.memory.reserve();
            let has_memory = memory.try_grow_to(LARGE_BYTES);
            let permits = std::iter::from_fn(|| request.calls.acquire().now_or_never());
            let permits: Vec<_> = permits.take(1000).map(Result::unwrap).collect();
            (has_memory, permits.len(), (memory, permits))
        };
        let user = |number: u128| CallerKey::User(uuid::Uuid::from_u128(number));
        let held: Vec<_> = (0..4).map(|number| acquire(user(number), address(1))).collect();
        let of_each: Vec<_> = held.iter().map(|(memory, calls, _)| (*memory, *calls)).collect();
        assert_eq!(of_each, [(true, 64), (true, 64), (false, 0), (false, 0)]);
        let (memory, calls, _) = acquire(CallerKey::Token([1; 32]), address(1));
        assert_eq!((memory, calls), (false, 0), "an address has one share for both");
        let (memory, calls, _) = acquire(user(9), address(2));
        assert_eq!((memory, calls), (true, 64));
    }
}
