//! Memory of large responses that are not sent yet. It is apart from the memory of responses of the
//! API server, so that clients that do not read take nothing from others' calls.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::per_caller::{CallerKey, CallerSemaphores};
use crate::{base::rate_limit::ClientNetwork, model_services::failure::Failure};

/// Unit of reservations, in bytes.
const UNIT_BYTES: usize = 16 * 1024;
/// Memory of all responses, in bytes.
const MAX_BYTES: usize = 128 * 1024 * 1024;
/// Memory of the responses to one address, in bytes. Everybody at the address shares it.
const MAX_ADDRESS_BYTES: usize = 32 * 1024 * 1024;
/// The largest response, in bytes.
pub(in crate::model_services) const MAX_RESPONSE_BYTES: usize = MAX_ADDRESS_BYTES;

/// The memory that is left.
#[derive(Debug)]
pub(in crate::model_services) struct UnsentMemory {
    all: Arc<Semaphore>,
    per_caller: CallerSemaphores,
}

/// The memory of a response, until it is dropped.
#[derive(Debug)]
pub(in crate::model_services) struct UnsentReservation {
    /// The memory of the client, then that of all.
    from: [Arc<Semaphore>; 2],
    permits: Vec<OwnedSemaphorePermit>,
    units: usize,
}

/// Memory of a response that cannot be reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::model_services) enum UnsentError {
    /// The response is larger than one client's share.
    #[error("the response is too large")]
    TooLarge,
    /// There is not enough now.
    #[error("too many large responses are not sent yet")]
    Exhausted,
}

impl From<UnsentError> for Failure {
    fn from(error: UnsentError) -> Self {
        match error {
            UnsentError::TooLarge => Self::internal_error(&error),
            UnsentError::Exhausted => Self::too_many(error.to_string(), 2),
        }
    }
}

impl Default for UnsentMemory {
    fn default() -> Self {
        let per_address = MAX_ADDRESS_BYTES / UNIT_BYTES;
        Self {
            all: Arc::new(Semaphore::new(MAX_BYTES / UNIT_BYTES)),
            per_caller: CallerSemaphores::new(per_address, per_address),
        }
    }
}

impl UnsentMemory {
    /// A reservation of nothing for a response to this client, which grows.
    pub(in crate::model_services) fn begin(&self, client: ClientNetwork) -> UnsentReservation {
        let of_client = self.per_caller.of(CallerKey::Address(client));
        let from = [of_client, Arc::clone(&self.all)];
        UnsentReservation { from, permits: Vec::new(), units: 0 }
    }

    /// Reserves memory for a response to this client.
    ///
    /// # Errors
    /// There is not enough now, or never: the response is too large.
    pub(in crate::model_services) fn reserve(
        &self,
        client: ClientNetwork,
        bytes: usize,
    ) -> Result<UnsentReservation, UnsentError> {
        let mut reservation = self.begin(client);
        reservation.grow_to(bytes)?;
        Ok(reservation)
    }
}

impl UnsentReservation {
    /// Reserves memory for this number of bytes in total.
    ///
    /// # Errors
    /// There is not enough now, or never: the response is too large.
    pub(in crate::model_services) fn grow_to(&mut self, bytes: usize) -> Result<(), UnsentError> {
        if bytes > MAX_RESPONSE_BYTES {
            return Err(UnsentError::TooLarge);
        }
        let units = bytes.div_ceil(UNIT_BYTES);
        if units <= self.units {
            return Ok(());
        }
        let count = u32::try_from(units - self.units).unwrap_or(u32::MAX);
        let acquire = |from: &Arc<Semaphore>| Arc::clone(from).try_acquire_many_owned(count);
        // Of both or of none.
        let permits = self.from.iter().map(acquire).collect::<Result<Vec<_>, _>>();
        self.permits.extend(permits.map_err(|_| UnsentError::Exhausted)?);
        self.units = units;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_do_not_read_leave_memory_to_others_up_to_the_total() {
        let unsent = UnsentMemory::default();
        let client = |number: u32| ClientNetwork::V4(number.into());
        let mut held: Vec<_> = (0..4)
            .map(|number| {
                let reservation = unsent.reserve(client(number), MAX_ADDRESS_BYTES).unwrap();
                let more = unsent.reserve(client(number), 1).unwrap_err();
                assert_eq!(Failure::from(more).status().as_u16(), 429, "{number}");
                reservation
            })
            .collect();
        assert_eq!(unsent.reserve(client(9), 1).unwrap_err(), UnsentError::Exhausted);
        held.pop();
        assert!(unsent.reserve(client(9), MAX_ADDRESS_BYTES).is_ok());
        let too_large = unsent.reserve(client(9), MAX_ADDRESS_BYTES + 1).unwrap_err();
        assert_eq!(Failure::from(too_large).status().as_u16(), 500);
    }

    #[test]
    fn a_reservation_grows_up_to_the_share_of_its_client() {
        let (unsent, client) = (UnsentMemory::default(), ClientNetwork::V4(1_u32.into()));
        let (mut one, mut other) = (unsent.begin(client), unsent.begin(client));
        one.grow_to(UNIT_BYTES + 1).unwrap();
        one.grow_to(1).unwrap();
        assert_eq!(one.units, 2);
        other.grow_to(MAX_ADDRESS_BYTES - 2 * UNIT_BYTES).unwrap();
        assert_eq!(one.grow_to(2 * UNIT_BYTES + 1), Err(UnsentError::Exhausted));
        assert_eq!(one.grow_to(MAX_RESPONSE_BYTES + 1), Err(UnsentError::TooLarge));
        assert_eq!(one.units, 2);
        drop(other);
        one.grow_to(MAX_RESPONSE_BYTES).unwrap();
        drop(one);
        assert_eq!(unsent.all.available_permits(), MAX_BYTES / UNIT_BYTES);
    }
}
