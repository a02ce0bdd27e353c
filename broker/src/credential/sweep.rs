//! Deleting the Secrets of tokens that are over or revoked.

use tokio::task::JoinSet;

use super::{
    Credentials,
    secrets::{self, Due},
};
use crate::{cluster::ClusterError, problem::chain};

/// Secrets that one round takes.
const MOST_SWEPT: u32 = 1000;
/// Deletions at once.
const AT_ONCE: usize = 8;
/// A Secret that cannot be deleted for so long is not ours any more, in milliseconds.
const GIVE_UP_MS: i64 = 24 * 60 * 60 * 1000;

impl Credentials {
    /// Deletes what has to go. Several replicas may do it at once. Returns how many Secrets are
    /// gone.
    ///
    /// # Errors
    /// The database's.
    pub async fn sweep(&self) -> sqlx::Result<usize> {
        let due = secrets::due(&self.db, self.clock.now_ms(), MOST_SWEPT).await?;
        let mut gone = 0;
        for some in due.chunks(AT_ONCE) {
            let mut tasks = JoinSet::new();
            for due in some {
                let (credentials, due) = (self.clone(), due.clone());
                tasks.spawn(async move { credentials.sweep_one(&due).await });
            }
            let mut away = false;
            for swept in tasks.join_all().await {
                match swept? {
                    Swept::Gone => gone += 1,
                    Swept::Left => {}
                    Swept::Away => away = true,
                }
            }
            if away {
                tracing::warn!(left = due.len() - gone, "Secrets of tokens wait for the cluster");
                break;
            }
        }
        Ok(gone)
    }

    async fn sweep_one(&self, due: &Due) -> sqlx::Result<Swept> {
        let error = match self.delete_secret(due).await {
            Ok(()) => {
                self.secret_gone(due).await?;
                return Ok(Swept::Gone);
            }
            Err(ClusterError::Unavailable(_)) => return Ok(Swept::Away),
            Err(error) => error,
        };
        tracing::warn!(
            workspace = %due.workspace_id, secret = due.name, error = chain(&error),
            "the Secret of a token cannot be deleted"
        );
        if let Some(credential_id) = &due.revoked {
            self.rotate_instead(due.workspace_id, credential_id).await?;
        }
        let now = self.clock.now_ms();
        let mut tx = self.db.begin().await?;
        if due.created_at + GIVE_UP_MS <= now {
            secrets::forget(&mut tx, &due.name).await?;
        } else {
            secrets::postpone(&mut tx, &due.name, now).await?;
        }
        tx.commit().await?;
        Ok(Swept::Left)
    }
}

enum Swept {
    Gone,
    /// It cannot be deleted now.
    Left,
    /// The cluster does not answer.
    Away,
}
