//! Random numbers that a seed repeats.

use std::time::Duration;

/// A generator of random numbers (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is at least 1.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or_default()
    }

    /// Whether an event of this probability happens.
    pub fn percent(&mut self, probability: usize) -> bool {
        self.below(100) < probability
    }

    /// One of these.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }

    /// Some of these, at least `min` if there are as many, in their order.
    pub fn subset<T: Clone>(&mut self, items: &[T], min: usize) -> Vec<T> {
        loop {
            let chosen: Vec<T> = items.iter().filter(|_| self.percent(40)).cloned().collect();
            if chosen.len() >= min.min(items.len()) {
                return chosen;
            }
        }
    }

    /// A time below `end`.
    pub fn duration(&mut self, end: Duration) -> Duration {
        let micros = self.below(usize::try_from(end.as_micros()).unwrap_or(usize::MAX));
        Duration::from_micros(u64::try_from(micros).unwrap_or_default())
    }
}
