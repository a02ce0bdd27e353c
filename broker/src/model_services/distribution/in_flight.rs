//! Changes in flight, which go on without their clients.

use std::time::Duration;

use tracing::Instrument as _;

use super::super::{ModelServices, failure::Failure};
use crate::base::{drain, request_context::spawn_in_request_context};

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
        let change = self.0.changes_in_flight.track_future(change);
        match spawn_in_request_context(change.in_current_span()).await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(error) => Err(Failure::internal_error(&error)),
        }
    }

    /// Waits until the changes in flight have ended, also those whose clients have left, or the time is
    /// over. Called when the broker stops and answers no more requests.
    pub(crate) async fn drain_changes(&self, timeout: Duration) {
        let in_flight = drain(&self.0.changes_in_flight, timeout).await;
        if in_flight > 0 {
            tracing::warn!(
                in_flight,
                "installations or deletions of Llama Stacks interrupted, because the broker stops; \
                 delete what they left"
            );
        }
    }
}
