//! The runs in flight.

use std::time::Duration;

use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use crate::base::drain;

/// Counts the runs in flight, so that the broker can wait for them when it stops.
#[derive(Debug, Default)]
pub(in crate::tenant_controller) struct Runs {
    in_flight: TaskTracker,
    stopping: CancellationToken,
}

impl Runs {
    /// Begins a run, which lasts until the value is dropped. Once the broker stops, no run begins and
    /// the future never resolves.
    pub(in crate::tenant_controller) async fn begin(&self) -> TaskTrackerToken {
        // Before the check, so that `stop` either waits for this run or prevents it.
        let run = self.in_flight.token();
        if self.stopping.is_cancelled() {
            drop(run);
            return std::future::pending().await;
        }
        run
    }

    /// Prevents new runs, and waits until those in flight have ended or the time is over.
    pub(in crate::tenant_controller) async fn stop(&self, limit: Duration) {
        self.stopping.cancel();
        let in_flight = drain(&self.in_flight, limit).await;
        if in_flight > 0 {
            tracing::warn!(
                in_flight,
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
