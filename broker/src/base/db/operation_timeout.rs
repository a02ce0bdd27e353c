//! Timeouts of the client. Those of PostgreSQL (`statement_timeout` and others) do not apply if the
//! server hangs or the network drops its packets.

use std::{io, time::Duration};

use super::{ACQUIRE_TIMEOUT, STATEMENT_TIMEOUT};

/// How long one statement may take for the client: the wait for a connection and the longest
/// statement. The server's own timeouts are shorter, so it normally reports the error.
pub const OPERATION_TIMEOUT: Duration = ACQUIRE_TIMEOUT.saturating_add(STATEMENT_TIMEOUT);

/// Ends an operation that takes longer than `limit`.
///
/// # Errors
/// The error of the operation; [`sqlx::Error::Io`] with [`io::ErrorKind::TimedOut`] after `limit`.
pub async fn within<T>(
    limit: Duration,
    operation: impl Future<Output = sqlx::Result<T>>,
) -> sqlx::Result<T> {
    tokio::time::timeout(limit, operation).await.unwrap_or_else(|_| {
        let text = format!("the database did not answer within {limit:?}");
        Err(io::Error::new(io::ErrorKind::TimedOut, text).into())
    })
}
