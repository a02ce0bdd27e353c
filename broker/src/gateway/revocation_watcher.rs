//! Revocation watcher: polls the database for suspended workspaces, ended sessions and revoked
//! credentials, and closes their requests and streams. The change may come from any replica.
//!
//! A poll asks for recent changes, not about each stream, so its cost does not grow with the number
//! of streams. Changes are handled idempotently, because polls overlap. Changes that are missed
//! because the clocks of replicas differ are found by [`super::reconcile`].

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use super::{Gateway, cancel::CloseReason};
use crate::{
    base::{
        clock::ticks,
        db::{OPERATION_TIMEOUT, within},
        error_chain,
    },
    on_engine,
    workspace::{NotificationReceiver, PendingAcks},
};

/// How often the database is polled.
const INTERVAL: Duration = Duration::from_millis(200);
/// How far each poll looks back, in milliseconds. Polls overlap because a change is stamped before
/// its transaction commits, and the clocks of replicas differ.
const OVERLAP_MS: i64 = 10_000;
/// The time limits of the watcher.
const TIMEOUTS: Timeouts = Timeouts { poll: OPERATION_TIMEOUT, database: Duration::from_mins(1) };

/// Whether there is any change for [`Gateway::close_changed`]. Mostly there is none, so a poll
/// costs one query.
const HAS_CHANGED: &str = "\
SELECT EXISTS (SELECT 1 FROM workspace_changes WHERE changed_at > $1) \
  OR EXISTS (SELECT 1 FROM session_ends WHERE ended_at > $1) \
  OR EXISTS (SELECT 1 FROM credential_revocations WHERE revoked_at > $1)";

/// Time limits of the watcher.
#[derive(Clone, Copy, Debug)]
struct Timeouts {
    /// How long one poll may take.
    poll: Duration,
    /// How long streams stay open while the database does not respond.
    database: Duration,
}

impl Timeouts {
    /// How long the next poll may take. It ends with the time that streams may stay open, and not
    /// after it.
    fn of_next_poll(self, since_success: Duration) -> Duration {
        let left = self.database.saturating_sub(since_success);
        if left.is_zero() { self.poll } else { self.poll.min(left) }
    }
}

impl Gateway {
    /// Polls until the task is aborted.
    pub(super) async fn watch_revocations(self, notifications: NotificationReceiver) {
        self.poll_revocations(notifications, TIMEOUTS).await;
    }

    async fn poll_revocations(self, mut notifications: NotificationReceiver, timeouts: Timeouts) {
        let mut ticks = ticks(INTERVAL);
        let mut checked_until = self.clock.now_ms();
        let mut last_success = Instant::now();
        loop {
            let pending = tokio::select! {
                _ = ticks.tick() => PendingAcks::default(),
                pending = notifications.recv() => pending,
            };
            let now = self.clock.now_ms();
            let poll = self.close_changed(checked_until - OVERLAP_MS);
            match within(timeouts.of_next_poll(last_success.elapsed()), poll).await {
                Ok(()) => {
                    (checked_until, last_success) = (now, Instant::now());
                    pending.acknowledge();
                }
                Err(error) => {
                    if last_success.elapsed() >= timeouts.database
                        && self.streams.close(CloseReason::DatabaseUnavailable, |_| true) > 0
                    {
                        tracing::error!(
                            error = error_chain(&error),
                            "streams closed because the database does not answer"
                        );
                    }
                }
            }
        }
    }

    async fn close_changed(&self, since: i64) -> sqlx::Result<()> {
        let has_changed: bool = on_engine!(self.db.reader(), pool =>
            sqlx::query_scalar(HAS_CHANGED).bind(since).fetch_one(pool).await)?;
        if !has_changed {
            return Ok(());
        }
        let workspaces: HashMap<Uuid, _> = self
            .workspaces
            .changed_since(since)
            .await?
            .into_iter()
            .map(|changed| (changed.id, changed))
            .collect();
        let sessions: HashSet<Uuid> = self.identity.ended_since(since).await?.into_iter().collect();
        let revoked: HashMap<String, Uuid> = self
            .credentials
            .revoked_since(since)
            .await?
            .into_iter()
            .map(|revoked| (revoked.credential_id, revoked.workspace_id))
            .collect();
        let affected: HashSet<Uuid> = revoked.values().copied().collect();
        self.principals
            .evict_if(&sessions, |id| workspaces.contains_key(&id) || affected.contains(&id));
        self.tokens.evict_if(|credential| revoked.contains_key(credential));
        let mut closed =
            self.streams.close(CloseReason::SessionEnded, |info| sessions.contains(&info.session));
        closed += self.streams.close(CloseReason::Revoked, |info| {
            info.credential.as_deref().is_some_and(|credential| revoked.contains_key(credential))
        });
        for (id, changed) in &workspaces {
            if changed.status() != WorkspaceStatus::Provisioned {
                self.tokens.remove_workspace(*id);
            }
        }
        let changed_workspace = |id: &Uuid| workspaces.get(id);
        closed += self.streams.close(CloseReason::Suspended, |info| {
            info.uses(|id| {
                changed_workspace(id)
                    .is_some_and(|changed| changed.status() != WorkspaceStatus::Provisioned)
            })
        });
        closed += self.streams.close(CloseReason::Revoked, |info| {
            changed_workspace(&info.workspace).is_some_and(|changed| {
                changed.service_account_uid.as_deref() != Some(&*info.service_account)
            }) || info.uses(|id| {
                // The suspension of a tenant takes away the ServiceAccounts of its members.
                changed_workspace(id).is_some_and(|changed| changed.service_account_uid.is_none())
            })
        });
        if closed > 0 {
            tracing::info!(streams = closed, "streams closed");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{SilentDatabase, stream_info},
        *,
    };
    use crate::workspace::notification_channel;

    #[tokio::test]
    async fn a_database_that_does_not_answer_at_all_closes_the_streams() {
        let silent = SilentDatabase::new("LOCK TABLE workspaces IN ACCESS EXCLUSIVE MODE").await;
        let stream = silent.gateway.streams.register(stream_info());
        let timeouts =
            Timeouts { poll: Duration::from_millis(200), database: Duration::from_secs(1) };
        let (_notifier, notifications) = notification_channel();
        let polls = silent.gateway.clone().poll_revocations(notifications, timeouts);
        let reason = tokio::time::timeout(Duration::from_secs(20), async {
            tokio::select! {
                () = polls => panic!("the polls ended"),
                reason = stream.cancel_handle().cancelled() => reason,
            }
        });
        assert_eq!(reason.await.expect("the stream is open"), CloseReason::DatabaseUnavailable);
    }

    #[test]
    fn no_poll_lasts_longer_than_streams_may_stay_open() {
        let seconds = Duration::from_secs;
        for (since_success, expected) in [(0, 15), (45, 15), (50, 10), (59, 1), (60, 15), (90, 15)]
        {
            let timeout = TIMEOUTS.of_next_poll(seconds(since_success));
            assert_eq!(timeout, seconds(expected), "after {since_success} s");
        }
    }
}
