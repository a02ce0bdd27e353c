//! Changes that fail, and what they leave.

use tracing::Instrument as _;

use super::super::failure::Failure;
use crate::base::request_context::spawn_in_request_context;

/// A change that failed.
#[derive(Debug)]
pub(super) struct Failed {
    failure: Failure,
    /// What the change left, or may have left; `None` if nothing was changed.
    left: Option<String>,
}

impl Failed {
    /// A change that left something.
    pub(super) fn leaving(failure: Failure, left: impl Into<String>) -> Self {
        Self { failure, left: Some(left.into()) }
    }

    /// The failure, and what the change left.
    pub(super) fn into_parts(self) -> (Failure, Option<String>) {
        (self.failure, self.left)
    }
}

/// A change that changed nothing.
impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, left: None }
    }
}

/// Runs a change to its end, also if the client disconnects: a change that is dropped half-way would
/// neither be taken back nor recorded.
///
/// # Errors
/// Those of the change; the broker stops.
pub(super) async fn run_to_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    match spawn_in_request_context(change.in_current_span()).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(error) => Err(Failure::internal_error(&error)),
    }
}
