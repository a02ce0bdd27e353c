//! Kubernetes tokens that the API server refused, by address. An address that tries many different
//! ones is slowed down for a while, because each attempt costs the API server a check. One unknown token
//! passes each second then, so that others at the address get in with a new token. If all addresses
//! together try too many, those without an accepted token are slowed down, too. A token that is tried repeatedly, as by a
//! broken client, is blocked alone. Tokens that the API server accepted recently pass, because an address
//! may be that of many people. One of them that is refused now, because it expired or was revoked, was no
//! guess, so its refusals count for itself alone. A token whose client leaves before the response counts
//! as refused until it is accepted.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::address_entries::{AddressEntries, is_eviction_due};
use crate::base::rate_limit::{self, ClientNetwork, GcraLimiter, Quota};

/// Different refused tokens of an address within [`WINDOW`], after which it is slowed down for the
/// rest of it.
const MAX_REFUSED: usize = 100;
/// Refusals of one token from an address within [`WINDOW`], after which the token is blocked there
/// for the rest of it.
const MAX_REPEATED: u32 = 100;
const WINDOW: Duration = Duration::from_mins(5);
/// Unknown tokens that pass from an address that is slowed down: 300 in [`WINDOW`].
const SLOW: Quota = Quota { per_second: 1, burst: 1 };
/// Unknown tokens that pass from all addresses that are slowed down.
const SLOW_TOTAL: Quota = Quota { per_second: 100, burst: 100 };
/// Different refused tokens of all addresses within [`WINDOW`], after which each address without an
/// accepted token is slowed down for the rest of it.
const MAX_REFUSED_TOTAL: u32 = 10_000;
/// Addresses at most, each with up to 1 KiB. Others share a window.
const MAX_ADDRESSES: usize = 65_536;
/// How long an accepted token passes after its last use.
const ACCEPTED_TTL: Duration = Duration::from_mins(10);
/// Accepted tokens at most, about 3 MiB; a quarter of them from one address. Others do not pass.
const MAX_ACCEPTED: usize = 16_384;

/// A refused token. 32 bits are enough to tell 100 tokens apart.
#[derive(Debug)]
struct RefusedToken {
    hash: u32,
    count: u32,
}

#[derive(Debug)]
struct Window {
    started_at: Instant,
    /// At most [`MAX_REFUSED`] tokens.
    refused: Vec<RefusedToken>,
}

impl Window {
    fn new(started_at: Instant) -> Self {
        Self { started_at, refused: Vec::new() }
    }
}

/// A token that was accepted.
#[derive(Debug)]
struct Accepted {
    /// When it was accepted last.
    used_at: Instant,
    /// Its refusals since then.
    refused: Option<Refusals>,
}

/// Refusals within [`WINDOW`] after the first one.
#[derive(Clone, Copy, Debug)]
struct Refusals {
    since: Instant,
    count: u32,
}

impl Refusals {
    /// One more; the first one if the window of the earlier ones is over.
    fn one_more(earlier: Option<Self>, now: Instant) -> Self {
        let current = earlier.filter(|known| now.duration_since(known.since) < WINDOW);
        let Self { since, count } = current.unwrap_or(Self { since: now, count: 0 });
        Self { since, count: count.saturating_add(1) }
    }
}

impl Accepted {
    /// How long the token is blocked, whatever its address did; `None` if it is not.
    fn retry_after_block(&self, now: Instant) -> Option<Duration> {
        let refused = self.refused.filter(|known| known.count >= MAX_REPEATED)?;
        WINDOW.checked_sub(now.duration_since(refused.since))
    }
}

#[derive(Debug)]
struct State {
    windows: HashMap<ClientNetwork, Window>,
    /// The window of addresses without room for one of their own.
    others: Option<Window>,
    /// Different refused tokens of all addresses.
    total: Option<Refusals>,
    windows_evicted_at: Option<Instant>,
    accepted: AddressEntries<u64, Accepted>,
}

impl Default for State {
    fn default() -> Self {
        let accepted = AddressEntries::new(MAX_ACCEPTED);
        Self {
            windows: HashMap::new(),
            others: None,
            total: None,
            windows_evicted_at: None,
            accepted,
        }
    }
}

/// Refused and accepted tokens, by a hash with a random key, so that nobody can make tokens that
/// count as one or pass as another.
#[derive(Debug)]
pub(in crate::model_services) struct RefusedTokens {
    key: RandomState,
    state: Mutex<State>,
    /// Unknown tokens of addresses that are slowed down.
    slow: GcraLimiter,
}

impl Default for RefusedTokens {
    fn default() -> Self {
        let slow = GcraLimiter::new(SLOW, SLOW_TOTAL, Instant::now());
        Self { key: RandomState::new(), state: Mutex::default(), slow }
    }
}

/// Whether a token passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Passes,
    /// It is refused for this time.
    Blocked(Duration),
    /// Too many others of its address were refused, or of all.
    Slow,
}

/// Whether an accepted token passes that was used last at this time.
fn is_recent(used_at: Instant, now: Instant) -> bool {
    now.duration_since(used_at) < ACCEPTED_TTL
}

impl State {
    /// Whether an address has a window of its own, or room for one.
    fn has_capacity(&self, client: ClientNetwork) -> bool {
        self.windows.len() < MAX_ADDRESSES || self.windows.contains_key(&client)
    }

    /// The window in which tokens of an address are counted. If there is no room for one, those that are
    /// over are evicted, at most once a second.
    fn current_window(&mut self, client: ClientNetwork, now: Instant) -> &mut Window {
        if !self.has_capacity(client) && is_eviction_due(&mut self.windows_evicted_at, now) {
            self.windows.retain(|_, window| now.duration_since(window.started_at) < WINDOW);
        }
        let window = if self.has_capacity(client) {
            self.windows.entry(client).or_insert_with(|| Window::new(now))
        } else {
            self.others.get_or_insert_with(|| Window::new(now))
        };
        if now.duration_since(window.started_at) >= WINDOW {
            *window = Window::new(now);
        }
        window
    }

    /// The window in which tokens of an address were counted last; it may be over.
    fn window(&self, client: ClientNetwork) -> Option<&Window> {
        let others = self.others.as_ref().filter(|_| !self.has_capacity(client));
        self.windows.get(&client).or(others)
    }

    /// Whether too many different tokens of all addresses were refused.
    fn is_total_exceeded(&self, now: Instant) -> bool {
        self.total.is_some_and(|total| {
            total.count >= MAX_REFUSED_TOTAL && now.duration_since(total.since) < WINDOW
        })
    }

    /// Forgets what was counted of a token of an address.
    fn forget(&mut self, client: ClientNetwork, hash: u64) {
        let has_capacity = self.has_capacity(client);
        let others = self.others.as_mut().filter(|_| !has_capacity);
        let Some(window) = self.windows.get_mut(&client).or(others) else { return };
        let hash = short(hash);
        let Some(index) = window.refused.iter().position(|known| known.hash == hash) else {
            return;
        };
        window.refused.swap_remove(index);
        if let Some(total) = &mut self.total {
            total.count = total.count.saturating_sub(1);
        }
    }

    /// Whether a token was accepted recently, and not refused since.
    fn is_accepted(&self, hash: u64, now: Instant) -> bool {
        let known = self.accepted.get(&hash).filter(|known| is_recent(known.used_at, now));
        known.is_some_and(|known| known.refused.is_none())
    }

    /// Counts a refusal of a token: for itself if it was accepted recently, otherwise in the window of
    /// this address.
    fn count(&mut self, client: ClientNetwork, hash: u64, now: Instant) {
        let known = self.accepted.get_mut(&hash).filter(|known| is_recent(known.used_at, now));
        if let Some(known) = known {
            known.refused = Some(Refusals::one_more(known.refused, now));
            return;
        }
        self.accepted.remove(&hash);
        let window = self.current_window(client, now);
        let hash = short(hash);
        if let Some(known) = window.refused.iter_mut().find(|known| known.hash == hash) {
            known.count = known.count.saturating_add(1);
        } else if window.refused.len() < MAX_REFUSED {
            window.refused.push(RefusedToken { hash, count: 1 });
            self.total = Some(Refusals::one_more(self.total, now));
        }
    }

    /// Whether the API server accepted a token of this address recently.
    fn has_accepted_token(&mut self, client: ClientNetwork, now: Instant) -> bool {
        self.accepted.has_used_entry_of(client, now, |known| is_recent(known.used_at, now))
    }

    fn admission(&mut self, client: ClientNetwork, hash: u64, now: Instant) -> Admission {
        let known = self.accepted.get(&hash).filter(|known| is_recent(known.used_at, now));
        if let Some(known) = known {
            if known.refused.is_none() {
                return Admission::Passes;
            }
            if let Some(left) = known.retry_after_block(now).filter(|left| !left.is_zero()) {
                return Admission::Blocked(left);
            }
        }
        if let Some(window) = self.window(client) {
            let left = WINDOW.saturating_sub(now.duration_since(window.started_at));
            let is_it =
                |known: &RefusedToken| known.hash == short(hash) && known.count >= MAX_REPEATED;
            if !left.is_zero() && window.refused.iter().any(is_it) {
                return Admission::Blocked(left);
            }
            if !left.is_zero() && window.refused.len() >= MAX_REFUSED {
                return Admission::Slow;
            }
        }
        // Somebody with a valid token came from the address recently, and it is within its own limit.
        // So addresses of others cannot use up what its next token needs.
        if self.is_total_exceeded(now) && !self.has_accepted_token(client, now) {
            return Admission::Slow;
        }
        Admission::Passes
    }
}

impl RefusedTokens {
    /// Counts a token of this address that the API server refused.
    pub(in crate::model_services) fn count(
        &self,
        client: ClientNetwork,
        token: [u8; 32],
        now: Instant,
    ) {
        let hash = self.hash(token);
        self.lock().count(client, hash, now);
    }

    /// Counts a token of this address whose client left before the API server answered, unless it was
    /// accepted recently: it may be a guess.
    pub(in crate::model_services) fn count_cancelled(
        &self,
        client: ClientNetwork,
        token: [u8; 32],
        now: Instant,
    ) {
        let hash = self.hash(token);
        let mut state = self.lock();
        if !state.is_accepted(hash, now) {
            state.count(client, hash, now);
        }
    }

    /// Lets a token pass that the API server accepted. What was counted of it at this address is
    /// forgotten, because it was no guess.
    pub(in crate::model_services) fn accept(
        &self,
        client: ClientNetwork,
        token: [u8; 32],
        now: Instant,
    ) {
        let hash = self.hash(token);
        let mut state = self.lock();
        state.forget(client, hash);
        let is_used = |known: &Accepted| is_recent(known.used_at, now);
        let new = || Accepted { used_at: now, refused: None };
        if let Some(known) = state.accepted.get_or_insert(hash, client, now, is_used, new) {
            *known = new();
        }
    }

    /// Whether the API server accepted a token recently.
    pub(in crate::model_services) fn is_accepted(&self, token: [u8; 32], now: Instant) -> bool {
        self.lock().is_accepted(self.hash(token), now)
    }

    /// Admits a token of this address. If that has too many refused tokens, or all together have, an
    /// unknown one passes each second.
    ///
    /// # Errors
    /// The token is blocked, or not the one that passes; the time until it may.
    pub(in crate::model_services) fn admit(
        &self,
        client: ClientNetwork,
        token: [u8; 32],
        now: Instant,
    ) -> Result<(), Duration> {
        let admission = self.lock().admission(client, self.hash(token), now);
        match admission {
            Admission::Passes => Ok(()),
            Admission::Blocked(left) => Err(left),
            Admission::Slow => {
                self.slow.check(client, now).map_err(rate_limit::ExceededLimit::wait)
            }
        }
    }

    fn hash(&self, token: [u8; 32]) -> u64 {
        self.key.hash_one(token)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lower half of a hash.
fn short(hash: u64) -> u32 {
    let [a, b, c, d, ..] = hash.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ClientNetwork = ClientNetwork::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: ClientNetwork = ClientNetwork::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
    const SECOND: Duration = Duration::from_secs(1);

    fn token(number: usize) -> [u8; 32] {
        let mut token = [0; 32];
        token[..8].copy_from_slice(&number.to_le_bytes());
        token
    }

    /// How long a token has to wait; `None` if it passes.
    fn admit(
        refused: &RefusedTokens,
        client: ClientNetwork,
        token: [u8; 32],
        now: Instant,
    ) -> Option<Duration> {
        refused.admit(client, token, now).err()
    }

    /// How many of a hundred unknown tokens pass.
    fn passed(refused: &RefusedTokens, client: ClientNetwork, now: Instant) -> usize {
        let tokens = (0..100).map(|number| token(1_000_000 + number));
        tokens.filter(|token| refused.admit(client, *token, now).is_ok()).count()
    }

    #[test]
    fn an_address_that_tries_different_tokens_is_slowed_down_for_the_rest_of_the_window() {
        let (refused, now) = (RefusedTokens::default(), Instant::now());
        for number in 1..MAX_REFUSED {
            refused.count(ONE, token(number), now);
        }
        assert_eq!(passed(&refused, ONE, now), 100);
        let later = now + Duration::from_mins(1);
        refused.count(ONE, token(MAX_REFUSED), later);
        assert_eq!((passed(&refused, ONE, later), passed(&refused, OTHER, later)), (1, 100));
        assert_eq!(admit(&refused, ONE, token(0), later), Some(SECOND));
        for number in 0..239 {
            refused.count(ONE, token(1000 + number), later);
        }
        let guesses = (1..240).map(|second| passed(&refused, ONE, later + SECOND * second));
        assert_eq!(guesses.sum::<usize>(), 239, "one a second");
        let end = now + WINDOW;
        assert_eq!(passed(&refused, ONE, end), 100);
        refused.count(ONE, token(0), end);
        assert_eq!(passed(&refused, ONE, end), 100);
    }

    #[test]
    fn somebody_at_the_address_of_a_guesser_gets_in_with_a_new_token() {
        let (refused, now) = (RefusedTokens::default(), Instant::now());
        for number in 1..=MAX_REFUSED {
            refused.count(ONE, token(number), now);
        }
        assert_eq!(admit(&refused, ONE, token(0), now), None);
        refused.accept(ONE, token(0), now);
        assert_eq!((passed(&refused, ONE, now), admit(&refused, ONE, token(0), now)), (0, None));
    }

    #[test]
    fn a_broken_client_closes_out_its_own_token_alone() {
        let (refused, now) = (RefusedTokens::default(), Instant::now());
        for _ in 0..10_000 {
            refused.count(ONE, token(1), now);
        }
        assert_eq!(admit(&refused, ONE, token(1), now), Some(WINDOW));
        assert_eq!(admit(&refused, ONE, token(2), now), None);
        assert_eq!(admit(&refused, OTHER, token(1), now), None);
    }

    #[test]
    fn a_token_that_was_accepted_recently_passes_until_it_is_refused() {
        let (refused, now) = (RefusedTokens::default(), Instant::now());
        refused.accept(ONE, token(0), now);
        for number in 1..=MAX_REFUSED {
            refused.count(ONE, token(number), now);
        }
        assert_eq!(admit(&refused, ONE, token(0), now), None);
        assert_eq!(passed(&refused, ONE, now), 1);
        refused.count(ONE, token(0), now);
        assert_eq!(admit(&refused, ONE, token(0), now), Some(SECOND));

        let (refused, later) = (RefusedTokens::default(), now + ACCEPTED_TTL);
        refused.accept(ONE, token(0), now);
        for number in 1..=MAX_REFUSED {
            refused.count(ONE, token(number), later);
        }
        assert_eq!((passed(&refused, ONE, later), passed(&refused, OTHER, later)), (1, 100));
        assert_eq!(admit(&refused, ONE, token(0), later), Some(SECOND));
    }

    #[test]
    fn tokens_that_expire_close_out_nobody_else() {
        let (refused, now) = (RefusedTokens::default(), Instant::now());
        for number in 0..MAX_REFUSED * 2 {
            refused.accept(ONE, token(number), now);
        }
        for number in 0..MAX_REFUSED * 2 {
            refused.count(ONE, token(number), now);
            refused.count_cancelled(ONE, token(number), now);
        }
        assert_eq!(admit(&refused, ONE, token(1000), now), None);
        assert!(refused.lock().windows.is_empty(), "they are no guesses");
        assert!(!refused.is_accepted(token(0), now));
        for _ in 2..MAX_REPEATED {
            assert_eq!(admit(&refused, ONE, token(0), now), None);
            refused.count(ONE, token(0), now);
        }
        let later = now + Duration::from_mins(1);
        assert_eq!(admit(&refused, ONE, token(0), later), Some(Duration::from_mins(4)));
        assert_eq!(admit(&refused, OTHER, token(0), now), Some(WINDOW));
        assert_eq!(admit(&refused, ONE, token(1), now), None);
        assert_eq!(admit(&refused, ONE, token(0), now + WINDOW + WINDOW / 2), None);
        refused.count(ONE, token(0), now + WINDOW + WINDOW / 2);
        assert_eq!(admit(&refused, ONE, token(0), now + WINDOW + WINDOW / 2), None);
        // Accepted again, for example after an outage of its provider.
        refused.accept(ONE, token(1), later);
        assert!(refused.is_accepted(token(1), later));
        // Too long ago.
        refused.count(ONE, token(2), now + ACCEPTED_TTL);
        assert_eq!(refused.lock().windows[&ONE].refused.len(), 1);
        assert_eq!(refused.lock().accepted.len(), MAX_REFUSED * 2 - 1);
    }

    #[test]
    fn a_token_whose_client_leaves_counts_unless_it_was_accepted() {
        let (refused, now) = (RefusedTokens::default(), Instant::now());
        refused.accept(ONE, token(1), now);
        assert!(refused.is_accepted(token(1), now) && !refused.is_accepted(token(0), now));
        for _ in 0..1000 {
            refused.count_cancelled(ONE, token(1), now);
        }
        assert_eq!(admit(&refused, ONE, token(1), now), None, "an accepted one passes");
        for _ in 1..MAX_REPEATED {
            refused.count_cancelled(ONE, token(0), now);
        }
        assert_eq!(admit(&refused, ONE, token(0), now), None, "it may be valid");
        refused.count_cancelled(ONE, token(0), now);
        assert_eq!(admit(&refused, ONE, token(0), now), Some(WINDOW));
        assert_eq!(admit(&refused, OTHER, token(0), now), None);
        assert_eq!(admit(&refused, ONE, token(2), now), None, "it is blocked alone");
        for number in 2..=MAX_REFUSED {
            refused.count_cancelled(ONE, token(number), now);
        }
        assert_eq!(passed(&refused, ONE, now), 1);
        assert_eq!(admit(&refused, ONE, token(1), now), None);
    }

    #[test]
    fn people_who_reload_a_page_close_nobody_out() {
        let (refused, now) = (RefusedTokens::default(), Instant::now());
        for number in 0..MAX_REFUSED * 2 {
            refused.count_cancelled(ONE, token(number), now);
            refused.accept(ONE, token(number), now);
        }
        assert_eq!(admit(&refused, ONE, token(1000), now), None);
        // At another address it is counted still.
        refused.count(OTHER, token(1000), now);
        refused.accept(ONE, token(1000), now);
        assert_eq!(refused.lock().windows[&OTHER].refused.len(), 1);
    }

    #[test]
    fn the_number_of_addresses_and_tokens_is_bounded() {
        let (refused, now) = (RefusedTokens::default(), Instant::now());
        for number in 0..70_000_u32 {
            refused.count(ClientNetwork::V4(number.into()), token(1), now);
        }
        for number in 0..1000 {
            refused.count(ClientNetwork::V4(7_u32.into()), token(number), now);
        }
        for number in 0..MAX_ACCEPTED * 2 {
            refused.accept(ONE, token(number), now);
        }
        assert_eq!(refused.lock().accepted.len(), MAX_ACCEPTED / 4);
        for number in 0..MAX_ACCEPTED * 2 {
            let address = u32::try_from(number % 100).unwrap();
            refused.accept(ClientNetwork::V4((100_000 + address).into()), token(number), now);
        }
        {
            let state = refused.lock();
            assert_eq!(state.windows.len(), MAX_ADDRESSES);
            assert_eq!(state.windows[&ClientNetwork::V4(7_u32.into())].refused.len(), MAX_REFUSED);
            assert_eq!(state.accepted.len(), MAX_ACCEPTED);
        }
        let later = now + ACCEPTED_TTL;
        refused.count(ClientNetwork::V4(u32::MAX.into()), token(usize::MAX), later);
        refused.accept(ONE, token(usize::MAX), later);
        let state = refused.lock();
        assert_eq!((state.windows.len(), state.accepted.len()), (1, 1));
    }

    #[test]
    fn addresses_without_room_share_a_window() {
        let (refused, now) = (RefusedTokens::default(), Instant::now());
        for number in 0..70_000_u32 {
            refused.count(ClientNetwork::V4(number.into()), token(1), now);
        }
        let shared = || refused.lock().others.as_ref().unwrap().refused.len();
        assert_eq!((shared(), refused.lock().windows.len()), (1, MAX_ADDRESSES));
        let (one, other) =
            (ClientNetwork::V4(80_000_u32.into()), ClientNetwork::V4(80_001_u32.into()));
        for number in 2..=MAX_REFUSED {
            refused.count(one, token(number), now);
            refused.count(other, token(number + 1000), now);
        }
        assert_eq!(shared(), MAX_REFUSED);
        assert_eq!(refused.lock().admission(other, 1, now), Admission::Slow);
        refused.accept(one, token(2), now);
        assert_eq!(shared(), MAX_REFUSED - 1);
        let later = now + WINDOW;
        refused.count(one, token(3), later);
        assert_eq!((passed(&refused, one, later), passed(&refused, other, later)), (100, 100));
    }

    #[test]
    fn many_addresses_together_are_slowed_down() {
        let (refused, now) = (RefusedTokens::default(), Instant::now());
        let address = |number: usize| ClientNetwork::V4(u32::try_from(number).unwrap().into());
        let total = usize::try_from(MAX_REFUSED_TOTAL).unwrap();
        for number in 0..total {
            assert_eq!(admit(&refused, OTHER, token(0), now), None, "{number}");
            refused.count(address(number / 50), token(number), now);
        }
        assert_eq!((passed(&refused, OTHER, now), passed(&refused, ONE, now)), (1, 1));
        let all = (1000..2000).map(|number| passed(&refused, address(number), now));
        assert_eq!(all.sum::<usize>(), 98, "a hundred of all addresses");
        // An address with an accepted token has its own limit alone.
        let known = address(5000);
        assert_eq!(passed(&refused, known, now), 0);
        refused.accept(known, token(total), now);
        assert_eq!(passed(&refused, known, now), MAX_REFUSED);
        // The API server accepted one of this address too long ago.
        let earlier = RefusedTokens::default();
        earlier.accept(known, token(total), now);
        let later = now + ACCEPTED_TTL;
        for number in 0..total {
            earlier.count(address(number / 50), token(number), later);
        }
        assert_eq!(passed(&earlier, known, later), 1);
        earlier.accept(known, token(total), later);
        assert_eq!(passed(&earlier, known, later), MAX_REFUSED);
        // One that was no guess.
        refused.accept(address(0), token(0), now);
        assert_eq!(passed(&refused, ONE, now), 100);
        refused.count(address(0), token(0), now + ACCEPTED_TTL);
        assert_eq!(refused.lock().total.unwrap().count, 1, "of the next five minutes");
    }
}
