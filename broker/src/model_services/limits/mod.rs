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

pub(super) use self::{
    calls::{Calls, RequestCalls},
    changes::{ChangeKey, Changes},
    memory::{KeptMemory, Memory, RequestMemory, Reservation, SMALL_ANSWER_BYTES},
    refused_tokens::RefusedTokens,
    shares::CallerKey,
    token_limiters::{TokenLimiters, TokenPermit},
    unsent::{MAX_RESPONSE_BYTES, UnsentMemory, UnsentReservation},
};
use super::settings::TokenLimits;
use crate::base::rate_limit::InFlightLimiter;

/// Searches for candidate namespaces, each of which lists all RoleBindings of the cluster.
const MAX_CANDIDATE_SEARCHES: usize = 4;
/// Searches of one user or token.
const MAX_CANDIDATE_SEARCHES_PER_CALLER: usize = 1;
/// Searches of all tokens from one address, which may be a frontend's.
const MAX_CANDIDATE_SEARCHES_PER_ADDRESS: usize = 2;
/// Requests with Kubernetes tokens in flight.
const MAX_TOKEN_REQUESTS: usize = 1024;
/// Requests with Kubernetes tokens in flight from one address, which may be a frontend's.
const MAX_TOKEN_REQUESTS_PER_ADDRESS: usize = 512;

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
}

/// What one request may use. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct RequestLimits {
    pub(super) memory: RequestMemory,
    pub(super) calls: RequestCalls,
    /// Searches for candidate namespaces.
    pub(super) searches: RequestCalls,
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
        }
    }

    /// The limits of a request, which counts against the share of each of these.
    pub(super) fn of_request(&self, callers: &[CallerKey]) -> RequestLimits {
        RequestLimits {
            memory: self.memory.of_request(callers),
            calls: self.calls.of_request(callers),
            searches: self.searches.of_request(callers),
        }
    }
}
