//! The audit trail: who did what, recorded in the same transaction as the thing itself.
//!
//! Events are a closed catalogue. A row never holds a secret; a credential is named by its `jti`,
//! which the cluster's own audit log shows too.

use uuid::Uuid;

use crate::{
    clock::Clock,
    db::{Db, Tx},
    on_engine, problem,
};

pub mod api;
#[cfg(test)]
mod tests;

/// Everything that leaves a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A user was made.
    CreateUser,
    /// Somebody signed in, or was refused.
    SignIn,
    /// A provider gave or took the administrator's role.
    ChangeRole,
    /// A machine's token was exchanged for a session, or refused.
    ExchangeToken,
    /// A session was ended by its owner.
    SignOut,
    /// A session was ended by the provider that it began at.
    ProviderLogout,
    /// A refresh token was used again after its grace: the session is ended.
    RefreshReuse,
    /// An authorization code was used again: the session is ended.
    CodeReuse,
    /// A person decided about a device that asked to act for them.
    DeviceDecision,
    /// An administrator suspended a user.
    SuspendUser,
    /// An administrator let a user in again.
    ResumeUser,
    /// A workspace was asked for, or refused.
    InitWorkspace,
    /// A workspace's objects all exist.
    WorkspaceProvisioned,
    /// A static kubeconfig with a token left.
    IssueKubeconfig,
    /// A token for the exec plugin left.
    IssueCredential,
    /// The kill switch was used.
    SuspendWorkspace,
    /// The kill switch has run to its end.
    WorkspaceSuspended,
    /// A workspace was given back.
    ResumeWorkspace,
    /// A workspace works again.
    WorkspaceResumed,
    /// An object of a workspace was found deleted or altered.
    DriftFound,
    /// The broker made it again as it has to be.
    DriftRepaired,
    /// It is as it has to be again by another hand.
    DriftEnded,
}

impl Action {
    /// As kept and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreateUser => "CreateUser",
            Self::SignIn => "SignIn",
            Self::ExchangeToken => "ExchangeToken",
            Self::ChangeRole => "ChangeRole",
            Self::ProviderLogout => "ProviderLogout",
            Self::SignOut => "SignOut",
            Self::RefreshReuse => "RefreshReuse",
            Self::CodeReuse => "CodeReuse",
            Self::DeviceDecision => "DeviceDecision",
            Self::SuspendUser => "SuspendUser",
            Self::ResumeUser => "ResumeUser",
            Self::InitWorkspace => "InitWorkspace",
            Self::WorkspaceProvisioned => "WorkspaceProvisioned",
            Self::IssueKubeconfig => "IssueKubeconfig",
            Self::IssueCredential => "IssueCredential",
            Self::SuspendWorkspace => "SuspendWorkspace",
            Self::WorkspaceSuspended => "WorkspaceSuspended",
            Self::ResumeWorkspace => "ResumeWorkspace",
            Self::WorkspaceResumed => "WorkspaceResumed",
            Self::DriftFound => "DriftFound",
            Self::DriftRepaired => "DriftRepaired",
            Self::DriftEnded => "DriftEnded",
        }
    }
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
    /// Who, if somebody was signed in.
    pub user_id: Option<Uuid>,
    /// To which workspace.
    pub workspace_id: Option<Uuid>,
    /// In which session.
    pub session_id: Option<Uuid>,
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
            workspace_id: None,
            session_id: None,
            credential_id: None,
            reason: None,
        }
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
  session_id, credential_id, request_id, reason) \
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

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

/// Which rows to read.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only rows that this user made or that happened to a workspace of theirs.
    pub user_id: Option<Uuid>,
    /// Only this workspace.
    pub workspace_id: Option<Uuid>,
    /// Only this action.
    pub action: Option<String>,
    /// Only rows before this one.
    pub before: Option<Uuid>,
}

/// A row as the database gives it.
#[derive(Debug, sqlx::FromRow)]
pub struct Row {
    id: Uuid,
    user_id: Option<Uuid>,
    workspace_id: Option<Uuid>,
    action: String,
    ip_address: Option<String>,
    created_at: i64,
    outcome: String,
    session_id: Option<Uuid>,
    credential_id: Option<String>,
    request_id: Option<String>,
    reason: Option<String>,
}

impl Row {
    /// Why, in words.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

const SELECT: &str = "\
SELECT id, user_id, workspace_id, action, ip_address, created_at, outcome, session_id, \
  credential_id, request_id, reason \
FROM audit_logs \
WHERE ($1 = 0 OR user_id = $2 OR workspace_id IN (SELECT id FROM workspaces WHERE user_id = $2)) \
  AND ($3 = 0 OR workspace_id = $4) AND ($5 = '' OR action = $5) AND ($6 = 0 OR id < $7) \
ORDER BY id DESC LIMIT $8";

/// Reads rows, newest first.
///
/// # Errors
/// The database's.
pub async fn read(db: &Db, filter: &Filter, limit: u32) -> sqlx::Result<Vec<Row>> {
    let given = |id: Option<Uuid>| (i64::from(id.is_some()), id.unwrap_or_default());
    let (by_user, user) = given(filter.user_id);
    let (by_workspace, workspace) = given(filter.workspace_id);
    let (by_cursor, cursor) = given(filter.before);
    on_engine!(db.reader(), pool => sqlx::query_as(SELECT)
        .bind(by_user).bind(user)
        .bind(by_workspace).bind(workspace)
        .bind(filter.action.as_deref().unwrap_or_default())
        .bind(by_cursor).bind(cursor)
        .bind(i64::from(limit))
        .fetch_all(pool).await)
}
