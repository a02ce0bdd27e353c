//! Table `credential_secrets`: the Secrets that tokens are bound to. A row exists from before its
//! Secret is created until the Secret is deleted.
//!
//! The broker may not list Secrets, so a Secret is recorded before it is created: a crash in
//! between leaves a row without a Secret, never a Secret without a row.

use uuid::Uuid;

use crate::{
    base::db::{Db, Tx},
    cluster::TokenSecret,
    on_engine,
};

/// Maximum number of Secrets of one workspace. They count against the namespace's quota of 200,
/// which the tenant needs too. Further credentials are issued without a Secret.
const MAX_PER_WORKSPACE: i64 = 50;
/// How long it may take from the reservation to the recorded token, in milliseconds. After that the
/// Secret is due for deletion.
const CREATION_TIMEOUT_MS: i64 = 5 * 60 * 1000;
/// Interval until the deletion of a Secret is retried, in milliseconds.
const RETRY_INTERVAL_MS: i64 = 60 * 1000;

/// A Secret that is about to be created.
#[derive(Clone, Debug)]
pub(super) struct NewSecret {
    pub(super) name: String,
    pub(super) workspace_id: Uuid,
    pub(super) now_ms: i64,
}

const RESERVE: &str = "\
INSERT INTO credential_secrets (name, workspace_id, created_at, delete_at) \
SELECT $1, m.workspace_id, $3, $4 FROM workspace_members m WHERE m.workspace_id = $2 \
  AND (SELECT COUNT(*) FROM credential_secrets s WHERE s.workspace_id = $2) < $5";

/// Inserts the row of a new Secret; `false` if the workspace has the maximum number of Secrets.
pub(super) async fn reserve_secret(tx: &mut Tx, new: &NewSecret) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(RESERVE)
        .bind(&new.name).bind(new.workspace_id).bind(new.now_ms)
        .bind(new.now_ms + CREATION_TIMEOUT_MS).bind(MAX_PER_WORKSPACE)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

const ATTACH: &str = "\
UPDATE credential_secrets SET uid = $2, credential_id = $3, delete_at = $4 WHERE name = $1";

/// Stores that the token of this credential is bound to the Secret, which stays until `until_ms`.
pub(super) async fn attach_secret(
    tx: &mut Tx,
    secret: &TokenSecret,
    credential_id: &str,
    until_ms: i64,
) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(ATTACH)
        .bind(&secret.name).bind(&secret.uid).bind(credential_id).bind(until_ms)
        .execute(c).await.map(drop))
}

const MARK_DUE: &str = "UPDATE credential_secrets SET delete_at = $2 WHERE name = $1";

/// Makes a Secret due for deletion at this time.
pub(super) async fn mark_due(tx: &mut Tx, name: &str, now: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(MARK_DUE)
        .bind(name).bind(now).execute(c).await.map(drop))
}

const MARK_ALL_DUE: &str = "\
UPDATE credential_secrets SET delete_at = $2 WHERE workspace_id = $1 AND uid IS NOT NULL";

/// Makes all Secrets of a workspace due now, except those that are being created: they become due
/// after [`CREATION_TIMEOUT_MS`].
pub(super) async fn mark_all_due(tx: &mut Tx, workspace: Uuid, now: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(MARK_ALL_DUE)
        .bind(workspace).bind(now).execute(c).await.map(drop))
}

/// A Secret that is due for deletion.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct DueSecret {
    pub(super) name: String,
    pub(super) workspace_id: Uuid,
    /// Name of the cluster that the namespace is in.
    pub(super) cluster: String,
    pub(super) namespace: String,
    pub(super) uid: Option<String>,
    pub(super) created_at: i64,
    /// The credential that is bound to it, if it was revoked.
    pub(super) revoked: Option<String>,
}

const SELECT: &str = "\
SELECT s.name, s.workspace_id, m.cluster, m.namespace, s.uid, s.created_at, \
  c.credential_id AS revoked \
FROM credential_secrets s JOIN workspace_members m ON m.workspace_id = s.workspace_id \
LEFT JOIN issued_credentials c ON c.credential_id = s.credential_id \
  AND c.secret_name = s.name AND c.revoked_with = c.credential_id \
WHERE s.delete_at <= $1 AND ($2 = '' OR s.name = $2) ORDER BY s.delete_at, s.name LIMIT $3";

/// The Secrets that are due now, the longest due first.
pub(super) async fn due(db: &Db, now: i64, most: u32) -> sqlx::Result<Vec<DueSecret>> {
    on_engine!(db.reader(), pool => sqlx::query_as(SELECT)
        .bind(now).bind("").bind(i64::from(most)).fetch_all(pool).await)
}

/// The Secret of this name, if it is due now and its row still exists.
pub(super) async fn due_by_name(db: &Db, name: &str, now: i64) -> sqlx::Result<Option<DueSecret>> {
    on_engine!(db.reader(), pool => sqlx::query_as(SELECT)
        .bind(now).bind(name).bind(1_i64).fetch_optional(pool).await)
}

const DELETE: &str = "DELETE FROM credential_secrets WHERE name = $1";

/// Deletes the row of a deleted Secret; `false` if another replica did so first.
pub(super) async fn delete(tx: &mut Tx, name: &str) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(DELETE)
        .bind(name).execute(c).await.map(|done| done.rows_affected() == 1))
}

/// Postpones the deletion of a Secret that could not be deleted, so that others come first.
pub(super) async fn postpone(tx: &mut Tx, name: &str, now: i64) -> sqlx::Result<()> {
    mark_due(tx, name, now + RETRY_INTERVAL_MS).await
}
