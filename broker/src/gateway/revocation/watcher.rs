//! Revocation watcher: polls the database for suspended workspaces, ended sessions and revoked
//! credentials, and closes their requests and streams. The change may come from any replica.
//!
//! A poll asks for recent changes, not about each stream, so its cost does not grow with the number
//! of streams. Changes are handled idempotently, because polls overlap. Changes that are missed
//! because the clocks of replicas differ are found by [`super::reconcile`].

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use crate::{
    base::{
        clock::ticks,
        db::{OPERATION_TIMEOUT, within},
        error_chain,
    },
    gateway::{
        Gateway,
        in_flight::{CloseReason, StreamInfo},
    },
    on_engine,
    workspace::{NotificationReceiver, PendingAcks, WorkspaceStatusRow},
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
    pub(in crate::gateway) async fn watch_revocations(self, notifications: NotificationReceiver) {
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
        let workspaces = self.workspaces_changed_since(since).await?;
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
        let changed = Changed(&workspaces);
        let candidates: HashSet<_> = self
            .streams
            .open()
            .into_iter()
            .filter_map(|info| changed.close_reason(&info).map(|_| key(&info)))
            .collect();
        if !candidates.is_empty() {
            // A request may have started after the rows were read, with a ServiceAccount that is
            // newer than they are. Rows that are read after the list of streams tell: no workspace
            // returns to an earlier ServiceAccount.
            let workspaces = self.workspaces_changed_since(since).await?;
            let changed = Changed(&workspaces);
            for reason in [CloseReason::Suspended, CloseReason::Revoked] {
                closed += self.streams.close(reason, |info| {
                    candidates.contains(&key(info)) && changed.close_reason(info) == Some(reason)
                });
            }
        }
        if closed > 0 {
            tracing::info!(streams = closed, "streams closed");
        }
        Ok(())
    }

    async fn workspaces_changed_since(
        &self,
        since: i64,
    ) -> sqlx::Result<HashMap<Uuid, WorkspaceStatusRow>> {
        let changed = self.workspaces.changed_since(since).await?;
        Ok(changed.into_iter().map(|row| (row.id, row)).collect())
    }
}

/// The workspace of a request and the ServiceAccount that it is sent with.
fn key(info: &StreamInfo) -> (Uuid, Arc<str>) {
    (info.workspace, Arc::clone(&info.service_account))
}

/// Workspaces that changed, by id.
struct Changed<'a>(&'a HashMap<Uuid, WorkspaceStatusRow>);

impl Changed<'_> {
    /// Why a request has to be closed; `None` if no change concerns it.
    fn close_reason(&self, info: &StreamInfo) -> Option<CloseReason> {
        let is = |id: &Uuid, is_it: &dyn Fn(&WorkspaceStatusRow) -> bool| {
            self.0.get(id).is_some_and(is_it)
        };
        if info.uses(|id| is(id, &|row| row.status() != WorkspaceStatus::Provisioned)) {
            return Some(CloseReason::Suspended);
        }
        let is_replaced = is(&info.workspace, &|row| {
            row.service_account_uid.as_deref() != Some(&*info.service_account)
        });
        // The suspension of a tenant takes away the ServiceAccounts of its members.
        let is_removed = || info.uses(|id| is(id, &|row| row.service_account_uid.is_none()));
        (is_replaced || is_removed()).then_some(CloseReason::Revoked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        gateway::tests::{SilentDatabase, stream_info},
        testing::SA_UID,
        workspace::notification_channel,
    };

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
    fn a_request_is_closed_for_a_change_of_its_workspace() {
        let (provisioned, suspended) = (WorkspaceStatus::Provisioned, WorkspaceStatus::Suspended);
        for (status, uid, expected) in [
            (provisioned, Some(SA_UID), None),
            (provisioned, Some("another"), Some(CloseReason::Revoked)),
            (provisioned, None, Some(CloseReason::Revoked)),
            (suspended, Some(SA_UID), Some(CloseReason::Suspended)),
        ] {
            let id = stream_info().workspace;
            let row = WorkspaceStatusRow::for_tests(id, status, uid);
            let workspaces = HashMap::from([(id, row)]);
            assert_eq!(Changed(&workspaces).close_reason(&stream_info()), expected, "{uid:?}");
        }
        assert_eq!(Changed(&HashMap::new()).close_reason(&stream_info()), None);
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
