//! Table `issued_credentials`: reading the ledger's rows and marking them as revoked.

use tenant_shared::{CredentialInfo, CredentialKind, CredentialState};
use uuid::Uuid;

use crate::{
    base::{
        clock::timestamp,
        db::{Db, Tx},
    },
    on_engine,
};

/// A credential of the ledger.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct CredentialRecord {
    pub(super) credential_id: String,
    pub(super) workspace_id: Uuid,
    kind: String,
    user_id: Uuid,
    email: Option<String>,
    session_id: Uuid,
    client_id: Option<String>,
    issued_at: i64,
    pub(super) expires_at: i64,
    pub(super) revoked_at: Option<i64>,
    pub(super) revoked_with: Option<String>,
    pub(super) secret_name: Option<String>,
    pub(super) service_account_uid: Option<String>,
    /// Whether its workspace is provisioned and still has the ServiceAccount of the credential.
    in_force: bool,
}

impl CredentialRecord {
    /// The state of the credential at this time, in milliseconds since 1970.
    pub(super) fn state(&self, now: i64) -> CredentialState {
        if self.revoked_at.is_some() {
            CredentialState::Revoked
        } else if self.expires_at <= now {
            CredentialState::Expired
        } else if self.in_force {
            CredentialState::Live
        } else {
            CredentialState::Withdrawn
        }
    }

    /// The API form of the record.
    pub(super) fn into_api(self, now: i64) -> CredentialInfo {
        let state = self.state(now);
        CredentialInfo {
            state,
            kind: CredentialKind::parse(&self.kind),
            bound: self.secret_name.is_some(),
            workspace_id: self.workspace_id,
            user_id: self.user_id,
            email: self.email,
            session_id: self.session_id,
            client: self.client_id,
            issued_at: timestamp(self.issued_at).into(),
            expires_at: timestamp(self.expires_at).into(),
            revoked_at: self.revoked_at.map(|at| timestamp(at).into()),
            revoked_with: self.revoked_with.filter(|with| *with != self.credential_id),
            credential_id: self.credential_id,
        }
    }
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT c.credential_id, c.workspace_id, c.kind, ",
            "COALESCE(c.user_id, m.user_id) AS user_id, e.email, c.session_id, s.client_id, ",
            "c.issued_at, c.expires_at, c.revoked_at, c.revoked_with, c.secret_name, ",
            "c.service_account_uid, a.uid IS NOT NULL AS in_force ",
            "FROM issued_credentials c ",
            "JOIN workspace_members m ON m.workspace_id = c.workspace_id ",
            "LEFT JOIN active_service_accounts a ",
            "ON a.workspace_id = c.workspace_id AND a.uid = c.service_account_uid ",
            "LEFT JOIN user_emails e ON e.user_id = COALESCE(c.user_id, m.user_id) ",
            "LEFT JOIN user_sessions s ON s.session_id = c.session_id ",
            $rest
        )
    };
}

/// Credentials of a workspace, newest first, after the credential with this id. Without `all` only
/// live ones.
pub(super) async fn list(
    db: &Db,
    workspace: Uuid,
    all: bool,
    now: i64,
    after: Option<&str>,
    most: usize,
) -> sqlx::Result<Vec<CredentialRecord>> {
    on_engine!(db.reader(), pool => sqlx::query_as(select!(
        "WHERE c.workspace_id = $1 \
           AND ($2 = 1 OR (c.expires_at > $3 AND c.revoked_at IS NULL \
             AND a.uid IS NOT NULL)) \
           AND ($4 = '' OR (c.issued_at, c.credential_id) < \
             (SELECT x.issued_at, x.credential_id FROM issued_credentials x \
              WHERE x.credential_id = $4 AND x.workspace_id = $1)) \
         ORDER BY c.issued_at DESC, c.credential_id DESC LIMIT $5"
    ))
        .bind(workspace).bind(i64::from(all)).bind(now).bind(after.unwrap_or_default())
        .bind(i64::try_from(most).unwrap_or(i64::MAX))
        .fetch_all(pool).await)
}

/// A credential that was revoked.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct RevokedCredential {
    /// The `jti` of its token.
    pub credential_id: String,
    /// The workspace that it belongs to.
    pub workspace_id: Uuid,
}

const REVOKED_SINCE: &str = "\
SELECT credential_id, workspace_id FROM issued_credentials WHERE revoked_at > $1";

/// The credentials that were revoked after this time, in milliseconds since 1970.
pub(super) async fn revoked_since(db: &Db, since: i64) -> sqlx::Result<Vec<RevokedCredential>> {
    on_engine!(db.reader(), pool => sqlx::query_as(REVOKED_SINCE).bind(since).fetch_all(pool).await)
}

const IS_REVOKED: &str = "\
SELECT COUNT(*) FROM issued_credentials WHERE credential_id = $1 AND revoked_at IS NOT NULL";

/// Whether the credential was revoked.
pub(super) async fn is_revoked(db: &Db, id: &str) -> sqlx::Result<bool> {
    let count: i64 = on_engine!(db.reader(), pool =>
        sqlx::query_scalar(IS_REVOKED).bind(id).fetch_one(pool).await)?;
    Ok(count > 0)
}

/// The credential with this id, if it belongs to the workspace.
pub(super) async fn find(
    db: &Db,
    workspace: Uuid,
    id: &str,
) -> sqlx::Result<Option<CredentialRecord>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_as(select!("WHERE c.workspace_id = $1 AND c.credential_id = $2"))
            .bind(workspace).bind(id).fetch_optional(pool).await)
}

const MARK_REVOKED: &str = "\
UPDATE issued_credentials SET revoked_at = $3, revoked_with = $2 \
WHERE workspace_id = $1 AND credential_id = $2 AND revoked_at IS NULL";

/// Marks a credential as revoked; `false` if it was revoked already.
pub(super) async fn mark_revoked(
    tx: &mut Tx,
    workspace: Uuid,
    id: &str,
    now: i64,
) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(MARK_REVOKED)
        .bind(workspace).bind(id).bind(now)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

const MARK_ALL_REVOKED: &str = "\
UPDATE issued_credentials SET revoked_at = $3, revoked_with = $2 \
WHERE workspace_id = $1 AND service_account_uid = $4 AND revoked_at IS NULL \
  AND (expires_at > $3 OR credential_id = $2)";

/// Marks the credential `with` as revoked, and all unexpired credentials of the same
/// ServiceAccount.
pub(super) async fn mark_all_revoked(
    tx: &mut Tx,
    workspace: Uuid,
    with: &str,
    service_account_uid: &str,
    now: i64,
) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(MARK_ALL_REVOKED)
        .bind(workspace).bind(with).bind(now).bind(service_account_uid)
        .execute(c).await.map(drop))
}

const REVOKED_TOGETHER: &str = "\
SELECT credential_id FROM issued_credentials \
WHERE workspace_id = $1 AND revoked_with = $2 AND credential_id <> $2 \
ORDER BY issued_at DESC, credential_id DESC LIMIT $3";
const COUNT_REVOKED_TOGETHER: &str = "\
SELECT COUNT(*) FROM issued_credentials \
WHERE workspace_id = $1 AND revoked_with = $2 AND credential_id <> $2";

/// The other credentials that were revoked together with this one: their number, and the ids of the
/// newest.
pub(super) async fn revoked_together(
    db: &Db,
    workspace: Uuid,
    with: &str,
    most: u32,
) -> sqlx::Result<(i64, Vec<String>)> {
    let count = on_engine!(db.reader(), pool => sqlx::query_scalar(COUNT_REVOKED_TOGETHER)
        .bind(workspace).bind(with).fetch_one(pool).await)?;
    let ids = on_engine!(db.reader(), pool => sqlx::query_scalar(REVOKED_TOGETHER)
        .bind(workspace).bind(with).bind(i64::from(most)).fetch_all(pool).await)?;
    Ok((count, ids))
}

const CLEAR_SECRET: &str = "\
UPDATE issued_credentials SET secret_name = NULL WHERE workspace_id = $1 AND credential_id = $2";

/// Removes the Secret from a credential that can only be revoked with its ServiceAccount, because
/// the Secret cannot be deleted.
pub(super) async fn clear_secret(tx: &mut Tx, workspace: Uuid, id: &str) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(CLEAR_SECRET)
        .bind(workspace).bind(id).execute(c).await.map(drop))
}
