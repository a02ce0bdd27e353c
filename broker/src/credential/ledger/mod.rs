//! The ledger: which credential left, for whom, until when. Never the credential.
//!
//! Every issuance waits until its rows are durable. Rows of issuances that wait at the same time
//! share one transaction, so that the cost of durability is paid once for all of them.

#[cfg(test)]
mod tests;

use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::{audit, db::Db, db::Tx, on_engine};

/// Issuances that may wait; more are turned away at once rather than late.
const MOST_WAITING: usize = 1024;
/// Issuances of one transaction.
const MOST_TOGETHER: usize = 64;

/// One issuance.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) credential_id: String,
    pub(super) workspace_id: Uuid,
    pub(super) session_id: Uuid,
    pub(super) issued_at_ms: i64,
    pub(super) expires_at_ms: i64,
    pub(super) event: audit::Stamped,
}

/// The issuance is not on record.
#[derive(Debug, thiserror::Error)]
#[error("the issuance could not be recorded; the token was dropped")]
pub struct NotRecorded;

type Waiting = (Entry, oneshot::Sender<()>);

/// The writing end of the ledger. Clones share one writer.
#[derive(Clone, Debug)]
pub struct Ledger {
    writer: mpsc::Sender<Waiting>,
}

impl Ledger {
    /// Starts the writer; it ends when the last clone is dropped.
    pub fn start(db: Db) -> Self {
        let (writer, entries) = mpsc::channel(MOST_WAITING);
        tokio::spawn(write(db, entries));
        Self { writer }
    }

    /// Records an issuance; returns once it is durable.
    ///
    /// # Errors
    /// It is not.
    pub(super) async fn record(&self, entry: Entry) -> Result<(), NotRecorded> {
        let (done, recorded) = oneshot::channel();
        self.writer.try_send((entry, done)).map_err(|_| NotRecorded)?;
        recorded.await.map_err(|_| NotRecorded)
    }
}

async fn write(db: Db, mut entries: mpsc::Receiver<Waiting>) {
    let mut batch = Vec::with_capacity(MOST_TOGETHER);
    while entries.recv_many(&mut batch, MOST_TOGETHER).await > 0 {
        match commit(&db, &batch).await {
            Ok(()) => {
                for (_, done) in batch.drain(..) {
                    // Whoever waited may have gone; the row stands, which errs on the safe side.
                    let _ = done.send(());
                }
            }
            Err(error) => {
                if matches!(error, sqlx::Error::PoolTimedOut) {
                    // Whoever came meanwhile would wait as long again, batch after batch.
                    while let Ok(waiting) = entries.try_recv() {
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

async fn commit(db: &Db, batch: &[Waiting]) -> sqlx::Result<()> {
    let mut tx = db.begin().await?;
    for (entry, _) in batch {
        insert(&mut tx, entry).await?;
        audit::record_stamped(&mut tx, &entry.event).await?;
    }
    tx.commit().await
}

const INSERT: &str = "\
INSERT INTO issued_credentials (credential_id, workspace_id, session_id, issued_at, expires_at) \
VALUES ($1, $2, $3, $4, $5)";

async fn insert(tx: &mut Tx, entry: &Entry) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(INSERT)
        .bind(&entry.credential_id).bind(entry.workspace_id).bind(entry.session_id)
        .bind(entry.issued_at_ms).bind(entry.expires_at_ms)
        .execute(c).await.map(drop))
}
