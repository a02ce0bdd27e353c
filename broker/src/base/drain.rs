//! The end of tasks in flight when the broker stops.

use std::time::Duration;

use tokio_util::task::TaskTracker;

/// Waits until the tracked tasks have ended or the time is over. Returns the number of those still in
/// flight then.
pub(crate) async fn drain(tasks: &TaskTracker, timeout: Duration) -> usize {
    tasks.close();
    match tokio::time::timeout(timeout, tasks.wait()).await {
        Ok(()) => 0,
        Err(_) => tasks.len(),
    }
}
