//! When each tenant is reconciled next. Pure: the time is an argument.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use crate::tenant::TenantName;

/// Pause after a failure, which doubles with each further one.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
/// Longest pause after a failure.
const MAX_BACKOFF: Duration = Duration::from_mins(5);
/// Pause between two runs on one tenant, because somebody may change an object again and again that
/// the controller changes back.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Result of a run on a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// Everything is as desired.
    Done,
    /// Nothing failed, but the tenant has to be looked at again after this time.
    Again(Duration),
    /// Something failed.
    Failed,
}

/// The tenants to be reconciled, each once, with the time of its next run. A tenant on which a run
/// is under way is not taken a second time.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    entries: BTreeMap<TenantName, Entry>,
    /// The tenants that wait, in the order of their times.
    waiting: BTreeSet<(Instant, TenantName)>,
}

#[derive(Debug)]
struct Entry {
    /// The next run; `None` if there is no reason for one.
    at: Option<Instant>,
    /// Earliest time of the next run that an event causes; `None` before the first run.
    not_before: Option<Instant>,
    running: bool,
    /// Failed runs since the last one that did not fail.
    failures: u32,
}

impl Schedule {
    /// Schedules a run at this time, unless one is scheduled before it.
    pub(super) fn add(&mut self, name: TenantName, at: Instant) {
        let entry = self.entries.entry(name.clone()).or_insert(Entry {
            at: None,
            not_before: None,
            running: false,
            failures: 0,
        });
        let at = entry.not_before.map_or(at, |earliest| at.max(earliest));
        if entry.at.is_some_and(|earlier| earlier <= at) {
            return;
        }
        let replaced = entry.at.replace(at);
        // A tenant on which a run is under way waits again once the run ends.
        if !entry.running {
            if let Some(replaced) = replaced {
                self.waiting.remove(&(replaced, name.clone()));
            }
            self.waiting.insert((at, name));
        }
    }

    /// Takes the tenant that has waited longest; `None` if the time of none has come.
    pub(super) fn take(&mut self, now: Instant) -> Option<TenantName> {
        if self.next_at()? > now {
            return None;
        }
        let (_, name) = self.waiting.pop_first()?;
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.at = None;
            entry.running = true;
        }
        Some(name)
    }

    /// The time of the next run.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.waiting.first().map(|(at, _)| *at)
    }

    /// Ends a run on a tenant, and schedules the next one if there is a reason for it.
    pub(super) fn finish(&mut self, name: &TenantName, result: Run, now: Instant) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.running = false;
        let again = match result {
            Run::Done => None,
            Run::Again(pause) => Some(pause),
            Run::Failed => Some(backoff(entry.failures)),
        };
        let min_pause = if result == Run::Failed {
            entry.failures = entry.failures.saturating_add(1);
            MIN_BACKOFF
        } else {
            entry.failures = 0;
            MIN_INTERVAL
        };
        entry.not_before = Some(now + min_pause);
        // Events during the run.
        let event = entry.at.take();
        let next = [event, again.map(|pause| now + pause)].into_iter().flatten().min();
        if let Some(at) = next {
            self.add(name.clone(), at);
        }
    }

    /// Number of tenants that wait for their run or are in it.
    pub(super) fn len(&self) -> usize {
        self.entries.values().filter(|entry| entry.running || entry.at.is_some()).count()
    }

    /// Forgets the tenants that have nothing to wait for, so that the names of tenants that are gone
    /// do not stay.
    pub(super) fn prune(&mut self, now: Instant) {
        self.entries.retain(|_, entry| {
            let rests = entry.not_before.is_some_and(|earliest| earliest > now);
            entry.running || entry.at.is_some() || rests
        });
    }
}

/// The pause after so many earlier failures.
fn backoff(failures: u32) -> Duration {
    MIN_BACKOFF.saturating_mul(2_u32.saturating_pow(failures)).min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> TenantName {
        text.parse().unwrap()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_tenant_with_many_events_is_taken_once() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        for _ in 0..3 {
            schedule.add(name("solar"), now);
        }
        schedule.add(name("lunar"), now + seconds(1));
        assert_eq!(schedule.len(), 2);
        assert_eq!(schedule.take(now), Some(name("solar")));
        assert_eq!(schedule.take(now), None);
        assert_eq!(schedule.next_at(), Some(now + seconds(1)));
        assert_eq!(schedule.take(now + seconds(1)), Some(name("lunar")));
        assert_eq!(schedule.len(), 2, "both runs are under way");
        for tenant in ["solar", "lunar"] {
            schedule.finish(&name(tenant), Run::Done, now);
        }
        assert_eq!((schedule.len(), schedule.next_at()), (0, None));
    }

    #[test]
    fn an_earlier_time_replaces_a_later_one() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        for (at, next) in [(20, 20), (10, 10), (30, 10)] {
            schedule.add(name("solar"), now + seconds(at));
            assert_eq!(schedule.next_at(), Some(now + seconds(next)));
        }
        assert_eq!(schedule.len(), 1);
    }

    #[test]
    fn an_event_during_a_run_causes_another_one() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.add(name("solar"), now);
        assert_eq!(schedule.take(now), Some(name("solar")));
        schedule.add(name("solar"), now);
        assert_eq!(schedule.take(now), None, "the first run is under way");
        schedule.finish(&name("solar"), Run::Done, now);
        assert_eq!(schedule.take(now), None, "there is a pause between two runs");
        assert_eq!(schedule.take(now + MIN_INTERVAL), Some(name("solar")));
    }

    #[test]
    fn failures_are_retried_with_growing_pauses_until_a_run_succeeds() {
        let (mut schedule, mut now) = (Schedule::default(), Instant::now());
        schedule.add(name("solar"), now);
        for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            assert_eq!(schedule.take(now), Some(name("solar")));
            schedule.finish(&name("solar"), Run::Failed, now);
            assert_eq!(schedule.next_at(), Some(now + seconds(pause)));
            now += seconds(pause);
        }
        assert_eq!(schedule.take(now), Some(name("solar")));
        schedule.finish(&name("solar"), Run::Again(seconds(7)), now);
        assert_eq!(schedule.next_at(), Some(now + seconds(7)));
        now += seconds(7);
        assert_eq!(schedule.take(now), Some(name("solar")));
        schedule.finish(&name("solar"), Run::Failed, now);
        assert_eq!(schedule.next_at(), Some(now + seconds(1)), "the count began anew");
    }

    /// Otherwise an object that somebody changes again and again would keep the controller busy.
    #[test]
    fn an_event_shortens_the_pause_after_a_failure_to_a_second() {
        let (mut schedule, mut now) = (Schedule::default(), Instant::now());
        schedule.add(name("solar"), now);
        for _ in 0..5 {
            assert_eq!(schedule.take(now), Some(name("solar")));
            schedule.finish(&name("solar"), Run::Failed, now);
            now = schedule.next_at().unwrap();
        }
        assert_eq!(schedule.take(now), Some(name("solar")));
        schedule.finish(&name("solar"), Run::Failed, now);
        assert_eq!(schedule.next_at(), Some(now + seconds(32)));
        schedule.add(name("solar"), now);
        assert_eq!(schedule.next_at(), Some(now + MIN_BACKOFF));
    }

    #[test]
    fn names_without_work_are_forgotten() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.add(name("solar"), now);
        schedule.add(name("lunar"), now);
        assert_eq!(schedule.take(now), Some(name("lunar")));
        schedule.finish(&name("lunar"), Run::Done, now);
        schedule.prune(now);
        assert_eq!(schedule.entries.len(), 2, "the pause of lunar has not ended");
        schedule.prune(now + MIN_INTERVAL);
        assert_eq!(schedule.entries.keys().collect::<Vec<_>>(), [&name("solar")]);
    }

    #[derive(Clone, Debug)]
    enum Call {
        Add { tenant: u8, after: u64 },
        Take,
        Finish { tenant: u8, result: Run },
        Wait(u64),
    }

    fn call() -> impl Strategy<Value = Call> {
        let result = prop_oneof![
            Just(Run::Done),
            Just(Run::Failed),
            (0..9_u64).prop_map(|after| Run::Again(seconds(after))),
        ];
        prop_oneof![
            (0..4_u8, 0..9_u64).prop_map(|(tenant, after)| Call::Add { tenant, after }),
            Just(Call::Take),
            (0..4_u8, result).prop_map(|(tenant, result)| Call::Finish { tenant, result }),
            (0..20_u64).prop_map(Call::Wait),
        ]
    }

    proptest! {
        /// Each tenant with work waits or runs, never both, and none is forgotten.
        #[test]
        fn no_call_loses_or_doubles_a_tenant(calls in proptest::collection::vec(call(), 0..60)) {
            let (mut schedule, mut now) = (Schedule::default(), Instant::now());
            let tenant = |number: u8| name(&format!("t{number}"));
            let mut running = BTreeSet::new();
            let mut wanted = BTreeSet::new();
            for call in calls {
                match call {
                    Call::Add { tenant: number, after } => {
                        schedule.add(tenant(number), now + seconds(after));
                        wanted.insert(tenant(number));
                    }
                    Call::Take => {
                        if let Some(taken) = schedule.take(now) {
                            prop_assert!(running.insert(taken.clone()), "{taken} runs already");
                            prop_assert!(wanted.remove(&taken));
                        }
                    }
                    Call::Finish { tenant: number, result } => {
                        if running.remove(&tenant(number)) {
                            schedule.finish(&tenant(number), result, now);
                            if result != Run::Done {
                                wanted.insert(tenant(number));
                            }
                        }
                    }
                    Call::Wait(after) => now += seconds(after),
                }
                schedule.prune(now);
                let all: BTreeSet<_> = running.union(&wanted).collect();
                prop_assert_eq!(schedule.len(), all.len());
            }
            now += MAX_BACKOFF;
            for name in std::mem::take(&mut running) {
                schedule.finish(&name, Run::Done, now);
            }
            now += MIN_INTERVAL;
            while let Some(taken) = schedule.take(now) {
                prop_assert!(wanted.remove(&taken));
            }
            prop_assert!(wanted.is_empty(), "{wanted:?}");
        }
    }
}
