//! The audit trail: who did what, recorded in the same transaction as the thing itself.
//!
//! Events are a closed catalogue. A row never holds a secret; a credential is named by its `jti`,
//! which the cluster's own audit log shows too. Rows are written when things happen and chained soon
//! afterwards ([`chain`]), so that nobody changes them later without being seen.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sqlx::{FromRow, postgres::PgRow, sqlite::SqliteRow};
use uuid::Uuid;

use crate::{
    clock::Clock,
    db::{Db, Tx},
    on_engine,
    problem::{self, Failure},
};

/// The columns of a [`Row`], for statements that are put together at compile time.
macro_rules! columns {
    () => {
        "id, user_id, workspace_id, action, ip_address, created_at, outcome, session_id, \
         credential_id, request_id, reason, subject_user_id, subject_session_id"
    };
}

pub mod api;
mod catalogue;
pub mod chain;
mod export;
mod retention;
#[cfg(test)]
mod tests;
mod who;

pub use catalogue::Action;
pub use export::{Page, page};
pub use retention::cut;
pub use who::{Issuance, NotACredential, who};

/// How the trail is kept.
#[derive(Clone, Debug, Default)]
pub struct AuditSettings {
    /// PEM files with EC P-256 keys; the first signs checkpoints, all are known.
    pub signing_key_files: Vec<PathBuf>,
    /// JSON Web Key Set with public keys that signed checkpoints earlier.
    pub known_keys_file: Option<PathBuf>,
    /// Rows are deleted after so many days; 0 keeps them for ever.
    pub retention_days: u32,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Success,
    /// It was not.
    Refused,
}

/// One thing that happened. Address and request id come from the request under way.
#[derive(Clone, Debug)]
pub struct Event {
    /// What.
    pub action: Action,
    /// How it ended.
    pub outcome: Outcome,
    /// Who did it, if that is known: somebody who was signed in, or showed who they are.
    pub user_id: Option<Uuid>,
    /// To whom, where that is somebody else.
    pub subject_user_id: Option<Uuid>,
    /// To which workspace.
    pub workspace_id: Option<Uuid>,
    /// In which session.
    pub session_id: Option<Uuid>,
    /// To which session, where that is another one.
    pub subject_session_id: Option<Uuid>,
    /// Which credential left (its `jti`).
    pub credential_id: Option<String>,
    /// Why, in words; never a secret.
    pub reason: Option<String>,
}

impl Event {
    /// An event that was done; the other facts are added with struct update.
    pub fn success(action: Action) -> Self {
        Self {
            action,
            outcome: Outcome::Success,
            user_id: None,
            subject_user_id: None,
            workspace_id: None,
            session_id: None,
            subject_session_id: None,
            credential_id: None,
            reason: None,
        }
    }

    /// The same, done to this person; they stand in the row only if the actor is somebody else.
    #[must_use]
    pub fn to_user(mut self, user_id: Uuid) -> Self {
        self.subject_user_id = (self.user_id != Some(user_id)).then_some(user_id);
        self
    }

    /// The same, done to this session; it stands in the row only if it was done in another one.
    #[must_use]
    pub fn to_session(mut self, session_id: Uuid) -> Self {
        self.subject_session_id = (self.session_id != Some(session_id)).then_some(session_id);
        self
    }

    /// An event that was refused, and why.
    pub fn refused(action: Action, reason: impl Into<String>) -> Self {
        Self { outcome: Outcome::Refused, reason: Some(reason.into()), ..Self::success(action) }
    }

    /// With the facts of the request under way, ready to be recorded by another task.
    pub fn stamped(self, clock: &Clock) -> Stamped {
        Stamped {
            id: clock.ordered_id(),
            created_at: clock.now_ms(),
            ip_address: problem::request_address().map(|address| address.to_string()),
            request_id: problem::request_id(),
            event: self,
        }
    }
}

/// An event with when, from where and in which request.
#[derive(Clone, Debug)]
pub struct Stamped {
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

/// Records an event: durable with the transaction, or not at all.
///
/// # Errors
/// The database's; then what was to be audited must not happen.
pub async fn record(tx: &mut Tx, clock: &Clock, event: Event) -> sqlx::Result<()> {
    record_stamped(tx, &event.stamped(clock)).await
}

/// Records an event that was stamped elsewhere.
///
/// # Errors
/// As [`record`].
pub async fn record_stamped(tx: &mut Tx, stamped: &Stamped) -> sqlx::Result<()> {
    let event = &stamped.event;
    let outcome = match event.outcome {
        Outcome::Success => "success",
        Outcome::Refused => "refused",
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
/// The database's.
pub async fn record_alone(db: &Db, clock: &Clock, event: Event) -> sqlx::Result<()> {
    let mut tx = db.begin().await?;
    record(&mut tx, clock, event).await?;
    tx.commit().await
}

/// Records, alone, that somebody asked for what they may not have, and gives the refusal back.
///
/// # Errors
/// The refusal, always; the database's, if it could not be recorded.
pub async fn record_refusal<T>(
    db: &Db,
    clock: &Clock,
    event: Event,
    refusal: Failure,
) -> Result<T, Failure> {
    let event =
        Event { outcome: Outcome::Refused, reason: Some(refusal.detail().to_owned()), ..event };
    record_alone(db, clock, event).await?;
    Err(refusal)
}

/// Which rows to read.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only rows that this user made, or that happened to them or to a workspace of theirs.
    pub user_id: Option<Uuid>,
    /// Only this workspace.
    pub workspace_id: Option<Uuid>,
    /// Only this action.
    pub action: Option<String>,
    /// Only rows before this one.
    pub before: Option<Uuid>,
}

/// A row as the database gives it; as JSON it is a line of an export.
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
    /// Why, in words.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

/// A row with the addresses that its people have now.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Addressed {
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
const SELECT_ADDRESSED: &str = filtered!(
    ", (SELECT u.email FROM users u WHERE u.id = audit_logs.user_id) AS user_email, \
       (SELECT u.email FROM users u WHERE u.id = audit_logs.subject_user_id) AS subject_email"
);

/// Reads rows, newest first.
///
/// # Errors
/// The database's.
pub async fn read(db: &Db, filter: &Filter, limit: u32) -> sqlx::Result<Vec<Row>> {
    select(db, SELECT, filter, limit).await
}

/// Reads rows, newest first, with people's addresses: for administrators.
///
/// # Errors
/// The database's.
pub async fn read_addressed(db: &Db, filter: &Filter, limit: u32) -> sqlx::Result<Vec<Addressed>> {
    select(db, SELECT_ADDRESSED, filter, limit).await
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
