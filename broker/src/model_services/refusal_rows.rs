//! Audit rows of refused changes, in each replica. A refusal costs its caller nothing, so without a limit
//! anybody with a token could fill the audit trail. The access log has each refused request.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::base::rate_limit::ClientNetwork;

const WINDOW: Duration = Duration::from_mins(5);
/// Rows of an address within [`WINDOW`]. The address may be a frontend's.
const MAX_ROWS_PER_ADDRESS: u32 = 100;
/// Rows of all addresses within [`WINDOW`].
const MAX_ROWS: u32 = 1000;

/// The rows of the current window. It has at most [`MAX_ROWS`] addresses.
#[derive(Debug, Default)]
struct Rows {
    since: Option<Instant>,
    total: u32,
    by_address: HashMap<ClientNetwork, u32>,
    omitted: u64,
}

#[derive(Debug, Default)]
pub(super) struct RefusalRows(Mutex<Rows>);

impl RefusalRows {
    /// Permits one row of this address; returns the number of rows that were omitted since the last
    /// one. `None` if the row is to be omitted.
    pub(super) fn admit(&self, client: ClientNetwork, now: Instant) -> Option<u64> {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if rows.since.is_none_or(|since| now.duration_since(since) >= WINDOW) {
            *rows = Rows { since: Some(now), omitted: rows.omitted, ..Rows::default() };
        }
        let of_address = rows.by_address.get(&client).copied().unwrap_or_default();
        if rows.total >= MAX_ROWS || of_address >= MAX_ROWS_PER_ADDRESS {
            rows.omitted = rows.omitted.saturating_add(1);
            return None;
        }
        rows.total += 1;
        rows.by_address.insert(client, of_address + 1);
        Some(std::mem::take(&mut rows.omitted))
    }

    /// Counts a row that was not written, and again the omitted rows that [`Self::admit`] returned
    /// for it.
    pub(super) fn restore_omitted(&self, omitted: u64) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.omitted = rows.omitted.saturating_add(omitted).saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32) -> ClientNetwork {
        ClientNetwork::V4(number.into())
    }

    #[test]
    fn an_address_and_all_together_have_a_number_of_rows() {
        let (rows, now) = (RefusalRows::default(), Instant::now());
        let taken = |number, now| {
            let all = 0..150;
            all.filter(|_| rows.admit(client(number), now).is_some()).count()
        };
        assert_eq!(taken(0, now), 100);
        assert_eq!(rows.admit(client(1), now), Some(50), "the next row says how many are missing");
        rows.restore_omitted(50);
        assert_eq!(rows.admit(client(1), now), Some(51), "that row was not written");
        for number in 2..20 {
            taken(number, now);
        }
        assert_eq!(rows.admit(client(99), now), None);
        assert_eq!(rows.0.lock().unwrap().total, MAX_ROWS);
        let later = now + WINDOW;
        assert!(rows.admit(client(99), later).is_some_and(|omitted| omitted > 0));
        assert_eq!(taken(0, later), 100);
    }
}
