//! Management of users by administrators: list, lookup, suspension, e-mail address, groups and
//! sessions.

pub mod api;
mod error;
mod groups;
#[cfg(test)]
mod tests;

use futures_util::{StreamExt as _, stream};
use tenant_shared::{
    EndedSessions, Name, SessionList, UserInfo, UserList, UserStatus, UserSuspension,
};
use uuid::Uuid;

pub use self::error::UserError;
use crate::{
    access::{self, AccessError, ManageUsers, Permit, SuspendWorkspaces},
    audit::{self, Action, Event},
    base::{
        clock::{Clock, timestamp},
        db::{Db, Tx},
        paging::{self, Cursor},
        telemetry::Metrics,
    },
    identity::{Caller, Email, Identity, SessionSelector, placeholder_email, users},
    workspace::Workspaces,
};

/// Reason in the audit trail if the administrator gave none.
const NO_REASON: &str = "no reason given";
/// Maximum number of a user's workspaces that are suspended concurrently.
const MAX_CONCURRENT_SUSPENSIONS: usize = 8;

/// The user service. Clones share everything.
#[derive(Clone, Debug)]
pub struct Users {
    db: Db,
    refusals: Db,
    clock: Clock,
    identity: Identity,
    workspaces: Workspaces,
    metrics: Metrics,
}

/// The dependencies of [`Users`].
#[derive(Debug)]
pub struct Dependencies {
    /// The database with the users.
    pub db: Db,
    /// Records refused requests. Anybody who is signed in may have any number of requests refused,
    /// so it is another pool than that of suspensions.
    pub refusals: Db,
    /// The clock for the audit trail.
    pub clock: Clock,
    /// Lists and ends sessions.
    pub identity: Identity,
    /// Suspends the workspaces of a user.
    pub workspaces: Workspaces,
    /// Counts audited actions.
    pub metrics: Metrics,
}

impl Users {
    /// A service with these dependencies.
    pub fn new(dependencies: Dependencies) -> Self {
        let Dependencies { db, refusals, clock, identity, workspaces, metrics } = dependencies;
        Self { db, refusals, clock, identity, workspaces, metrics }
    }

    /// Authorizes an action on a user. A refusal is recorded in the audit trail.
    ///
    /// # Errors
    /// The caller is no administrator, or the database failed.
    pub async fn authorize_audited(
        &self,
        caller: &Caller,
        id: Uuid,
        action: Action,
    ) -> Result<Permit<ManageUsers>, UserError> {
        match access::authorize_all::<ManageUsers>(caller) {
            Ok(permit) => Ok(permit),
            Err(refusal) => Err(self.refuse(caller, id, action, refusal.into()).await),
        }
    }

    /// Records a refused action in the audit trail. Returns the refusal, or that the database
    /// failed.
    async fn refuse(&self, by: &Caller, id: Uuid, action: Action, refusal: UserError) -> UserError {
        let event = by.event(action).to_user(id);
        self.metrics.action(action.as_str(), "refused");
        match audit::record_refusal(&self.refusals, &self.clock, event, &refusal).await {
            Ok(()) => refusal,
            Err(error) => error.into(),
        }
    }

    /// Begins a transaction and changes the row of a user in it, for a caller who is an active
    /// administrator until the transaction ends. Returns the transaction and the result of the
    /// change. A refusal is recorded in the audit trail.
    ///
    /// # Errors
    /// [`UserError::FormerAdministrator`], or the database failed; nothing was changed then.
    async fn change_as_administrator<T>(
        &self,
        permit: &Permit<ManageUsers>,
        id: Uuid,
        action: Action,
        change: impl AsyncFnOnce(&mut Tx) -> sqlx::Result<T>,
    ) -> Result<(Tx, T), UserError> {
        let by = permit.caller();
        let mut tx = self.db.begin().await?;
        let changed = users::change_as_administrator(&mut tx, by.user_id(), id, change).await?;
        if let Some(changed) = changed {
            return Ok((tx, changed));
        }
        // Rolls back first, because the refusal is recorded in another transaction.
        drop(tx);
        Err(self.refuse(by, id, action, UserError::FormerAdministrator).await)
    }

    /// A page of users ordered by e-mail address, after this address.
    ///
    /// # Errors
    /// The database failed.
    pub async fn list(
        &self,
        _: &Permit<ManageUsers>,
        after: &str,
        limit: u32,
    ) -> sqlx::Result<UserList> {
        // One row more than requested shows whether there is a next page.
        let mut rows = users::list(&self.db, after, limit + 1).await?;
        let next_cursor = paging::truncate_page(&mut rows, limit, |row| row.email.clone());
        let items = rows.into_iter().map(to_api).collect::<Result<_, _>>()?;
        Ok(UserList { items, next_cursor })
    }

    /// The user with this name, or the owner of the workspace with this name.
    ///
    /// # Errors
    /// [`AccessError::NameNotFound`], or the database failed.
    pub async fn by_name(
        &self,
        _: &Permit<ManageUsers>,
        name: &Name,
    ) -> Result<UserInfo, UserError> {
        let row = users::by_name(&self.db, name).await?.ok_or(AccessError::NameNotFound)?;
        Ok(to_api(row)?)
    }

    /// The user with this identifier.
    ///
    /// # Errors
    /// [`UserError::NotFound`], or the database failed.
    pub async fn existing(&self, _: &Permit<ManageUsers>, id: Uuid) -> Result<UserInfo, UserError> {
        let row = users::find(&self.db, id).await?.ok_or(UserError::NotFound)?;
        Ok(to_api(row)?)
    }

    /// Suspends a user and all their workspaces. Once the transaction is durable the user has no
    /// session and gets no credential, because every replica reads the database on every request.
    /// Then the workspaces' rights are revoked in the cluster, of several workspaces concurrently.
    /// Idempotent: a second call repeats the steps.
    ///
    /// # Errors
    /// Callers suspend themselves, there is no such user, the caller was suspended meanwhile, or
    /// the database failed; then nothing was changed. If the database fails after that transaction,
    /// the sweep finishes the suspension. A step that failed in the cluster is no error: it is open
    /// in the result, and the sweep retries it.
    #[tracing::instrument(level = "debug", skip_all, fields(subject_user_id = %id))]
    pub async fn suspend(
        &self,
        permit: &Permit<ManageUsers>,
        suspend_workspaces: &Permit<SuspendWorkspaces>,
        id: Uuid,
        reason: Option<String>,
    ) -> Result<UserSuspension, UserError> {
        let by = permit.caller();
        if id == by.user_id() {
            return Err(self.refuse(by, id, Action::SuspendUser, UserError::Yourself).await);
        }
        self.existing(permit, id).await?;
        let reason = reason.unwrap_or_else(|| NO_REASON.to_owned());
        let because = Some(format!("the user was suspended: {reason}"));
        let change = async |tx: &mut Tx| users::set_suspended(tx, id).await;
        let (mut tx, changed) =
            self.change_as_administrator(permit, id, Action::SuspendUser, change).await?;
        // Read after the user's row is updated: an earlier `init` is seen here, and a later one
        // sees that the user is suspended.
        let workspaces = self.workspaces.for_user_in(&mut tx, suspend_workspaces, id).await?;
        if changed {
            let why = "the user was suspended";
            self.identity.end_all_sessions(&mut tx, by, id, why).await?;
            self.record(&mut tx, permit, id, Action::SuspendUser, &reason).await?;
        }
        for workspace in &workspaces {
            self.workspaces.begin_suspension(&mut tx, workspace, because.clone()).await?;
        }
        tx.commit().await?;
        if changed {
            self.metrics.action(Action::SuspendUser.as_str(), "success");
        }
        // All are tried, because a failure of one must not delay the others.
        let results: Vec<_> = stream::iter(workspaces)
            .map(|workspace| {
                let because = because.clone();
                async move { self.workspaces.suspend(&workspace, because).await }
            })
            .buffered(MAX_CONCURRENT_SUSPENSIONS)
            .collect()
            .await;
        let workspaces = results.into_iter().collect::<Result<_, _>>()?;
        Ok(UserSuspension { user: self.existing(permit, id).await?, workspaces })
    }

    /// Resumes a user, who may then sign in again. Earlier sessions stay ended, and the workspaces
    /// stay suspended.
    ///
    /// # Errors
    /// There is no such user, the caller was suspended meanwhile, or the database failed; nothing
    /// was changed then.
    pub async fn resume(
        &self,
        permit: &Permit<ManageUsers>,
        id: Uuid,
        reason: Option<String>,
    ) -> Result<UserInfo, UserError> {
        self.existing(permit, id).await?;
        let change = async |tx: &mut Tx| users::set_active(tx, id).await;
        let (mut tx, changed) =
            self.change_as_administrator(permit, id, Action::ResumeUser, change).await?;
        if changed {
            let reason = reason.as_deref().unwrap_or(NO_REASON);
            self.record(&mut tx, permit, id, Action::ResumeUser, reason).await?;
            tx.commit().await?;
            self.metrics.action(Action::ResumeUser.as_str(), "success");
        }
        self.existing(permit, id).await
    }

    /// Changes a user's e-mail address, by default to a placeholder, so that the owner of the
    /// previous address can use it. Everything else stays: identifier, password, sessions,
    /// workspaces and audit rows. The administrator vouches for the address, also if it is the same
    /// as before, so that it is the user's name in Kubernetes.
    ///
    /// # Errors
    /// The text is no address, there is no such user, another user has the address, the caller was
    /// suspended meanwhile, or the database failed. Nothing was changed then.
    pub async fn change_email(
        &self,
        permit: &Permit<ManageUsers>,
        id: Uuid,
        email: Option<&str>,
        reason: Option<&str>,
    ) -> Result<UserInfo, UserError> {
        self.existing(permit, id).await?;
        let (email, is_placeholder) = match email {
            Some(text) => (text.parse::<Email>()?.as_str().to_owned(), false),
            None => (placeholder_email(id), true),
        };
        let now = self.clock.now_ms();
        let change =
            async |tx: &mut Tx| users::set_email(tx, id, &email, is_placeholder, now).await;
        let changed = self.change_as_administrator(permit, id, Action::ChangeEmail, change).await;
        let (mut tx, changed) = match changed {
            Err(UserError::Storage(sqlx::Error::Database(error)))
                if error.is_unique_violation() =>
            {
                let by = permit.caller();
                return Err(self.refuse(by, id, Action::ChangeEmail, UserError::EmailTaken).await);
            }
            changed => changed?,
        };
        if let Some((before, true)) = changed {
            let reason = reason.unwrap_or(NO_REASON);
            let reason = if before == email {
                format!("{email} is confirmed: {reason}")
            } else {
                format!("{before} is {email} from now on: {reason}")
            };
            self.record(&mut tx, permit, id, Action::ChangeEmail, &reason).await?;
            tx.commit().await?;
            self.metrics.action(Action::ChangeEmail.as_str(), "success");
        }
        self.existing(permit, id).await
    }

    async fn record(
        &self,
        tx: &mut Tx,
        permit: &Permit<ManageUsers>,
        id: Uuid,
        action: Action,
        reason: &str,
    ) -> sqlx::Result<()> {
        let event =
            Event { reason: Some(reason.to_owned()), ..permit.caller().event(action) }.to_user(id);
        audit::record(tx, &self.clock, event).await
    }

    /// A page of a user's live sessions, newest first.
    ///
    /// # Errors
    /// There is no such user, or the database failed.
    pub(crate) async fn sessions(
        &self,
        permit: &Permit<ManageUsers>,
        id: Uuid,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<SessionList, UserError> {
        self.existing(permit, id).await?;
        Ok(self.identity.sessions_of_user(permit.caller(), id, after, limit).await?)
    }

    /// Ends one session of a user, or all.
    ///
    /// # Errors
    /// There is no such user, or the database failed; no session was ended then.
    pub async fn end_sessions(
        &self,
        permit: &Permit<ManageUsers>,
        id: Uuid,
        session: Option<Uuid>,
    ) -> Result<EndedSessions, UserError> {
        self.existing(permit, id).await?;
        let which = session.map_or(SessionSelector::All, SessionSelector::One);
        let ended = self.identity.end_sessions_of_user(permit.caller(), id, which).await?;
        Ok(EndedSessions { ended })
    }
}

fn to_api(row: users::UserRow) -> sqlx::Result<UserInfo> {
    let role = row.role()?;
    let status = if row.is_active() { UserStatus::Active } else { UserStatus::Suspended };
    Ok(UserInfo {
        id: row.id,
        role,
        status,
        created_at: timestamp(row.created_at).into(),
        email: row.email,
    })
}
