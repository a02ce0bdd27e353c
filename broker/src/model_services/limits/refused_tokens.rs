//! Kubernetes tokens that the API server refused, by address. An address that tries many is closed
//! out for a while, because each attempt costs the API server a check.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::base::rate_limit::Client;

/// Refused tokens of an address within [`WINDOW`], after which it is closed out for the rest of it.
const MAX_REFUSED: u32 = 100;
const WINDOW: Duration = Duration::from_mins(5);
/// Addresses at most, about 3 MiB. Others are not counted.
const MAX_ADDRESSES: usize = 65_536;

#[derive(Clone, Copy, Debug)]
struct Window {
    started_at: Instant,
    refused: u32,
}

#[derive(Debug, Default)]
pub(in crate::model_services) struct RefusedTokens(Mutex<HashMap<Client, Window>>);

impl RefusedTokens {
    /// Counts a refused token of this address.
    pub(in crate::model_services) fn count(&self, client: Client, now: Instant) {
        let mut windows = self.lock();
        if windows.len() >= MAX_ADDRESSES && !windows.contains_key(&client) {
            windows.retain(|_, window| now.duration_since(window.started_at) < WINDOW);
            if windows.len() >= MAX_ADDRESSES {
                return;
            }
        }
        let window = windows.entry(client).or_insert(Window { started_at: now, refused: 0 });
        if now.duration_since(window.started_at) >= WINDOW {
            *window = Window { started_at: now, refused: 0 };
        }
        window.refused = window.refused.saturating_add(1);
    }

    /// How long the address is closed out; `None` if it is not.
    pub(in crate::model_services) fn closed_out(
        &self,
        client: Client,
        now: Instant,
    ) -> Option<Duration> {
        let window = self.lock().get(&client).copied()?;
        let left = WINDOW.checked_sub(now.duration_since(window.started_at))?;
        (window.refused >= MAX_REFUSED && !left.is_zero()).then_some(left)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Client, Window>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_closed_out_for_the_rest_of_the_window() {
        let (refused, now) = (RefusedTokens::default(), Instant::now());
        let (one, other) = (Client::V4([192, 0, 2, 1].into()), Client::V4([192, 0, 2, 2].into()));
        for _ in 1..MAX_REFUSED {
            refused.count(one, now);
        }
        assert_eq!(refused.closed_out(one, now), None);
        let later = now + Duration::from_mins(1);
        refused.count(one, later);
        assert_eq!(refused.closed_out(one, later), Some(Duration::from_mins(4)));
        assert_eq!(refused.closed_out(other, later), None);
        let end = now + WINDOW;
        assert_eq!(refused.closed_out(one, end), None);
        refused.count(one, end);
        assert_eq!(refused.closed_out(one, end), None);
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        let (refused, now) = (RefusedTokens::default(), Instant::now());
        for number in 0..70_000_u32 {
            refused.count(Client::V4(number.into()), now);
        }
        assert_eq!(refused.lock().len(), MAX_ADDRESSES);
        refused.count(Client::V4(u32::MAX.into()), now + WINDOW);
        assert_eq!(refused.lock().len(), 1);
    }
}
