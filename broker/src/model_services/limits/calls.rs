//! Calls to the API server in flight. Each caller has a limit, so that one with many requests
//! leaves calls to others.

use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::per_caller::{CallerKey, CallerSemaphores};

/// Calls of all callers together.
const MAX_CALLS: usize = 256;
/// Calls of one user or token.
const MAX_CALLS_PER_CALLER: usize = 64;
/// Calls of all callers at one address, which may be a frontend's.
const MAX_CALLS_PER_ADDRESS: usize = 128;

/// The calls in flight.
#[derive(Debug)]
pub(in crate::model_services) struct Calls {
    all: Arc<Semaphore>,
    per_caller: CallerSemaphores,
}

/// The calls that a request may have in flight. Clones share them.
#[derive(Clone, Debug)]
pub(in crate::model_services) struct RequestCalls(Vec<Arc<Semaphore>>);

impl Default for Calls {
    fn default() -> Self {
        Self::with_limits(MAX_CALLS, MAX_CALLS_PER_CALLER, MAX_CALLS_PER_ADDRESS)
    }
}

impl Calls {
    /// At most this number of all callers together, of one caller, and of all callers at one
    /// address.
    pub(super) fn with_limits(all: usize, per_caller: usize, per_address: usize) -> Self {
        let per_caller = CallerSemaphores::new(per_caller, per_address);
        Self { all: Arc::new(Semaphore::new(all)), per_caller }
    }

    /// The calls of a request, which count against the limit of each of these.
    pub(in crate::model_services) fn of_request(&self, callers: &[CallerKey]) -> RequestCalls {
        let per_caller = callers.iter().map(|key| self.per_caller.of(*key));
        RequestCalls(per_caller.chain([Arc::clone(&self.all)]).collect())
    }
}

impl RequestCalls {
    /// Waits for the permits of a call, which is in flight until they are dropped. A call that waits
    /// for its caller's permit has no permit of all calls yet.
    pub(in crate::model_services) async fn acquire(
        &self,
    ) -> Result<Vec<OwnedSemaphorePermit>, AcquireError> {
        let mut permits = Vec::with_capacity(self.0.len());
        for semaphore in &self.0 {
            permits.push(Arc::clone(semaphore).acquire_owned().await?);
        }
        Ok(permits)
    }

    /// The permits of a call that does not wait; `None` if there is one too many.
    pub(super) fn try_acquire(&self) -> Option<Vec<OwnedSemaphorePermit>> {
        let acquire = |from: &Arc<Semaphore>| Arc::clone(from).try_acquire_owned().ok();
        self.0.iter().map(acquire).collect()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::base::rate_limit::ClientNetwork;

    #[test]
    fn a_caller_leaves_calls_to_others() {
        let calls = Calls::default();
        let acquire_all = |callers: &[CallerKey]| {
            let request = calls.of_request(callers);
            let permits = std::iter::from_fn(move || request.acquire().now_or_never());
            permits.take(1000).map(Result::unwrap).collect::<Vec<_>>()
        };
        let address = |number: u32| CallerKey::Address(ClientNetwork::V4(number.into()));
        let held: Vec<_> = (0..4)
            .map(|number| acquire_all(&[CallerKey::Token([number; 32]), address(1)]))
            .collect();
        let counts: Vec<usize> = held.iter().map(Vec::len).collect();
        assert_eq!(counts, [64, 64, 0, 0], "two tokens have the share of their address");
        let user = acquire_all(&[CallerKey::User(uuid::Uuid::from_u128(1))]);
        assert_eq!(user.len(), 64);
        let others = acquire_all(&[CallerKey::Token([9; 32]), address(2)]);
        assert_eq!(others.len(), 64, "256 of all");
        assert!(acquire_all(&[CallerKey::Token([8; 32]), address(3)]).is_empty());
        drop(user);
        assert_eq!(acquire_all(&[CallerKey::Token([8; 32]), address(3)]).len(), 64);
    }
}
