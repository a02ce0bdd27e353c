//! The sweep of Secrets: it deletes the Secrets of expired and revoked tokens.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{
    Credentials,
    secrets::{self, DueSecret},
};
use crate::{base::error_chain, cluster::ClusterError};

/// Maximum number of Secrets in one round.
const MAX_BATCH: u32 = 1000;
/// Deletions that run concurrently.
const MAX_CONCURRENT: usize = 8;
/// How long a round starts deletions, so that a slow cluster does not keep the next round from the
/// Secrets that became due meanwhile.
const ROUND_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval until the deletion of a Secret is retried for which the cluster was unavailable, in
/// milliseconds.
const UNAVAILABLE_RETRY_MS: i64 = 5_000;
/// Age at which a Secret that cannot be deleted is given up, in milliseconds: its tokens expired
/// long ago.
const GIVE_UP_AFTER_MS: i64 = 24 * 60 * 60 * 1000;

impl Credentials {
    /// Deletes the Secrets that are due, the longest due first. A Secret that cannot be deleted is
    /// due again later, so that it keeps no other one waiting. Several replicas may sweep
    /// concurrently. Returns how many Secrets were deleted.
    ///
    /// # Errors
    /// The database failed.
    pub async fn sweep(&self) -> sqlx::Result<usize> {
        let due = secrets::due(&self.db, self.clock.now_ms(), MAX_BATCH).await?;
        let began = Instant::now();
        let mut gone = 0;
        for some in due.chunks(MAX_CONCURRENT) {
            if began.elapsed() >= ROUND_TIMEOUT {
                break;
            }
            let mut tasks = JoinSet::new();
            for due in some {
                let (credentials, due) = (self.clone(), due.clone());
                tasks.spawn(async move { credentials.sweep_one(&due).await });
            }
            let mut unavailable = 0;
            for swept in tasks.join_all().await {
                match swept? {
                    SecretSweep::Deleted => gone += 1,
                    SecretSweep::Postponed => {}
                    SecretSweep::ClusterUnavailable => unavailable += 1,
                }
            }
            // One namespace may be at fault, for example by an admission webhook.
            if unavailable == some.len() {
                tracing::warn!(
                    left = due.len() - gone,
                    "sweep of Secrets stopped: the cluster does not answer"
                );
                break;
            }
        }
        Ok(gone)
    }

    async fn sweep_one(&self, due: &DueSecret) -> sqlx::Result<SecretSweep> {
        let error = match self.delete_secret(due).await {
            Ok(()) => {
                self.record_secret_deletion(due).await?;
                return Ok(SecretSweep::Deleted);
            }
            Err(ClusterError::Unavailable(_) | ClusterError::NotConfigured(_)) => {
                let mut tx = self.db.begin().await?;
                let again_at = self.clock.now_ms() + UNAVAILABLE_RETRY_MS;
                secrets::mark_due(&mut tx, &due.name, again_at).await?;
                tx.commit().await?;
                return Ok(SecretSweep::ClusterUnavailable);
            }
            Err(error) => error,
        };
        tracing::warn!(
            workspace_id = %due.workspace_id, secret = due.name, error = error_chain(&error),
            "cannot delete the Secret of a token"
        );
        if let Some(credential_id) = &due.revoked {
            self.fall_back_to_rotation(due.workspace_id, credential_id).await?;
        }
        let now = self.clock.now_ms();
        let mut tx = self.db.begin().await?;
        if due.created_at + GIVE_UP_AFTER_MS <= now {
            secrets::delete(&mut tx, &due.name).await?;
        } else {
            secrets::postpone(&mut tx, &due.name, now).await?;
        }
        tx.commit().await?;
        Ok(SecretSweep::Postponed)
    }
}

/// Result of the sweep of one Secret.
enum SecretSweep {
    Deleted,
    /// The Secret cannot be deleted; the deletion is retried later or given up.
    Postponed,
    /// The cluster does not answer; the deletion is retried soon.
    ClusterUnavailable,
}
