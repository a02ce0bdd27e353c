//! Reconciliation of open streams with the state in the database. [`super::watcher`]
//! notices revocations sooner, but it relies on timestamps that other replicas wrote, so it can
//! miss some if clocks differ.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use tenant_shared::WorkspaceStatus;

use crate::{
    base::{
        clock::ticks,
        db::{OPERATION_TIMEOUT, within},
        error_chain,
    },
    gateway::{Gateway, in_flight::CloseReason},
};

/// How often open streams are reconciled.
const INTERVAL: Duration = Duration::from_secs(30);

impl Gateway {
    /// Reconciles streams until the task is aborted. It is a separate task because a replica with
    /// thousands of streams takes seconds, and the watcher must not wait for that.
    pub(in crate::gateway) async fn reconcile_streams(self) {
        let mut ticks = ticks(INTERVAL);
        loop {
            ticks.tick().await;
            self.tokens.evict_expired();
            self.principals.evict_expired();
            let started_at = Instant::now();
            match self.reconcile(OPERATION_TIMEOUT).await {
                Ok(0) => {}
                Ok(closed) => tracing::warn!(
                    streams = closed,
                    duration_ms = started_at.elapsed().as_millis(),
                    "streams closed that should have ended before; compare the clocks of the replicas"
                ),
                Err(error) => tracing::warn!(
                    error = error_chain(&error),
                    "reconciliation of open streams failed"
                ),
            }
        }
    }

    /// Closes all streams whose session, workspace, ServiceAccount or credential is no longer
    /// valid; returns how many the watcher should have closed before. Streams of an expired session
    /// do not count, because an expiry is not written to the database. The timeout applies to each
    /// statement, because their number grows with that of the streams.
    async fn reconcile(&self, timeout: Duration) -> sqlx::Result<usize> {
        // Read before the database: streams that start later are reconciled the next time.
        let open = self.streams.open();
        let sessions: HashSet<_> = open.iter().map(|info| info.session).collect();
        let mut ended = HashSet::new();
        for session in sessions {
            if !within(timeout, self.identity.is_alive(session)).await? {
                ended.insert(session);
            }
        }
        self.streams.close(CloseReason::SessionEnded, |info| ended.contains(&info.session));

        let workspaces: HashSet<_> =
            open.iter().map(|info| (info.workspace, info.service_account.clone())).collect();
        let (mut suspended, mut replaced) = (HashSet::new(), HashSet::new());
        for (id, service_account) in workspaces {
            match within(timeout, self.workspaces.current_status(id)).await? {
                Some(now) if now.status() == WorkspaceStatus::Provisioned => {
                    if now.service_account_uid.as_deref() != Some(&*service_account) {
                        replaced.insert((id, service_account));
                    }
                }
                _ => {
                    suspended.insert(id);
                    self.tokens.remove_workspace(id);
                }
            }
        }
        let mut closed =
            self.streams.close(CloseReason::Suspended, |info| suspended.contains(&info.workspace));
        let is_replaced = |workspace, account| replaced.contains(&(workspace, account));
        closed += self.streams.close(CloseReason::Revoked, |info| {
            is_replaced(info.workspace, info.service_account.clone())
        });

        let credentials: HashSet<_> = open.into_iter().filter_map(|info| info.credential).collect();
        let mut revoked = HashSet::new();
        for credential in credentials {
            if within(timeout, self.credentials.is_revoked(&credential)).await? {
                revoked.insert(credential);
            }
        }
        self.tokens.evict_if(|credential| revoked.contains(credential));
        closed += self.streams.close(CloseReason::Revoked, |info| {
            info.credential.as_ref().is_some_and(|credential| revoked.contains(credential))
        });
        Ok(closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::tests::{SilentDatabase, stream_info};

    #[tokio::test]
    async fn a_database_that_does_not_answer_at_all_fails_the_reconciliation() {
        let silent = SilentDatabase::new("LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE").await;
        let _stream = silent.gateway.streams.register(stream_info());
        let reconciled = silent.gateway.reconcile(Duration::from_millis(200));
        let result = tokio::time::timeout(Duration::from_secs(20), reconciled).await;
        let error = result.expect("it waits").unwrap_err();
        assert!(matches!(error, sqlx::Error::Io(_)), "{error}");
    }
}
