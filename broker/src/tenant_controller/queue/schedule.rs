//! The schedule: the time of each tenant's next reconciliation. Pure: the time is an argument.

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
/// Pause between two runs on one tenant, because somebody may repeatedly change an object that
/// the controller changes back.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Class of workers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tenant_controller) enum RunKind {
    /// A run on all objects of a tenant.
    Ordinary,
    /// The enforcement of a suspension, if the tenant is being suspended. Workers of their own take
    /// it, because ordinary runs on other tenants may take long.
    Suspension,
}

/// Result of a run on a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tenant_controller) enum Run {
    /// Everything is as desired.
    Done,
    /// Nothing failed, but the tenant has to be looked at again after this time.
    Again(Duration),
    /// Something failed.
    Failed,
}

/// Tenants that wait, in the order of their times.
type WaitingRuns = BTreeSet<(Instant, TenantName)>;

/// The tenants to be reconciled, each once, with the time of its next run. A tenant on which a run
/// is under way is not taken a second time.
#[derive(Debug, Default)]
pub(in crate::tenant_controller) struct Schedule {
    entries: BTreeMap<TenantName, ScheduledTenant>,
    ordinary: WaitingRuns,
    suspensions: WaitingRuns,
}

#[derive(Debug)]
struct ScheduledTenant {
    /// The next run; `None` if there is no reason for one.
    at: Option<Instant>,
    /// Earliest time of the next run that an event causes; `None` before the first run.
    not_before: Option<Instant>,
    running: bool,
    /// The kind of the next run.
    kind: RunKind,
    /// Whether a run for a suspension was made, and no run since then ended without a failure.
    was_suspension: bool,
    /// Failed runs since the last one that did not fail.
    failures: u32,
}

impl Schedule {
    /// Schedules a run at this time, unless one is scheduled before it. A run for a suspension
    /// replaces an ordinary one, which follows it.
    pub(in crate::tenant_controller) fn add(
        &mut self,
        name: TenantName,
        kind: RunKind,
        at: Instant,
    ) {
        let entry = self.entries.entry(name.clone()).or_insert(ScheduledTenant {
            at: None,
            not_before: None,
            running: false,
            kind: RunKind::Ordinary,
            was_suspension: false,
            failures: 0,
        });
        let at = entry.not_before.map_or(at, |earliest| at.max(earliest));
        let at = entry.at.map_or(at, |earlier| earlier.min(at));
        let kind = if kind == RunKind::Suspension { kind } else { entry.kind };
        if (entry.at, entry.kind) == (Some(at), kind) {
            return;
        }
        let (replaced, earlier_kind) = (entry.at.replace(at), entry.kind);
        entry.kind = kind;
        // A tenant on which a run is under way waits again once the run ends.
        if !entry.running {
            if let Some(replaced) = replaced {
                self.waiting(earlier_kind).remove(&(replaced, name.clone()));
            }
            self.waiting(kind).insert((at, name));
        }
    }

    /// Takes the tenant that has waited longest for a run of this kind; `None` if the time of none
    /// has come.
    pub(in crate::tenant_controller) fn take(
        &mut self,
        kind: RunKind,
        now: Instant,
    ) -> Option<TenantName> {
        if self.next_at(kind)? > now {
            return None;
        }
        let (_, name) = self.waiting(kind).pop_first()?;
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.at = None;
            entry.running = true;
            entry.kind = RunKind::Ordinary;
            entry.was_suspension |= kind == RunKind::Suspension;
        }
        Some(name)
    }

    /// The time of the next run of this kind.
    pub(in crate::tenant_controller) fn next_at(&self, kind: RunKind) -> Option<Instant> {
        let waiting = match kind {
            RunKind::Ordinary => &self.ordinary,
            RunKind::Suspension => &self.suspensions,
        };
        waiting.first().map(|(at, _)| *at)
    }

    fn waiting(&mut self, kind: RunKind) -> &mut WaitingRuns {
        match kind {
            RunKind::Ordinary => &mut self.ordinary,
            RunKind::Suspension => &mut self.suspensions,
        }
    }

    /// Ends a run on a tenant, and schedules the next one if there is a reason for it. One that
    /// follows a failed suspension is for the suspension again.
    pub(in crate::tenant_controller) fn finish(
        &mut self,
        name: &TenantName,
        result: Run,
        now: Instant,
    ) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.running = false;
        let again = match result {
            Run::Done => None,
            Run::Again(pause) => Some(pause),
            Run::Failed => Some(backoff(entry.failures)),
        };
        let min_pause = if result == Run::Failed {
            if entry.was_suspension {
                entry.kind = RunKind::Suspension;
            }
            entry.failures = entry.failures.saturating_add(1);
            MIN_BACKOFF
        } else {
            entry.failures = 0;
            entry.was_suspension = false;
            MIN_INTERVAL
        };
        entry.not_before = Some(now + min_pause);
        // Events during the run.
        let event = entry.at.take();
        let next = [event, again.map(|pause| now + pause)].into_iter().flatten().min();
        let kind = entry.kind;
        if let Some(at) = next {
            self.add(name.clone(), kind, at);
        }
    }

    /// Ends a run for a suspension. The ordinary one follows at once, which reports and retries.
    pub(in crate::tenant_controller) fn finish_suspension(
        &mut self,
        name: &TenantName,
        now: Instant,
    ) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.running = false;
        let (kind, at) = (entry.kind, entry.at.take().unwrap_or(now).min(now));
        self.add(name.clone(), kind, at);
    }

    /// Number of tenants that wait for their run or are in it.
    pub(in crate::tenant_controller) fn len(&self) -> usize {
        self.entries.values().filter(|entry| entry.running || entry.at.is_some()).count()
    }

    /// Forgets the tenants that have nothing to wait for, so that the names of tenants that are gone
    /// do not stay.
    pub(in crate::tenant_controller) fn prune(&mut self, now: Instant) {
        self.entries.retain(|_, entry| {
            let rests = entry.not_before.is_some_and(|earliest| earliest > now);
            entry.running || entry.at.is_some() || rests
        });
    }
}

/// The pause after this number of earlier failures.
fn backoff(failures: u32) -> Duration {
    MIN_BACKOFF.saturating_mul(2_u32.saturating_pow(failures)).min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ORDINARY: RunKind = RunKind::Ordinary;
    const SUSPENSION: RunKind = RunKind::Suspension;

    fn name(text: &str) -> TenantName {
        text.parse().unwrap()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_suspension_replaces_an_ordinary_run_which_follows_it() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.add(name("solar"), ORDINARY, now);
        schedule.add(name("solar"), SUSPENSION, now + seconds(5));
        assert_eq!(schedule.take(ORDINARY, now), None);
        // An event does not make it an ordinary one again.
        schedule.add(name("solar"), ORDINARY, now);
        assert_eq!(schedule.take(SUSPENSION, now), Some(name("solar")));
        schedule.add(name("solar"), ORDINARY, now);
        assert_eq!((schedule.len(), schedule.next_at(ORDINARY)), (1, None));
        schedule.finish_suspension(&name("solar"), now);
        assert_eq!(schedule.take(ORDINARY, now), Some(name("solar")));
        schedule.finish(&name("solar"), Run::Done, now);
        assert_eq!(schedule.len(), 0);
    }

    #[test]
    fn a_suspension_waits_for_a_run_on_its_tenant_only() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        for tenant in ["lunar", "solar"] {
            schedule.add(name(tenant), ORDINARY, now);
            assert_eq!(schedule.take(ORDINARY, now), Some(name(tenant)));
        }
        for tenant in ["lunar", "terra"] {
            schedule.add(name(tenant), SUSPENSION, now);
        }
        assert_eq!(schedule.take(SUSPENSION, now), Some(name("terra")));
        assert_eq!(schedule.take(SUSPENSION, now), None);
        schedule.finish(&name("lunar"), Run::Again(seconds(9)), now);
        let later = now + MIN_INTERVAL;
        assert_eq!(schedule.take(SUSPENSION, later), Some(name("lunar")));
    }

    #[test]
    fn a_failed_run_after_a_suspension_is_one_for_the_suspension_again() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.add(name("solar"), SUSPENSION, now);
        assert_eq!(schedule.take(SUSPENSION, now), Some(name("solar")));
        schedule.finish_suspension(&name("solar"), now);
        assert_eq!(schedule.take(ORDINARY, now), Some(name("solar")));
        schedule.finish(&name("solar"), Run::Failed, now);
        assert_eq!(schedule.take(ORDINARY, now + seconds(60)), None);
        let now = now + seconds(60);
        assert_eq!(schedule.take(SUSPENSION, now), Some(name("solar")));
        schedule.finish_suspension(&name("solar"), now);
        assert_eq!(schedule.take(ORDINARY, now), Some(name("solar")));
        schedule.finish(&name("solar"), Run::Done, now);
        schedule.add(name("solar"), ORDINARY, now);
        assert_eq!(schedule.take(ORDINARY, now + seconds(60)), Some(name("solar")));
        schedule.finish(&name("solar"), Run::Failed, now);
        assert_eq!(schedule.take(SUSPENSION, now + seconds(600)), None);
    }

    #[test]
    fn a_tenant_with_many_events_is_taken_once() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        for _ in 0..3 {
            schedule.add(name("solar"), ORDINARY, now);
        }
        schedule.add(name("lunar"), ORDINARY, now + seconds(1));
        assert_eq!(schedule.len(), 2);
        assert_eq!(schedule.take(ORDINARY, now), Some(name("solar")));
        assert_eq!(schedule.take(ORDINARY, now), None);
        assert_eq!(schedule.next_at(ORDINARY), Some(now + seconds(1)));
        assert_eq!(schedule.take(ORDINARY, now + seconds(1)), Some(name("lunar")));
        assert_eq!(schedule.len(), 2, "both runs are under way");
        for tenant in ["solar", "lunar"] {
            schedule.finish(&name(tenant), Run::Done, now);
        }
        assert_eq!((schedule.len(), schedule.next_at(ORDINARY)), (0, None));
    }

    #[test]
    fn an_earlier_time_replaces_a_later_one() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        for (at, next) in [(20, 20), (10, 10), (30, 10)] {
            schedule.add(name("solar"), ORDINARY, now + seconds(at));
            assert_eq!(schedule.next_at(ORDINARY), Some(now + seconds(next)));
        }
        assert_eq!(schedule.len(), 1);
    }

    #[test]
    fn an_event_during_a_run_causes_another_one() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.add(name("solar"), ORDINARY, now);
        assert_eq!(schedule.take(ORDINARY, now), Some(name("solar")));
        schedule.add(name("solar"), ORDINARY, now);
        assert_eq!(schedule.take(ORDINARY, now), None, "the first run is under way");
        schedule.finish(&name("solar"), Run::Done, now);
        assert_eq!(schedule.take(ORDINARY, now), None, "there is a pause between two runs");
        assert_eq!(schedule.take(ORDINARY, now + MIN_INTERVAL), Some(name("solar")));
    }

    #[test]
    fn failures_are_retried_with_growing_pauses_until_a_run_succeeds() {
        let (mut schedule, mut now) = (Schedule::default(), Instant::now());
        schedule.add(name("solar"), ORDINARY, now);
        for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            assert_eq!(schedule.take(ORDINARY, now), Some(name("solar")));
            schedule.finish(&name("solar"), Run::Failed, now);
            assert_eq!(schedule.next_at(ORDINARY), Some(now + seconds(pause)));
            now += seconds(pause);
        }
        assert_eq!(schedule.take(ORDINARY, now), Some(name("solar")));
        schedule.finish(&name("solar"), Run::Again(seconds(7)), now);
        assert_eq!(schedule.next_at(ORDINARY), Some(now + seconds(7)));
        now += seconds(7);
        assert_eq!(schedule.take(ORDINARY, now), Some(name("solar")));
        schedule.finish(&name("solar"), Run::Failed, now);
        assert_eq!(schedule.next_at(ORDINARY), Some(now + seconds(1)), "the count began anew");
    }

    /// Otherwise an object that somebody changes repeatedly would keep the controller busy.
    #[test]
    fn an_event_shortens_the_pause_after_a_failure_to_a_second() {
        let (mut schedule, mut now) = (Schedule::default(), Instant::now());
        schedule.add(name("solar"), ORDINARY, now);
        for _ in 0..5 {
            assert_eq!(schedule.take(ORDINARY, now), Some(name("solar")));
            schedule.finish(&name("solar"), Run::Failed, now);
            now = schedule.next_at(ORDINARY).unwrap();
        }
        assert_eq!(schedule.take(ORDINARY, now), Some(name("solar")));
        schedule.finish(&name("solar"), Run::Failed, now);
        assert_eq!(schedule.next_at(ORDINARY), Some(now + seconds(32)));
        schedule.add(name("solar"), ORDINARY, now);
        assert_eq!(schedule.next_at(ORDINARY), Some(now + MIN_BACKOFF));
    }

    #[test]
    fn names_without_work_are_forgotten() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.add(name("solar"), ORDINARY, now);
        schedule.add(name("lunar"), ORDINARY, now);
        assert_eq!(schedule.take(ORDINARY, now), Some(name("lunar")));
        schedule.finish(&name("lunar"), Run::Done, now);
        schedule.prune(now);
        assert_eq!(schedule.entries.len(), 2, "the pause of lunar has not ended");
        schedule.prune(now + MIN_INTERVAL);
        assert_eq!(schedule.entries.keys().collect::<Vec<_>>(), [&name("solar")]);
    }

    #[derive(Clone, Debug)]
    enum Call {
        Add { tenant: u8, kind: RunKind, after: u64 },
        Take(RunKind),
        Finish { tenant: u8, result: Run },
        Wait(u64),
    }

    fn call() -> impl Strategy<Value = Call> {
        let result = prop_oneof![
            Just(Run::Done),
            Just(Run::Failed),
            (0..9_u64).prop_map(|after| Run::Again(seconds(after))),
        ];
        let kind = prop_oneof![Just(ORDINARY), Just(SUSPENSION)];
        prop_oneof![
            (0..4_u8, kind.clone(), 0..9_u64).prop_map(|(tenant, kind, after)| Call::Add {
                tenant,
                kind,
                after
            }),
            kind.prop_map(Call::Take),
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
            let mut running = BTreeMap::new();
            let mut wanted = BTreeSet::new();
            for call in calls {
                match call {
                    Call::Add { tenant: number, kind, after } => {
                        schedule.add(tenant(number), kind, now + seconds(after));
                        wanted.insert(tenant(number));
                    }
                    Call::Take(kind) => {
                        if let Some(taken) = schedule.take(kind, now) {
                            let is_running = running.insert(taken.clone(), kind).is_some();
                            prop_assert!(!is_running, "{taken} runs already");
                            prop_assert!(wanted.remove(&taken));
                        }
                    }
                    Call::Finish { tenant: number, result } => {
                        match running.remove(&tenant(number)) {
                            None => {}
                            Some(ORDINARY) => {
                                schedule.finish(&tenant(number), result, now);
                                if result != Run::Done {
                                    wanted.insert(tenant(number));
                                }
                            }
                            Some(SUSPENSION) => {
                                schedule.finish_suspension(&tenant(number), now);
                                wanted.insert(tenant(number));
                            }
                        }
                    }
                    Call::Wait(after) => now += seconds(after),
                }
                schedule.prune(now);
                let all: BTreeSet<_> = running.keys().chain(&wanted).collect();
                prop_assert_eq!(schedule.len(), all.len());
            }
            now += MAX_BACKOFF;
            for name in running.into_keys() {
                schedule.finish(&name, Run::Done, now);
            }
            now += MIN_INTERVAL;
            for kind in [ORDINARY, SUSPENSION] {
                while let Some(taken) = schedule.take(kind, now) {
                    prop_assert!(wanted.remove(&taken));
                }
            }
            prop_assert!(wanted.is_empty(), "{wanted:?}");
        }
    }
}
