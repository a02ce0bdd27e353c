//! The queue of tenants that the workers of this process take their work from.

pub(super) mod creations;
mod schedule;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use self::schedule::Schedule;
pub(super) use self::schedule::{Run, RunKind};
use crate::tenant::TenantName;

/// A queue that holds each tenant once, until the time of its run has come.
#[derive(Debug, Default)]
pub(super) struct Queue {
    schedule: Mutex<Schedule>,
    /// The first time of an ordinary run may have changed.
    ordinary_changed: Notify,
    /// The first time of a run for a suspension may have changed.
    suspensions_changed: Notify,
}

impl Queue {
    /// Adds a tenant that has to be reconciled at once.
    pub(super) fn add(&self, name: TenantName) {
        self.add_after(name, Duration::ZERO);
    }

    /// Adds a tenant that has to be reconciled after this time at the latest.
    pub(super) fn add_after(&self, name: TenantName, pause: Duration) {
        self.lock().add(name, RunKind::Ordinary, Instant::now() + pause);
        self.notify();
    }

    /// Adds a tenant that may be being suspended.
    pub(super) fn add_suspension(&self, name: TenantName) {
        self.lock().add(name, RunKind::Suspension, Instant::now());
        self.notify();
    }

    /// Waits for a tenant whose time has come for a run of this kind, and takes it.
    /// [`Self::finish`] or [`Self::finish_suspension`] has to follow.
    pub(super) async fn next(&self, kind: RunKind) -> TenantName {
        loop {
            let changed = self.changed(kind).notified();
            let next_at = {
                let mut schedule = self.lock();
                if let Some(name) = schedule.take(kind, Instant::now()) {
                    // Another worker may wait for the next one.
                    self.changed(kind).notify_one();
                    return name;
                }
                schedule.next_at(kind)
            };
            match next_at {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, changed).await;
                }
                None => changed.await,
            }
        }
    }

    /// Ends an ordinary run on a tenant.
    pub(super) fn finish(&self, name: &TenantName, result: Run) {
        self.lock().finish(name, result, Instant::now());
        self.notify();
    }

    /// Ends a run for the suspension of a tenant.
    pub(super) fn finish_suspension(&self, name: &TenantName) {
        self.lock().finish_suspension(name, Instant::now());
        self.notify();
    }

    fn changed(&self, kind: RunKind) -> &Notify {
        match kind {
            RunKind::Ordinary => &self.ordinary_changed,
            RunKind::Suspension => &self.suspensions_changed,
        }
    }

    /// The next run may be of either kind.
    fn notify(&self) {
        self.ordinary_changed.notify_one();
        self.suspensions_changed.notify_one();
    }

    /// Number of tenants that wait for their run or are in it.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Forgets the names of tenants without work.
    pub(super) fn prune(&self) {
        self.lock().prune(Instant::now());
    }

    /// No code panics while it has the lock.
    fn lock(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Limit of what takes milliseconds.
    const STEP_TIMEOUT: Duration = Duration::from_secs(30);

    fn name(text: &str) -> TenantName {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn every_waiting_worker_gets_a_tenant() {
        let queue = Arc::new(Queue::default());
        let workers: tokio::task::JoinSet<TenantName> = (0..4)
            .map(|_| {
                let queue = Arc::clone(&queue);
                async move { queue.next(RunKind::Ordinary).await }
            })
            .collect();
        tokio::task::yield_now().await;
        let names = ["lunar", "solar", "stellar", "terra"];
        for tenant in names {
            queue.add(name(tenant));
        }
        let taken = tokio::time::timeout(STEP_TIMEOUT, workers.join_all()).await;
        let mut taken = taken.expect("a worker sleeps on");
        taken.sort();
        assert_eq!(taken, names.map(name));
        assert_eq!(queue.len(), 4);
    }

    /// Runs of other tenants may take long.
    #[tokio::test]
    async fn a_suspension_needs_no_worker_of_ordinary_runs() {
        let queue = Arc::new(Queue::default());
        queue.add(name("solar"));
        assert_eq!(queue.next(RunKind::Ordinary).await, name("solar"));
        let worker = {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move { queue.next(RunKind::Suspension).await })
        };
        tokio::task::yield_now().await;
        queue.add_suspension(name("lunar"));
        let taken = tokio::time::timeout(STEP_TIMEOUT, worker).await;
        assert_eq!(taken.expect("the worker sleeps on").unwrap(), name("lunar"));
    }

    #[tokio::test]
    async fn an_earlier_run_wakes_a_worker_that_waits_for_a_later_one() {
        let queue = Arc::new(Queue::default());
        queue.add_after(name("lunar"), Duration::from_hours(1));
        let worker = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.next(RunKind::Ordinary).await }
        });
        tokio::task::yield_now().await;
        queue.add(name("solar"));
        let taken = tokio::time::timeout(STEP_TIMEOUT, worker).await;
        assert_eq!(taken.expect("the worker waits for lunar").unwrap(), name("solar"));
        queue.finish(&name("solar"), Run::Done);
        assert_eq!(queue.len(), 1);
        queue.prune();
        assert_eq!(queue.len(), 1);
    }
}
