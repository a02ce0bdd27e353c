//! How the operations of the crashes ended, and when the broker is killed next. Pure.

use std::fmt;
use std::time::Duration;

use super::rng::Rng;

/// Number of operations of a round: a creation, a suspension, and a run on a changed Tenant.
pub(super) const OPERATIONS: usize = 3;
/// Names of the operations, in the order of the tallies.
const NAMES: [&str; OPERATIONS] = ["creations", "suspensions", "runs on a changed Tenant"];
/// Longer than an operation takes. The first rounds replace it.
const INITIAL_DURATION: Duration = Duration::from_millis(500);

/// How an operation of a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationEnd {
    /// The broker was killed before it began the operation.
    NotBegun,
    /// The broker had begun the operation when it was killed, and did not acknowledge it.
    Interrupted,
    /// The operation was acknowledged, this long after the beginning of the round.
    Acknowledged(Duration),
}

impl OperationEnd {
    /// `acknowledged_after` is `None` if there was no acknowledgement.
    pub(super) fn of(acknowledged_after: Option<Duration>, has_begun: bool) -> Self {
        match acknowledged_after {
            Some(duration) => Self::Acknowledged(duration),
            None if has_begun => Self::Interrupted,
            None => Self::NotBegun,
        }
    }
}

/// The rounds of one operation.
#[derive(Clone, Copy, Debug)]
struct OperationTally {
    interrupted: usize,
    acknowledged: usize,
    /// How long the operation takes, as far as the rounds have shown.
    duration: Duration,
}

/// The rounds of all operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct CrashTally([OperationTally; OPERATIONS]);

impl CrashTally {
    pub(super) fn new() -> Self {
        let duration = INITIAL_DURATION;
        Self([OperationTally { interrupted: 0, acknowledged: 0, duration }; OPERATIONS])
    }

    /// The time from the beginning of a round to the kill. The operations take turns: first it is a
    /// random time while the operation lasts, and the next time a random one after its end, so that
    /// each operation is interrupted, and also acknowledged.
    pub(super) fn kill_delay(&self, rng: &mut Rng, round: usize) -> Duration {
        let duration = self.0[round % OPERATIONS].duration;
        let delay = rng.duration(duration);
        let is_during = (round / OPERATIONS).is_multiple_of(2);
        if is_during { delay } else { duration + delay }
    }

    /// Counts a round whose kill came after this time.
    pub(super) fn add(&mut self, ends: [OperationEnd; OPERATIONS], killed_after: Duration) {
        for (tally, end) in self.0.iter_mut().zip(ends) {
            match end {
                OperationEnd::Acknowledged(duration) => {
                    tally.acknowledged += 1;
                    tally.duration = duration;
                    continue;
                }
                OperationEnd::Interrupted => tally.interrupted += 1,
                OperationEnd::NotBegun => {}
            }
            // It takes longer than this.
            tally.duration = tally.duration.max(killed_after);
        }
    }

    /// Whether each operation was interrupted and acknowledged at least once.
    pub(super) fn has_each_end(&self) -> bool {
        self.0.iter().all(|tally| tally.interrupted > 0 && tally.acknowledged > 0)
    }
}

impl fmt::Display for CrashTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, tally)) in NAMES.iter().zip(&self.0).enumerate() {
            let separator = if number == 0 { "" } else { "; " };
            let OperationTally { interrupted, acknowledged, .. } = tally;
            write!(f, "{separator}{name}: {interrupted} interrupted, {acknowledged} acknowledged")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATIONS: [Duration; OPERATIONS] =
        [Duration::from_millis(60), Duration::from_millis(250), Duration::from_millis(80)];

    /// Rounds in which each operation begins after 10 ms, and takes as long as always.
    fn tally(seed: u64, rounds: usize) -> CrashTally {
        let (mut rng, mut tally) = (Rng::new(seed), CrashTally::new());
        for round in 0..rounds {
            let delay = tally.kill_delay(&mut rng, round);
            let ends = DURATIONS.map(|duration| {
                let acknowledged_after = (delay >= duration).then_some(duration);
                OperationEnd::of(acknowledged_after, delay >= Duration::from_millis(10))
            });
            tally.add(ends, delay);
        }
        tally
    }

    #[test]
    fn each_operation_is_interrupted_and_acknowledged_within_thirty_rounds() {
        for seed in 0..1000 {
            let tally = tally(seed, 30);
            assert!(tally.has_each_end(), "with the seed {seed}: {tally}");
        }
    }

    #[test]
    fn an_operation_that_was_never_acknowledged_lacks_an_end() {
        let mut tally = CrashTally::new();
        tally.add([OperationEnd::Interrupted; OPERATIONS], Duration::from_secs(2));
        assert!(!tally.has_each_end());
        assert_eq!(tally.0.map(|it| it.duration), [Duration::from_secs(2); OPERATIONS]);
        let text = "creations: 1 interrupted, 0 acknowledged; suspensions: 1 interrupted, 0 \
                    acknowledged; runs on a changed Tenant: 1 interrupted, 0 acknowledged";
        assert_eq!(tally.to_string(), text);
        tally.add([OperationEnd::Acknowledged(DURATIONS[0]); OPERATIONS], Duration::from_secs(3));
        assert!(tally.has_each_end());
        assert_eq!(tally.0.map(|it| it.duration), [DURATIONS[0]; OPERATIONS]);
    }
}
