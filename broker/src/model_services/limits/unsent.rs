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
    _permits: (OwnedSemaphorePermit, OwnedSemaphorePermit),
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
    /// Reserves memory for a response to this client.
    ///
    /// # Errors
    /// There is not enough now, or never: the response is too large.
    pub(in crate::model_services) fn reserve(
        &self,
        client: ClientNetwork,
        bytes: usize,
    ) -> Result<UnsentReservation, Failure> {
        if bytes > MAX_RESPONSE_BYTES {
            return Err(Failure::internal(format!("the response is too large: {bytes} bytes")));
        }
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let semaphore = self.per_caller.of(CallerKey::Address(client));
        let acquire = |from: Arc<Semaphore>| from.try_acquire_many_owned(units);
        match (acquire(semaphore), acquire(Arc::clone(&self.all))) {
            (Ok(of_client), Ok(of_all)) => Ok(UnsentReservation { _permits: (of_client, of_all) }),
            _ => Err(Failure::too_many("too many large responses are not sent yet", 2)),
        }
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
                assert_eq!(more.status().as_u16(), 429, "{number}");
                reservation
            })
            .collect();
        assert_eq!(unsent.reserve(client(9), 1).unwrap_err().status().as_u16(), 429);
        held.pop();
        assert!(unsent.reserve(client(9), MAX_ADDRESS_BYTES).is_ok());
        let too_large = unsent.reserve(client(9), MAX_ADDRESS_BYTES + 1).unwrap_err();
        assert_eq!(too_large.status().as_u16(), 500);
    }
}
