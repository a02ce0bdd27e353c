//! The ledger: which credential left, for whom, until when. Never the credential.
//!
//! Every issuance waits until its rows are durable. Rows of issuances that wait at the same time
//! share one transaction, so that the cost of durability is paid once for all of them.

#[cfg(test)]
mod tests;

use tenant_shared::CredentialKind;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::{OUTLIVES_MS, secrets};
use crate::{audit, cluster::TokenSecret, db::Db, db::Tx, on_engine};

/// Issuances that may wait; more are turned away at once rather than late.
const MOST_WAITING: usize = 1024;
/// Issuances of one transaction.
const MOST_TOGETHER: usize = 64;

/// One issuance.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) credential_id: String,
    pub(super) workspace_id: Uuid,
    pub(super) user_id: Uuid,
    pub(super) session_id: Uuid,
    pub(super) kind: CredentialKind,
    /// The uid of the ServiceAccount that it was asked of.
    pub(super) service_account_uid: String,
    /// The Secret that it is bound to.
    pub(super) secret: Option<TokenSecret>,
    pub(super) issued_at_ms: i64,
    pub(super) expires_at_ms: i64,
    pub(super) event: audit::Stamped,
}

/// The issuance is not on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRecorded {
    /// The database failed.
    #[error("the issuance could not be recorded; the token was dropped")]
    Failed,
    /// The workspace was suspended, or its ServiceAccount retired, since it was looked at.
    #[error("the workspace changed meanwhile; the token was dropped")]
    Changed,
}

/// What waits for the writer.
#[derive(Debug)]
enum Job {
    Issuance(Box<Entry>),
    /// A Secret is about to be made.
    Secret(secrets::New),
}

type Waiting = (Job, oneshot::Sender<bool>);

/// The writing end of the ledger. Clones share one writer.
#[derive(Clone, Debug)]
pub struct Ledger {
    writer: mpsc::Sender<Waiting>,
}

impl Ledger {
    /// Starts the writer; it ends when the last clone is dropped.
    pub fn start(db: Db) -> Self {
        let (writer, jobs) = mpsc::channel(MOST_WAITING);
        tokio::spawn(write(db, jobs));
        Self { writer }
    }

    /// Records an issuance; returns once it is durable.
    ///
    /// # Errors
    /// It is not.
    pub(super) async fn record(&self, entry: Entry) -> Result<(), NotRecorded> {
        if self.write(Job::Issuance(Box::new(entry))).await? {
            Ok(())
        } else {
            Err(NotRecorded::Changed)
        }
    }

    /// Writes down that a Secret is about to be made, so that it will be found; `false` if the
    /// workspace has enough of them.
    ///
    /// # Errors
    /// The database's.
    pub(super) async fn announce(&self, secret: secrets::New) -> Result<bool, NotRecorded> {
        self.write(Job::Secret(secret)).await
    }

    async fn write(&self, job: Job) -> Result<bool, NotRecorded> {
        let (done, recorded) = oneshot::channel();
        self.writer.try_send((job, done)).map_err(|_| NotRecorded::Failed)?;
        recorded.await.map_err(|_| NotRecorded::Failed)
    }
}

async fn write(db: Db, mut jobs: mpsc::Receiver<Waiting>) {
    let mut batch = Vec::with_capacity(MOST_TOGETHER);
    while jobs.recv_many(&mut batch, MOST_TOGETHER).await > 0 {
        match commit(&db, &batch).await {
            Ok(results) => {
                for ((_, done), result) in batch.drain(..).zip(results) {
                    // Whoever waited may have gone; the row stands, which errs on the safe side.
                    let _ = done.send(result);
                }
            }
            Err(error) => {
                if matches!(error, sqlx::Error::PoolTimedOut) {
                    // Whoever came meanwhile would wait as long again, batch after batch.
                    while let Ok(waiting) = jobs.try_recv() {
                        batch.push(waiting);
                    }
                }
                tracing::error!(
                    issuances = batch.len(),
                    error = crate::problem::chain(&error),
                    "issuances could not be recorded; their tokens are dropped"
                );
                // Dropping the senders tells those who wait.
                batch.clear();
            }
        }
    }
}

/// Does all of it or nothing; says of each whether it was allowed.
async fn commit(db: &Db, batch: &[Waiting]) -> sqlx::Result<Vec<bool>> {
    let mut tx = db.begin().await?;
    let mut results = Vec::with_capacity(batch.len());
    for (job, _) in batch {
        results.push(match job {
            Job::Issuance(entry) => issuance(&mut tx, entry).await?,
            Job::Secret(new) => secrets::announce(&mut tx, new).await?,
        });
    }
    tx.commit().await?;
    Ok(results)
}

async fn issuance(tx: &mut Tx, entry: &Entry) -> sqlx::Result<bool> {
    if !insert(tx, entry).await? {
        return Ok(false);
    }
    if let Some(secret) = &entry.secret {
        let until_ms = entry.expires_at_ms + OUTLIVES_MS;
        secrets::keep(tx, secret, &entry.credential_id, until_ms).await?;
    }
    audit::record_stamped(tx, &entry.event).await?;
    Ok(true)
}

/// Nothing is inserted for a workspace that was suspended, or whose ServiceAccount was retired, since
/// it was looked at. A transaction that is about to do so may be missed here; its credential is dead
/// all the same, for the ServiceAccount that it names goes.
const INSERT: &str = "\
INSERT INTO issued_credentials (credential_id, workspace_id, session_id, issued_at, expires_at, \
  kind, user_id, service_account_uid, secret_name) \
SELECT $1, w.id, $3, $4, $5, $6, $7, w.k8s_sa_uid, $8 FROM workspaces w \
WHERE w.id = $2 AND w.k8s_sa_uid = $9 AND w.status = 'provisioned'";

async fn insert(tx: &mut Tx, entry: &Entry) -> sqlx::Result<bool> {
    let secret = entry.secret.as_ref().map(|secret| secret.name.as_str());
    on_engine!(tx.connection(), c => sqlx::query(INSERT)
        .bind(&entry.credential_id).bind(entry.workspace_id).bind(entry.session_id)
        .bind(entry.issued_at_ms).bind(entry.expires_at_ms)
        .bind(entry.kind.as_str()).bind(entry.user_id).bind(secret)
        .bind(&entry.service_account_uid)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}
