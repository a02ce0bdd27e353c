//! The runs under way.

use std::time::Duration;

use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

/// Counts the runs under way, so that the broker can wait for them when it stops.
#[derive(Debug, Default)]
pub(super) struct Runs {
    under_way: TaskTracker,
    stopping: CancellationToken,
}

impl Runs {
    /// Begins a run, which lasts until the value is dropped. Once the broker stops, no run begins and
    /// the future never resolves.
    pub(super) async fn begin(&self) -> TaskTrackerToken {
        // Before the check, so that `stop` either waits for this run or prevents it.
        let run = self.under_way.token();
        if self.stopping.is_cancelled() {
            drop(run);
            return std::future::pending().await;
        }
        run
    }

    /// Prevents new runs, and waits until those under way have ended or the time is over.
    pub(super) async fn stop(&self, limit: Duration) {
        self.stopping.cancel();
        self.under_way.close();
        if tokio::time::timeout(limit, self.under_way.wait()).await.is_err() {
            tracing::warn!(
                in_flight = self.under_way.len(),
                "reconciliation of tenants interrupted, because the broker stops; another replica \
                 goes on when the leases expire"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Limit of what takes milliseconds.
    const STEP_TIMEOUT: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn the_stop_waits_for_runs_and_prevents_others() {
        let runs = Arc::new(Runs::default());
        let run = runs.begin().await;
        let stop = tokio::spawn({
            let runs = Arc::clone(&runs);
            async move { runs.stop(STEP_TIMEOUT).await }
        });
        runs.stopping.cancelled().await;
        assert!(tokio::time::timeout(SHORT, runs.begin()).await.is_err(), "another run begins");
        assert!(!stop.is_finished(), "it does not wait");
        drop(run);
        tokio::time::timeout(STEP_TIMEOUT, stop).await.expect("it waits for nothing").unwrap();
    }

    #[tokio::test]
    async fn the_stop_does_not_wait_for_a_long_run() {
        let runs = Runs::default();
        let _run = runs.begin().await;
        let stop = tokio::time::timeout(STEP_TIMEOUT, runs.stop(SHORT));
        stop.await.expect("it waits for the run");
    }
}
