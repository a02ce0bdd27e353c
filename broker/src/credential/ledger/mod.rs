//! The ledger: a record of every issued credential with its user, its session and its expiry. It
//! never contains the credential itself.
//!
//! Every issuance waits until its rows are durable. Issuances that wait at the same time share one
//! transaction (group commit), so that the cost of durability is paid once for all of them.

#[cfg(test)]
mod tests;

use tenant_shared::CredentialKind;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::{TOKEN_GRACE_MS, secrets};
use crate::{
    audit,
    base::db::{Db, Tx},
    cluster::TokenSecret,
    on_engine,
};

/// Maximum number of queued jobs. More are rejected at once, instead of after a long wait.
const MAX_QUEUED: usize = 1024;
/// Maximum number of jobs in one transaction.
const MAX_BATCH: usize = 64;

/// An issuance to record.
#[derive(Debug)]
pub(super) struct LedgerEntry {
    pub(super) credential_id: String,
    pub(super) workspace_id: Uuid,
    pub(super) user_id: Uuid,
    pub(super) session_id: Uuid,
    pub(super) kind: CredentialKind,
    /// Uid of the ServiceAccount that the token was requested for.
    pub(super) service_account_uid: String,
    /// The Secret that the token is bound to.
    pub(super) secret: Option<TokenSecret>,
    pub(super) issued_at_ms: i64,
    pub(super) expires_at_ms: i64,
    pub(super) event: audit::StampedEvent,
}

/// Error of recording an issuance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRecorded {
    /// The database failed.
    #[error("the issuance could not be recorded; the token was dropped")]
    Failed,
    /// The workspace was suspended, or its ServiceAccount was retired, since its row was read.
    #[error("the workspace changed meanwhile; the token was dropped")]
    Changed,
}

/// A job for the writer.
#[derive(Debug)]
enum Job {
    Issuance(Box<LedgerEntry>),
    /// Reserve a Secret before it is created.
    Secret(secrets::NewSecret),
}

type PendingJob = (Job, oneshot::Sender<bool>);

/// The writing end of the ledger. Clones share one writer.
#[derive(Clone, Debug)]
pub struct Ledger {
    writer: mpsc::Sender<PendingJob>,
}

impl Ledger {
    /// Starts the writer; it ends when the last clone is dropped.
    pub fn start(db: Db) -> Self {
        let (writer, jobs) = mpsc::channel(MAX_QUEUED);
        tokio::spawn(run_writer(db, jobs));
        Self { writer }
    }

    /// Waits until the writer has ended because its task panicked.
    pub(super) async fn writer_ended(&self) {
        self.writer.closed().await;
    }

    /// Records an issuance; returns once it is durable.
    ///
    /// # Errors
    /// The issuance is not recorded.
    pub(super) async fn record(&self, entry: LedgerEntry) -> Result<(), NotRecorded> {
        if self.submit(Job::Issuance(Box::new(entry))).await? {
            Ok(())
        } else {
            Err(NotRecorded::Changed)
        }
    }

    /// Records the name of a Secret before it is created, so that the sweep finds it after a crash;
    /// `false` if the workspace has the maximum number of Secrets.
    ///
    /// # Errors
    /// The database failed.
    pub(super) async fn reserve_secret(
        &self,
        secret: secrets::NewSecret,
    ) -> Result<bool, NotRecorded> {
        self.submit(Job::Secret(secret)).await
    }

    async fn submit(&self, job: Job) -> Result<bool, NotRecorded> {
        let (done, recorded) = oneshot::channel();
        self.writer.try_send((job, done)).map_err(|_| NotRecorded::Failed)?;
        recorded.await.map_err(|_| NotRecorded::Failed)
    }
}

async fn run_writer(db: Db, mut jobs: mpsc::Receiver<PendingJob>) {
    let mut batch = Vec::with_capacity(MAX_BATCH);
    while jobs.recv_many(&mut batch, MAX_BATCH).await > 0 {
        match commit(&db, &batch).await {
            Ok(results) => {
                for ((_, done), result) in batch.drain(..).zip(results) {
                    // The caller may be gone. The row stays, which is the safe side.
                    let _ = done.send(result);
                }
            }
            Err(error) => {
                if matches!(error, sqlx::Error::PoolTimedOut) {
                    // Fail the jobs that were queued meanwhile too; otherwise each batch of them
                    // would wait for the same timeout again.
                    while let Ok(waiting) = jobs.try_recv() {
                        batch.push(waiting);
                    }
                }
                tracing::error!(
                    issuances = batch.len(),
                    error = crate::base::error_chain(&error),
                    "issuances could not be recorded; their tokens are dropped"
                );
                // Dropping the senders makes the callers fail.
                batch.clear();
            }
        }
    }
}

/// Runs a batch in one transaction. Returns of each job whether it was accepted.
async fn commit(db: &Db, batch: &[PendingJob]) -> sqlx::Result<Vec<bool>> {
    let mut tx = db.begin().await?;
    let mut results = Vec::with_capacity(batch.len());
    for (job, _) in batch {
        results.push(match job {
            Job::Issuance(entry) => record_issuance(&mut tx, entry).await?,
            Job::Secret(new) => secrets::reserve_secret(&mut tx, new).await?,
        });
    }
    tx.commit().await?;
    Ok(results)
}

async fn record_issuance(tx: &mut Tx, entry: &LedgerEntry) -> sqlx::Result<bool> {
    if !insert(tx, entry).await? {
        return Ok(false);
    }
    if let Some(secret) = &entry.secret {
        let until_ms = entry.expires_at_ms + TOKEN_GRACE_MS;
        secrets::attach_secret(tx, secret, &entry.credential_id, until_ms).await?;
    }
    audit::record_stamped(tx, &entry.event).await?;
    Ok(true)
}

/// Inserts nothing for a workspace that was suspended, or whose ServiceAccount was retired, since
/// its row was read. The statement may miss a concurrent transaction that does so; the credential
/// is invalid all the same, because the ServiceAccount that it names will be deleted.
const INSERT: &str = "\
INSERT INTO issued_credentials (credential_id, workspace_id, session_id, issued_at, expires_at, \
  kind, user_id, service_account_uid, secret_name) \
SELECT $1, a.workspace_id, $3, $4, $5, $6, $7, a.uid, $8 FROM active_service_accounts a \
WHERE a.workspace_id = $2 AND a.uid = $9";

async fn insert(tx: &mut Tx, entry: &LedgerEntry) -> sqlx::Result<bool> {
    let secret = entry.secret.as_ref().map(|secret| secret.name.as_str());
    on_engine!(tx.connection(), c => sqlx::query(INSERT)
        .bind(&entry.credential_id).bind(entry.workspace_id).bind(entry.session_id)
        .bind(entry.issued_at_ms).bind(entry.expires_at_ms)
        .bind(entry.kind.as_str()).bind(entry.user_id).bind(secret)
        .bind(&entry.service_account_uid)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}
