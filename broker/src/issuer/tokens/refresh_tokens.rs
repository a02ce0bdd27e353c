//! SQL on `refresh_tokens`.

use uuid::Uuid;

use crate::{
    base::{
        db::{Db, Tx},
        secret::SecretHash,
    },
    on_engine,
};

/// Prefix of every refresh token.
pub(in crate::issuer) const PREFIX: &str = "tbr_";

const INSERT: &str = "\
INSERT INTO refresh_tokens (token_hash, session_id, issued_at, parent_hash) \
VALUES ($1, $2, $3, $4)";

/// Inserts a refresh token, as a successor of `parent` unless it is the first of its session.
pub(in crate::issuer) async fn insert(
    tx: &mut Tx,
    token: SecretHash,
    session_id: Uuid,
    parent: Option<SecretHash>,
    now: i64,
) -> sqlx::Result<()> {
    let parent = parent.as_ref().map(SecretHash::as_bytes);
    on_engine!(tx.connection(), c => sqlx::query(INSERT)
        .bind(token.as_bytes()).bind(session_id).bind(now).bind(parent)
        .execute(c).await.map(drop))
}

const FIND_SESSION: &str = "SELECT session_id FROM refresh_tokens WHERE token_hash = $1";

/// Finds the session of a refresh token, used or not.
pub(in crate::issuer) async fn find_session(
    db: &Db,
    token: SecretHash,
) -> sqlx::Result<Option<Uuid>> {
    on_engine!(db.reader(), pool => sqlx::query_scalar(FIND_SESSION)
        .bind(token.as_bytes()).fetch_optional(pool).await)
}

const DELETE_ENDED: &str = "\
DELETE FROM refresh_tokens WHERE session_id IN (SELECT session_id FROM user_sessions \
  WHERE ended_at <= $1 OR idle_expires_at <= $1 OR expires_at <= $1)";

/// Deletes the tokens of sessions that had ended by this time.
pub(in crate::issuer) async fn delete_ended(tx: &mut Tx, before: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(DELETE_ENDED)
        .bind(before).execute(c).await.map(drop))
}
