//! Memory of the API server's answers while they are read and evaluated, and of large responses until
//! they are sent. Somebody who asks for large
//! answers takes the memory of others only up to a share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use crate::base::rate_limit::Client;

/// Unit of reservations, in bytes.
const UNIT_BYTES: usize = 16 * 1024;
/// Memory of all callers together, in bytes.
const MAX_BYTES: usize = 256 * 1024 * 1024;
/// Memory of one caller, in bytes. It has room for the largest list, for which twice its size is
/// reserved.
const MAX_CALLER_BYTES: usize = 64 * 1024 * 1024;
/// Number of callers from which those without a reservation are removed.
const MIN_CALLERS_TO_EVICT: usize = 1024;

/// A caller for limits: a workspace, a Kubernetes token by its SHA-256, or for responses that are not
/// sent yet an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::model_services) enum MemoryKey {
    Workspace(Uuid),
    Token([u8; 32]),
    Address(Client),
}

/// The memory that is left.
#[derive(Debug)]
pub(in crate::model_services) struct Memory {
    all: Arc<Semaphore>,
    callers: Mutex<HashMap<MemoryKey, Weak<Semaphore>>>,
}

/// Reserved memory, until it is dropped.
#[derive(Debug)]
pub(in crate::model_services) struct Reservation {
    all: Arc<Semaphore>,
    caller: Arc<Semaphore>,
    permits: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
    bytes: usize,
}

impl Default for Memory {
    fn default() -> Self {
        Self { all: semaphore(MAX_BYTES), callers: Mutex::default() }
    }
}

fn semaphore(bytes: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(bytes / UNIT_BYTES))
}

impl Memory {
    /// The memory of a caller.
    pub(in crate::model_services) fn of(&self, key: MemoryKey) -> Arc<Semaphore> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = callers.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        if callers.len() >= MIN_CALLERS_TO_EVICT {
            callers.retain(|_, known| known.strong_count() > 0);
        }
        let new = semaphore(MAX_CALLER_BYTES);
        callers.insert(key, Arc::downgrade(&new));
        new
    }

    /// A reservation of nothing, which grows.
    pub(in crate::model_services) fn reserve(&self, caller: &Arc<Semaphore>) -> Reservation {
        let (all, caller) = (Arc::clone(&self.all), Arc::clone(caller));
        Reservation { all, caller, permits: None, bytes: 0 }
    }
}

impl Reservation {
    /// Reserves memory for so many bytes in total; `false` if there is not enough.
    pub(in crate::model_services) fn grow_to(&mut self, bytes: usize) -> bool {
        while self.bytes < bytes {
            let units = (bytes - self.bytes).div_ceil(UNIT_BYTES);
            let Ok(count) = u32::try_from(units) else { return false };
            let acquire = |from: &Arc<Semaphore>| Arc::clone(from).try_acquire_many_owned(count);
            let (Ok(caller), Ok(all)) = (acquire(&self.caller), acquire(&self.all)) else {
                return false;
            };
            match &mut self.permits {
                Some((of_caller, of_all)) => {
                    of_caller.merge(caller);
                    of_all.merge(all);
                }
                None => self.permits = Some((caller, all)),
            }
            self.bytes += units * UNIT_BYTES;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_a_share_and_returns_it() {
        let memory = Memory::default();
        let key = |number: u128| MemoryKey::Workspace(Uuid::from_u128(number));
        let mut held = Vec::new();
        for number in 0..6 {
            let mut reservation = memory.reserve(&memory.of(key(number)));
            let fits = reservation.grow_to(MAX_CALLER_BYTES);
            assert_eq!(fits, number < 4, "{number}");
            if fits {
                assert!(!memory.reserve(&memory.of(key(number))).grow_to(1), "its share is taken");
                held.push(reservation);
            }
        }
        held.pop();
        let mut reservation = memory.reserve(&memory.of(key(9)));
        assert!(reservation.grow_to(1) && reservation.grow_to(MAX_CALLER_BYTES));
        assert!(!reservation.grow_to(MAX_CALLER_BYTES + 1));
    }

    #[test]
    fn callers_without_a_reservation_are_removed() {
        let memory = Memory::default();
        let held = memory.reserve(&memory.of(MemoryKey::Token([255; 32])));
        for number in 0..10_000 {
            drop(memory.of(MemoryKey::Workspace(Uuid::from_u128(number))));
        }
        assert!(memory.callers.lock().unwrap().len() <= MIN_CALLERS_TO_EVICT);
        assert!(memory.callers.lock().unwrap().contains_key(&MemoryKey::Token([255; 32])));
        drop(held);
    }
}
