//! Reading the audit trail, within the scope that the reader is authorized for.

use serde::{Deserialize, Serialize};
use sqlx::{FromRow, postgres::PgRow, sqlite::SqliteRow};
use tenant_shared::AuditEntry;
use uuid::Uuid;

use super::{ExportPage, chain, export_page};
use crate::{
    base::{clock::timestamp, db::Db},
    on_engine,
};

/// The rows that a reader may see. Only [`crate::access`] makes one, which a test checks
/// (`broker/tests/layers`): this module is below it and cannot take its permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// `None`: all rows.
    user_id: Option<Uuid>,
}

impl Scope {
    /// All rows.
    pub(crate) fn for_administrator() -> Self {
        Self { user_id: None }
    }

    /// The rows of which this user is the actor or the subject, and those that concern a workspace
    /// that they are a member of.
    pub(crate) fn about_user(user_id: Uuid) -> Self {
        Self { user_id: Some(user_id) }
    }

    /// The only user whose rows are in the scope; `None` for all rows.
    pub fn user_id(self) -> Option<Uuid> {
        self.user_id
    }
}

/// Authority to export the whole trail. Only [`crate::access`] and [`crate::cli`] make one, which the
/// same test checks.
#[derive(Clone, Copy, Debug)]
pub struct WholeTrail(());

impl WholeTrail {
    /// The authority of an administrator.
    pub(crate) fn for_administrator() -> Self {
        Self(())
    }

    /// The authority of an operator, who has access to the database.
    pub(crate) fn for_operator() -> Self {
        Self(())
    }
}

/// Filter of a query; a field that is `None` matches every row.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only rows of this workspace.
    pub workspace_id: Option<Uuid>,
    /// Only rows with this action.
    pub action: Option<String>,
    /// Only rows older than this row (the cursor).
    pub before: Option<Uuid>,
}

/// A row as stored; its JSON form is a line of an export.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow, Serialize, Deserialize)]
pub struct TrailRow {
    pub(super) id: Uuid,
    /// Milliseconds since 1970.
    #[serde(with = "chain::time")]
    pub(super) created_at: i64,
    pub(super) action: String,
    pub(super) outcome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) subject_user_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) workspace_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) subject_session_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) credential_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ip_address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

impl TrailRow {
    /// Name of the action.
    pub fn action(&self) -> &str {
        &self.action
    }

    /// Address of the client.
    pub fn ip_address(&self) -> Option<&str> {
        self.ip_address.as_deref()
    }

    /// Identifier of the request.
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// The reason as text.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

impl From<TrailRow> for AuditEntry {
    fn from(row: TrailRow) -> Self {
        Self {
            id: row.id,
            created_at: timestamp(row.created_at).into(),
            action: row.action,
            outcome: row.outcome,
            user_id: row.user_id,
            user_email: None,
            subject_user_id: row.subject_user_id,
            subject_email: None,
            workspace_id: row.workspace_id,
            session_id: row.session_id,
            subject_session_id: row.subject_session_id,
            credential_id: row.credential_id,
            ip_address: row.ip_address,
            request_id: row.request_id,
            reason: row.reason,
        }
    }
}

/// A row with the current e-mail addresses of its users.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct RowWithEmails {
    #[sqlx(flatten)]
    row: TrailRow,
    user_email: Option<String>,
    subject_email: Option<String>,
}

impl From<RowWithEmails> for AuditEntry {
    fn from(row: RowWithEmails) -> Self {
        let RowWithEmails { row, user_email, subject_email } = row;
        Self { user_email, subject_email, ..row.into() }
    }
}

macro_rules! filtered {
    ($columns:expr) => {
        concat!(
            "SELECT ",
            columns!(),
            $columns,
            " FROM audit_logs \
WHERE ($1 = 0 OR user_id = $2 OR subject_user_id = $2 \
    OR workspace_id IN (SELECT m.workspace_id FROM workspace_members m WHERE m.user_id = $2)) \
  AND ($3 = 0 OR workspace_id = $4) AND ($5 = '' OR action = $5) AND ($6 = 0 OR id < $7) \
ORDER BY id DESC LIMIT $8"
        )
    };
}

const SELECT: &str = filtered!("");
const SELECT_WITH_EMAILS: &str = filtered!(
    ", (SELECT e.email FROM user_emails e WHERE e.user_id = audit_logs.user_id) AS user_email, \
       (SELECT e.email FROM user_emails e WHERE e.user_id = audit_logs.subject_user_id) \
         AS subject_email"
);

/// Filters by workspace too, because the index starts with it.
const ISSUANCE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM audit_logs WHERE workspace_id = $1 AND credential_id = $2 ORDER BY id LIMIT 1"
);

/// The stored audit trail. Clones share the database.
#[derive(Clone, Debug)]
pub struct AuditTrail {
    db: Db,
}

impl AuditTrail {
    /// The trail in this database.
    pub fn new(db: Db) -> Self {
        Self { db }
    }

    /// Reads rows, newest first.
    ///
    /// # Errors
    /// The database failed.
    pub async fn read(
        &self,
        scope: Scope,
        filter: &Filter,
        limit: u32,
    ) -> sqlx::Result<Vec<TrailRow>> {
        self.select(SELECT, scope, filter, limit).await
    }

    /// Reads rows, newest first, with e-mail addresses: for administrators.
    ///
    /// # Errors
    /// The database failed.
    pub async fn read_with_emails(
        &self,
        scope: Scope,
        filter: &Filter,
        limit: u32,
    ) -> sqlx::Result<Vec<RowWithEmails>> {
        self.select(SELECT_WITH_EMAILS, scope, filter, limit).await
    }

    async fn select<T>(
        &self,
        statement: &'static str,
        scope: Scope,
        filter: &Filter,
        limit: u32,
    ) -> sqlx::Result<Vec<T>>
    where
        T: for<'r> FromRow<'r, PgRow> + for<'r> FromRow<'r, SqliteRow> + Send + Unpin,
    {
        // One statement serves all filters: a flag tells whether the value after it applies.
        let given = |id: Option<Uuid>| (i64::from(id.is_some()), id.unwrap_or_default());
        let (by_user, user) = given(scope.user_id);
        let (by_workspace, workspace) = given(filter.workspace_id);
        let (by_cursor, cursor) = given(filter.before);
        on_engine!(self.db.reader(), pool => sqlx::query_as(statement)
            .bind(by_user).bind(user)
            .bind(by_workspace).bind(workspace)
            .bind(filter.action.as_deref().unwrap_or_default())
            .bind(by_cursor).bind(cursor)
            .bind(i64::from(limit))
            .fetch_all(pool).await)
    }

    /// Reads the row of a credential's issuance; `None` once retention has deleted it.
    ///
    /// # Errors
    /// The database failed.
    pub async fn issuance(
        &self,
        workspace_id: Uuid,
        credential_id: &str,
    ) -> sqlx::Result<Option<TrailRow>> {
        on_engine!(self.db.reader(), pool => sqlx::query_as(ISSUANCE)
            .bind(workspace_id).bind(credential_id).fetch_optional(pool).await)
    }

    /// Reads the rows after number `after` for an export, about `limit` of them; `None` if there are
    /// none yet.
    ///
    /// # Errors
    /// The database failed.
    pub async fn export_page(
        &self,
        _: WholeTrail,
        after: i64,
        limit: u32,
    ) -> sqlx::Result<Option<ExportPage>> {
        export_page(&self.db, after, limit).await
    }
}
