//! Changes in flight, which go on without their clients.

use std::time::Duration;

use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use super::super::{ModelServices, failure::Failure};
use crate::base::{drain, request_context::spawn_in_request_context};

/// The changes in flight, and whether others may begin.
#[derive(Debug, Default)]
pub(in crate::model_services) struct ChangesInFlight(TaskTracker);

impl ChangesInFlight {
    /// Refuses changes that have not begun.
    fn refuse(&self) {
        self.0.close();
    }

    /// Checks that a change may begin.
    ///
    /// # Errors
    /// The broker stops.
    pub(super) fn require_running(&self) -> Result<(), Failure> {
        if self.0.is_closed() { Err(Failure::stopping()) } else { Ok(()) }
    }
}

impl ModelServices {
    /// Runs a change to its end, also if the client disconnects: a change that is dropped half-way would
    /// neither be rolled back nor recorded.
    ///
    /// # Errors
    /// Those of the change; the broker stops.
    pub(super) async fn run_to_end<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        let change = self.0.changes_in_flight.0.track_future(change);
        match spawn_in_request_context(change.in_current_span()).await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(error) => Err(Failure::internal_error(&error)),
        }
    }

    /// Refuses changes that have not begun. Called as soon as the broker stops, because a change that
    /// begins late would be interrupted.
    pub(crate) fn refuse_changes(&self) {
        self.0.changes_in_flight.refuse();
    }

    /// Waits until the changes in flight have ended, also those whose clients have left, or the time is
    /// over. Called when the broker stops and answers no more requests.
    pub(crate) async fn drain_changes(&self, timeout: Duration) {
        let in_flight = drain(&self.0.changes_in_flight.0, timeout).await;
        if in_flight > 0 {
            tracing::warn!(
                in_flight,
                "installations or deletions of Llama Stacks interrupted, because the broker stops; \
                 delete what they left"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_broker_that_stops_begins_no_change_and_waits_for_those_in_flight() {
        let changes = ChangesInFlight::default();
        changes.require_running().unwrap();
        let (release, released) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(changes.0.track_future(released));
        changes.refuse();
        let refused = changes.require_running().unwrap_err();
        assert_eq!((refused.status().as_u16(), refused.retry_after_seconds()), (500, Some(1)));
        assert_eq!(drain(&changes.0, Duration::ZERO).await, 1);
        release.send(()).unwrap();
        assert_eq!(drain(&changes.0, Duration::from_secs(10)).await, 0);
        running.await.unwrap().unwrap();
    }
}
