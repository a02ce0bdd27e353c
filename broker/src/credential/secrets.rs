//! Rows of the Secrets that tokens are bound to: from before a Secret is made until it is gone.
//!
//! The broker may not list Secrets, so what is made must be on record first: a crash in between
//! leaves a row without a Secret, never a Secret without a row.

use uuid::Uuid;

use crate::{
    cluster::TokenSecret,
    db::{Db, Tx},
    on_engine,
};

/// Secrets of one workspace at a time. They count against the namespace's quota of 200, which the
/// tenant needs too; credentials beyond are issued without.
const MOST_OF_ONE: i64 = 50;
/// How long it may take from the row to the token, in milliseconds.
const MAKING_MS: i64 = 5 * 60 * 1000;
/// How long a Secret that could not be deleted is left alone.
const PAUSE_MS: i64 = 60 * 1000;

/// A Secret that is about to be made.
#[derive(Clone, Debug)]
pub(super) struct New {
    pub(super) name: String,
    pub(super) workspace_id: Uuid,
    pub(super) now_ms: i64,
}

const ANNOUNCE: &str = "\
INSERT INTO credential_secrets (name, workspace_id, created_at, delete_at) \
SELECT $1, w.id, $3, $4 FROM workspaces w WHERE w.id = $2 \
  AND (SELECT COUNT(*) FROM credential_secrets s WHERE s.workspace_id = $2) < $5";

/// Writes it down; `false` if the workspace has enough of them.
pub(super) async fn announce(tx: &mut Tx, new: &New) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(ANNOUNCE)
        .bind(&new.name).bind(new.workspace_id).bind(new.now_ms).bind(new.now_ms + MAKING_MS)
        .bind(MOST_OF_ONE)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

const KEEP: &str = "\
UPDATE credential_secrets SET uid = $2, credential_id = $3, delete_at = $4 WHERE name = $1";

/// The token of this credential is bound to it: it stays until then.
pub(super) async fn keep(
    tx: &mut Tx,
    secret: &TokenSecret,
    credential_id: &str,
    until_ms: i64,
) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(KEEP)
        .bind(&secret.name).bind(&secret.uid).bind(credential_id).bind(until_ms)
        .execute(c).await.map(drop))
}

const DUE_ONE: &str = "UPDATE credential_secrets SET delete_at = $2 WHERE name = $1";

/// It has to go now.
pub(super) async fn due_now(tx: &mut Tx, name: &str, now: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(DUE_ONE)
        .bind(name).bind(now).execute(c).await.map(drop))
}

const DUE_ALL: &str = "\
UPDATE credential_secrets SET delete_at = $2 WHERE workspace_id = $1 AND uid IS NOT NULL";

/// All that tokens of a workspace are bound to have to go now. One that is being made goes by itself.
pub(super) async fn all_due_now(tx: &mut Tx, workspace: Uuid, now: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(DUE_ALL)
        .bind(workspace).bind(now).execute(c).await.map(drop))
}

/// A Secret that has to go.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct Due {
    pub(super) name: String,
    pub(super) workspace_id: Uuid,
    pub(super) namespace: String,
    pub(super) uid: Option<String>,
    pub(super) created_at: i64,
    /// The credential that is bound to it, if it was revoked.
    pub(super) revoked: Option<String>,
}

const SELECT: &str = "\
SELECT s.name, s.workspace_id, w.k8s_namespace AS namespace, s.uid, s.created_at, \
  c.credential_id AS revoked \
FROM credential_secrets s JOIN workspaces w ON w.id = s.workspace_id \
LEFT JOIN issued_credentials c ON c.credential_id = s.credential_id \
  AND c.secret_name = s.name AND c.revoked_with = c.credential_id \
WHERE s.delete_at <= $1 AND ($2 = '' OR s.name = $2) ORDER BY s.delete_at, s.name LIMIT $3";

/// What has to go by now, the longest due first.
pub(super) async fn due(db: &Db, now: i64, most: u32) -> sqlx::Result<Vec<Due>> {
    on_engine!(db.reader(), pool => sqlx::query_as(SELECT)
        .bind(now).bind("").bind(i64::from(most)).fetch_all(pool).await)
}

/// The Secret of this name, if it has to go by now and is not gone.
pub(super) async fn due_one(db: &Db, name: &str, now: i64) -> sqlx::Result<Option<Due>> {
    on_engine!(db.reader(), pool => sqlx::query_as(SELECT)
        .bind(now).bind(name).bind(1_i64).fetch_optional(pool).await)
}

const FORGET: &str = "DELETE FROM credential_secrets WHERE name = $1";

/// It is gone; `false` if somebody else said so first.
pub(super) async fn forget(tx: &mut Tx, name: &str) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(FORGET)
        .bind(name).execute(c).await.map(|done| done.rows_affected() == 1))
}

/// It could not be deleted: others come first.
pub(super) async fn postpone(tx: &mut Tx, name: &str, now: i64) -> sqlx::Result<()> {
    due_now(tx, name, now + PAUSE_MS).await
}
