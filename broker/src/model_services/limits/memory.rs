//! Memory of the API server's responses while they are read and evaluated. A caller with large
//! responses uses the memory of all callers up to a limit only, and never the memory of small
//! responses.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::per_caller::{CallerKey, CallerSemaphores};

/// Unit of reservations, in bytes.
const UNIT_BYTES: usize = 16 * 1024;
/// Memory of all callers together, in bytes.
const MAX_BYTES: usize = 256 * 1024 * 1024;
/// Memory of one caller, in bytes. It has room for the largest list, for which twice its size is
/// reserved.
const MAX_CALLER_BYTES: usize = 64 * 1024 * 1024;
/// Memory of one address, in bytes. It may be a frontend's.
const MAX_ADDRESS_BYTES: usize = 128 * 1024 * 1024;
/// Memory at the beginning of a response that is not taken from that of all callers, in bytes, so
/// that small requests are handled while large responses take all of that.
pub(in crate::model_services) const SMALL_UPSTREAM_BYTES: usize = 64 * 1024;
/// The same of all responses that one request holds, in bytes: a bound, because pages of lists are
/// held until the request ends.
const MAX_REQUEST_BYTES: usize = 256 * 1024;

/// The memory that is left.
#[derive(Debug)]
pub(in crate::model_services) struct Memory {
    all: Arc<Semaphore>,
    per_caller: CallerSemaphores,
}

/// The memory that one request may use. Clones share it.
#[derive(Clone, Debug)]
pub(in crate::model_services) struct RequestMemory {
    /// For the beginnings of responses.
    own: Arc<Semaphore>,
    /// The memory of the caller, then that of all.
    common: Vec<Arc<Semaphore>>,
}

/// Reserved memory, until it is dropped.
#[derive(Debug)]
pub(in crate::model_services) struct Reservation {
    own: Arc<Semaphore>,
    common: Vec<Arc<Semaphore>>,
    permits: Vec<OwnedSemaphorePermit>,
    own_bytes: usize,
    bytes: usize,
}

/// Reservation for what a request keeps of many small responses. As much as one small response does
/// not count.
#[derive(Debug)]
pub(in crate::model_services) struct SmallResponseReservation {
    reservation: Reservation,
    bytes: usize,
}

impl Default for Memory {
    fn default() -> Self {
        let per_caller =
            CallerSemaphores::new(MAX_CALLER_BYTES / UNIT_BYTES, MAX_ADDRESS_BYTES / UNIT_BYTES);
        Self { all: semaphore(MAX_BYTES), per_caller }
    }
}

fn semaphore(bytes: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(bytes / UNIT_BYTES))
}

impl Memory {
    /// The memory of a request, which counts against the limit of each of these.
    pub(in crate::model_services) fn of_request(&self, callers: &[CallerKey]) -> RequestMemory {
        let per_caller = callers.iter().map(|key| self.per_caller.of(*key));
        let common = per_caller.chain([Arc::clone(&self.all)]).collect();
        RequestMemory { own: semaphore(MAX_REQUEST_BYTES), common }
    }
}

impl RequestMemory {
    /// A reservation of nothing, which grows.
    pub(in crate::model_services) fn reserve(&self) -> Reservation {
        Reservation {
            own: Arc::clone(&self.own),
            common: self.common.clone(),
            permits: Vec::new(),
            own_bytes: 0,
            bytes: 0,
        }
    }

    /// A reservation of nothing yet. It takes nothing of the request's own memory, which small
    /// responses need.
    pub(in crate::model_services) fn small_responses(&self) -> SmallResponseReservation {
        let reservation = Reservation { own_bytes: SMALL_UPSTREAM_BYTES, ..self.reserve() };
        SmallResponseReservation { reservation, bytes: 0 }
    }
}

impl SmallResponseReservation {
    /// Reserves memory for this number of additional bytes; `false` if there is not enough.
    pub(in crate::model_services) fn try_reserve_more(&mut self, bytes: usize) -> bool {
        let total = self.bytes.saturating_add(bytes);
        let is_reserved = self.reservation.try_grow_to(total.saturating_sub(SMALL_UPSTREAM_BYTES));
        if is_reserved {
            self.bytes = total;
        }
        is_reserved
    }
}

impl Reservation {
    /// Reserves memory for this number of bytes in total; `false` if there is not enough.
    pub(in crate::model_services) fn try_grow_to(&mut self, bytes: usize) -> bool {
        while self.bytes < bytes {
            let is_own = self.own_bytes < SMALL_UPSTREAM_BYTES && self.acquire_own();
            if !is_own && !self.acquire_common(bytes - self.bytes) {
                return false;
            }
        }
        true
    }

    /// Reserves a unit of the request's own memory.
    fn acquire_own(&mut self) -> bool {
        let Ok(permit) = Arc::clone(&self.own).try_acquire_owned() else { return false };
        self.permits.push(permit);
        self.own_bytes += UNIT_BYTES;
        self.bytes += UNIT_BYTES;
        true
    }

    /// Reserves memory of the caller and of all, both or none.
    fn acquire_common(&mut self, bytes: usize) -> bool {
        let units = bytes.div_ceil(UNIT_BYTES);
        let Ok(count) = u32::try_from(units) else { return false };
        let acquire = |from: &Arc<Semaphore>| Arc::clone(from).try_acquire_many_owned(count);
        let Ok(permits) = self.common.iter().map(acquire).collect::<Result<Vec<_>, _>>() else {
            return false;
        };
        self.permits.extend(permits);
        self.bytes += units * UNIT_BYTES;
        true
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::base::rate_limit::ClientNetwork;

    /// What one answer of a user reserves of the common memory if it is as large as possible.
    const LARGEST: usize = MAX_CALLER_BYTES + SMALL_UPSTREAM_BYTES;

    fn user(number: u128) -> CallerKey {
        CallerKey::User(Uuid::from_u128(number))
    }

    fn token(number: u8) -> CallerKey {
        CallerKey::Token([number; 32])
    }

    #[test]
    fn a_caller_has_a_share_and_returns_it() {
        let memory = Memory::default();
        let mut held = Vec::new();
        for number in 0..6 {
            let mut reservation = memory.of_request(&[user(number)]).reserve();
            let fits = reservation.try_grow_to(LARGEST);
            assert_eq!(fits, number < 4, "{number}");
            if fits {
                let mut more = memory.of_request(&[user(number)]).reserve();
                assert!(!more.try_grow_to(SMALL_UPSTREAM_BYTES + 1), "its share is taken");
                held.push(reservation);
            }
        }
        held.pop();
        let mut reservation = memory.of_request(&[user(9)]).reserve();
        assert!(reservation.try_grow_to(1) && reservation.try_grow_to(LARGEST));
        assert!(!reservation.try_grow_to(LARGEST + 1));
    }

    #[test]
    fn small_answers_fit_while_large_ones_take_all_memory() {
        let memory = Memory::default();
        let mut held = Vec::new();
        for number in 0..4 {
            let mut reservation = memory.of_request(&[user(number)]).reserve();
            assert!(reservation.try_grow_to(LARGEST));
            held.push(reservation);
        }
        for number in 0..6 {
            // Also for a caller whose own share is taken.
            let request = memory.of_request(&[user(number)]);
            let mut lists: Vec<_> = (0..4).map(|_| request.reserve()).collect();
            assert!(
                lists.iter_mut().all(|list| list.try_grow_to(SMALL_UPSTREAM_BYTES)),
                "{number}"
            );
            assert!(
                !lists[0].try_grow_to(SMALL_UPSTREAM_BYTES + 1),
                "the rest is of the common memory"
            );
            assert!(!request.reserve().try_grow_to(1), "a request holds four of them");
            lists.pop();
            assert!(request.reserve().try_grow_to(SMALL_UPSTREAM_BYTES));
        }
    }

    #[test]
    fn what_is_kept_counts_from_the_size_of_a_small_answer_on() {
        let memory = Memory::default();
        let request = memory.of_request(&[user(1)]);
        let mut reservation = request.small_responses();
        assert!((0..64).all(|_| reservation.try_reserve_more(SMALL_UPSTREAM_BYTES / 64)));
        let mut large = request.reserve();
        assert!(large.try_grow_to(LARGEST), "it does not count yet");
        assert!(!reservation.try_reserve_more(1));
        drop(large);
        assert!(reservation.try_reserve_more(MAX_CALLER_BYTES));
        assert!(!reservation.try_reserve_more(1), "it is the caller's share");
        let mut small: Vec<_> = (0..4).map(|_| request.reserve()).collect();
        assert!(small.iter_mut().all(|response| response.try_grow_to(SMALL_UPSTREAM_BYTES)));
    }

    #[test]
    fn tokens_of_one_address_leave_memory_to_other_addresses() {
        let memory = Memory::default();
        let (one, other) = (
            CallerKey::Address(ClientNetwork::V4([192, 0, 2, 1].into())),
            CallerKey::Address(ClientNetwork::V4([192, 0, 2, 2].into())),
        );
        let large = |address: CallerKey, number: u8| {
            let mut reservation = memory.of_request(&[token(number), address]).reserve();
            reservation.try_grow_to(LARGEST).then_some(reservation)
        };
        let held: Vec<_> = (0..9).filter_map(|number| large(one, number)).collect();
        assert_eq!(held.len(), 2);
        assert!(large(one, 9).is_none());
        assert!(large(other, 10).is_some(), "what was refused is not reserved");
    }
}
