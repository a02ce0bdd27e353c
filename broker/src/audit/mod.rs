//! The audit trail: who did what, recorded in the same transaction as the change itself.
//!
//! Events are a closed catalogue. A row never holds a secret; it names a credential by its `jti`,
//! which the audit log of the cluster shows too. Rows are written when the events happen and are
//! chained shortly afterwards ([`chain`]), so that a later change to a row is detectable.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sqlx::{FromRow, postgres::PgRow, sqlite::SqliteRow};
use uuid::Uuid;

use crate::{
    base::{
        clock::Clock,
        db::{Db, Tx},
        request_context,
    },
    http::ApiError,
    on_engine,
};

/// The columns of a [`Row`], for statements that are concatenated at compile time.
macro_rules! columns {
    () => {
        "id, user_id, workspace_id, action, ip_address, created_at, outcome, session_id, \
         credential_id, request_id, reason, subject_user_id, subject_session_id"
    };
}

pub mod api;
mod catalogue;
pub mod chain;
mod credential;
mod export;
mod retention;
#[cfg(test)]
mod tests;

pub use catalogue::Action;
pub use credential::{InvalidCredentialId, Issuance, resolve_credential};
pub use export::{ExportPage, export_page};
pub use retention::prune;

/// Settings of the audit trail.
#[derive(Clone, Debug, Default)]
pub struct AuditSettings {
    /// PEM files with EC P-256 keys; the first key signs checkpoints, all of them verify.
    pub signing_key_files: Vec<PathBuf>,
    /// JSON Web Key Set with public keys that signed earlier checkpoints.
    pub known_keys_file: Option<PathBuf>,
    /// Rows are deleted after this number of days; 0 keeps them forever.
    pub retention_days: u32,
}

/// The outcome of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOutcome {
    /// The action succeeded.
    Success,
    /// The action was refused.
    Refused,
}

/// One event. The address and the request id come from the current request.
#[derive(Clone, Debug)]
pub struct Event {
    /// The action of the catalogue.
    pub action: Action,
    /// The outcome of an event.
    pub outcome: EventOutcome,
    /// The actor, if known: a user who was signed in, or who proved their identity.
    pub user_id: Option<Uuid>,
    /// The user whom the action affected, if that is not the actor.
    pub subject_user_id: Option<Uuid>,
    /// The workspace that the action affected.
    pub workspace_id: Option<Uuid>,
    /// The session in which the actor acted.
    pub session_id: Option<Uuid>,
    /// The session that the action affected, if that is not the session of the actor.
    pub subject_session_id: Option<Uuid>,
    /// The credential (its `jti`) that was issued or revoked.
    pub credential_id: Option<String>,
    /// The reason as text; never a secret.
    pub reason: Option<String>,
}

impl Event {
    /// An event that succeeded; callers add the other fields with struct update syntax.
    pub fn success(action: Action) -> Self {
        Self {
            action,
            outcome: EventOutcome::Success,
            user_id: None,
            subject_user_id: None,
            workspace_id: None,
            session_id: None,
            subject_session_id: None,
            credential_id: None,
            reason: None,
        }
    }

    /// Sets the affected user. The row names them only if they are not the actor.
    #[must_use]
    pub fn to_user(mut self, user_id: Uuid) -> Self {
        self.subject_user_id = (self.user_id != Some(user_id)).then_some(user_id);
        self
    }

    /// Sets the affected session. The row names it only if it is not the session of the actor.
    #[must_use]
    pub fn to_session(mut self, session_id: Uuid) -> Self {
        self.subject_session_id = (self.session_id != Some(session_id)).then_some(session_id);
        self
    }

    /// An event that was refused, with the reason.
    pub fn refused(action: Action, reason: impl Into<String>) -> Self {
        Self {
            outcome: EventOutcome::Refused,
            reason: Some(reason.into()),
            ..Self::success(action)
        }
    }

    /// Adds the id, the time, and the address and request id of the current request, so that
    /// another task can record the event.
    pub fn with_request_context(self, clock: &Clock) -> StampedEvent {
        StampedEvent {
            id: clock.ordered_id(),
            created_at: clock.now_ms(),
            ip_address: request_context::request_address().map(|address| address.to_string()),
            request_id: request_context::request_id(),
            event: self,
        }
    }
}

/// An event with its id, time, client address and request id.
#[derive(Clone, Debug)]
pub struct StampedEvent {
    id: Uuid,
    created_at: i64,
    ip_address: Option<String>,
    request_id: Option<String>,
    event: Event,
}

const INSERT: &str = "\
INSERT INTO audit_logs (id, user_id, workspace_id, action, ip_address, created_at, outcome, \
  session_id, credential_id, request_id, reason, subject_user_id, subject_session_id) \
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

/// Records an event: it becomes durable with the transaction, or not at all.
///
/// # Errors
/// The database failed; the audited action must not happen then.
pub async fn record(tx: &mut Tx, clock: &Clock, event: Event) -> sqlx::Result<()> {
    record_stamped(tx, &event.with_request_context(clock)).await
}

/// Records an event that already carries its id, time and request context.
///
/// # Errors
/// As [`record`].
pub async fn record_stamped(tx: &mut Tx, stamped: &StampedEvent) -> sqlx::Result<()> {
    let event = &stamped.event;
    let outcome = match event.outcome {
        EventOutcome::Success => "success",
        EventOutcome::Refused => "refused",
    };
    on_engine!(tx.connection(), c => sqlx::query(INSERT)
        .bind(stamped.id)
        .bind(event.user_id)
        .bind(event.workspace_id)
        .bind(event.action.as_str())
        .bind(&stamped.ip_address)
        .bind(stamped.created_at)
        .bind(outcome)
        .bind(event.session_id)
        .bind(&event.credential_id)
        .bind(&stamped.request_id)
        .bind(&event.reason)
        .bind(event.subject_user_id)
        .bind(event.subject_session_id)
        .execute(c).await.map(drop))
}

/// Records an event in a transaction of its own, for refusals that change nothing else.
///
/// # Errors
/// The database failed.
pub async fn record_in_own_tx(db: &Db, clock: &Clock, event: Event) -> sqlx::Result<()> {
    let mut tx = db.begin().await?;
    record(&mut tx, clock, event).await?;
    tx.commit().await
}

/// Records a refused request in a transaction of its own and returns the refusal.
///
/// # Errors
/// Always: the refusal, or the database error if the refusal could not be recorded.
pub async fn record_refusal<T>(
    db: &Db,
    clock: &Clock,
    event: Event,
    refusal: ApiError,
) -> Result<T, ApiError> {
    let event = Event {
        outcome: EventOutcome::Refused,
        reason: Some(refusal.detail().to_owned()),
        ..event
    };
    record_in_own_tx(db, clock, event).await?;
    Err(refusal)
}

/// Filter of a query; a field that is `None` matches every row.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only rows of which this user is the actor or the subject, or that concern a workspace of
    /// theirs.
    pub user_id: Option<Uuid>,
    /// Only rows of this workspace.
    pub workspace_id: Option<Uuid>,
    /// Only rows with this action.
    pub action: Option<String>,
    /// Only rows older than this row (the cursor).
    pub before: Option<Uuid>,
}

/// A row as stored; its JSON form is a line of an export.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow, Serialize, Deserialize)]
pub struct Row {
    id: Uuid,
    /// Milliseconds since 1970.
    #[serde(with = "chain::time")]
    created_at: i64,
    action: String,
    outcome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject_user_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workspace_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject_session_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    credential_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip_address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Row {
    /// The reason as text.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

/// A row with the current e-mail addresses of its users.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct RowWithEmails {
    #[sqlx(flatten)]
    row: Row,
    user_email: Option<String>,
    subject_email: Option<String>,
}

macro_rules! filtered {
    ($columns:expr) => {
        concat!(
            "SELECT ",
            columns!(),
            $columns,
            " FROM audit_logs \
WHERE ($1 = 0 OR user_id = $2 OR subject_user_id = $2 OR workspace_id IN (SELECT id FROM workspaces WHERE user_id = $2)) \
  AND ($3 = 0 OR workspace_id = $4) AND ($5 = '' OR action = $5) AND ($6 = 0 OR id < $7) \
ORDER BY id DESC LIMIT $8"
        )
    };
}

const SELECT: &str = filtered!("");
const SELECT_WITH_EMAILS: &str = filtered!(
    ", (SELECT u.email FROM users u WHERE u.id = audit_logs.user_id) AS user_email, \
       (SELECT u.email FROM users u WHERE u.id = audit_logs.subject_user_id) AS subject_email"
);

/// Reads rows, newest first.
///
/// # Errors
/// The database failed.
pub async fn read(db: &Db, filter: &Filter, limit: u32) -> sqlx::Result<Vec<Row>> {
    select(db, SELECT, filter, limit).await
}

/// Reads rows, newest first, with e-mail addresses: for administrators.
///
/// # Errors
/// The database failed.
pub async fn read_with_emails(
    db: &Db,
    filter: &Filter,
    limit: u32,
) -> sqlx::Result<Vec<RowWithEmails>> {
    select(db, SELECT_WITH_EMAILS, filter, limit).await
}

async fn select<T>(
    db: &Db,
    statement: &'static str,
    filter: &Filter,
    limit: u32,
) -> sqlx::Result<Vec<T>>
where
    T: for<'r> FromRow<'r, PgRow> + for<'r> FromRow<'r, SqliteRow> + Send + Unpin,
{
    let given = |id: Option<Uuid>| (i64::from(id.is_some()), id.unwrap_or_default());
    let (by_user, user) = given(filter.user_id);
    let (by_workspace, workspace) = given(filter.workspace_id);
    let (by_cursor, cursor) = given(filter.before);
    on_engine!(db.reader(), pool => sqlx::query_as(statement)
        .bind(by_user).bind(user)
        .bind(by_workspace).bind(workspace)
        .bind(filter.action.as_deref().unwrap_or_default())
        .bind(by_cursor).bind(cursor)
        .bind(i64::from(limit))
        .fetch_all(pool).await)
}
