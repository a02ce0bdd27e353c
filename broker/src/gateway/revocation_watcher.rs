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
    base::{clock::ticks, error_chain},
    on_engine,
    workspace::{NotificationReceiver, PendingAcks},
};

/// How often the database is polled.
const INTERVAL: Duration = Duration::from_millis(200);
/// How far each poll looks back, in milliseconds. Polls overlap because a change is stamped before
/// its transaction commits, and the clocks of replicas differ.
const OVERLAP_MS: i64 = 10_000;
/// How long streams stay open while the database does not respond.
const DATABASE_TIMEOUT: Duration = Duration::from_mins(1);

/// Whether there is any change for [`Gateway::close_changed`]. Mostly there is none, so a poll
/// costs one query.
const HAS_CHANGED: &str = "\
SELECT EXISTS (SELECT 1 FROM workspace_changes WHERE changed_at > $1) \
  OR EXISTS (SELECT 1 FROM session_ends WHERE ended_at > $1) \
  OR EXISTS (SELECT 1 FROM credential_revocations WHERE revoked_at > $1)";

impl Gateway {
    /// Polls until the task is aborted.
    pub(super) async fn watch_revocations(self, mut notifications: NotificationReceiver) {
        let mut ticks = ticks(INTERVAL);
        let mut checked_until = self.clock.now_ms();
        let mut last_success = Instant::now();
        loop {
            let pending = tokio::select! {
                _ = ticks.tick() => PendingAcks::default(),
                pending = notifications.recv() => pending,
            };
            let now = self.clock.now_ms();
            match self.close_changed(checked_until - OVERLAP_MS).await {
                Ok(()) => {
                    (checked_until, last_success) = (now, Instant::now());
                    pending.acknowledge();
                }
                Err(error) => {
                    if last_success.elapsed() > DATABASE_TIMEOUT
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
            changed_workspace(&info.workspace)
                .is_some_and(|changed| changed.status() != WorkspaceStatus::Provisioned)
        });
        closed += self.streams.close(CloseReason::Revoked, |info| {
            changed_workspace(&info.workspace).is_some_and(|changed| {
                changed.service_account_uid.as_deref() != Some(&*info.service_account)
            })
        });
        if closed > 0 {
            tracing::info!(streams = closed, "streams closed");
        }
        Ok(())
    }
}
