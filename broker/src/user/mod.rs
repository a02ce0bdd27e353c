//! Management of users by administrators: list, lookup, suspension, e-mail address and sessions.

pub mod api;
mod rows;
#[cfg(test)]
mod tests;

use tenant_shared::{
    Code, EndedSessions, Name, SessionList, UserInfo, UserList, UserStatus, UserSuspension,
};
use uuid::Uuid;

use crate::{
    access::{self, ManageUsers, Permit, SuspendWorkspaces},
    audit::{self, Action, Event},
    base::{
        clock::{Clock, timestamp},
        db::{Db, Tx},
        paging::{self, Cursor},
        telemetry::Metrics,
    },
    http::{ApiError, SIGN_IN},
    identity::{Caller, Email, Identity, SessionSelector, provider::placeholder_email},
    workspace::Workspaces,
};

/// Reason in the audit trail if the administrator gave none.
const NO_REASON: &str = "no reason given";

/// The user service. Clones share everything.
#[derive(Clone, Debug)]
pub struct Users {
    db: Db,
    clock: Clock,
    identity: Identity,
    workspaces: Workspaces,
    metrics: Metrics,
}

impl Users {
    /// A service on this database.
    pub fn new(
        db: Db,
        clock: Clock,
        identity: Identity,
        workspaces: Workspaces,
        metrics: Metrics,
    ) -> Self {
        Self { db, clock, identity, workspaces, metrics }
    }

    /// The permit for an action on a user. A refusal is recorded in the audit trail.
    ///
    /// # Errors
    /// The caller is no administrator, or the database failed.
    pub async fn permit(
        &self,
        caller: &Caller,
        action: Action,
        id: Uuid,
    ) -> Result<Permit<ManageUsers>, ApiError> {
        match access::manage_users(caller) {
            Ok(permit) => Ok(permit),
            Err(refusal) => self.refuse(caller, action, id, refusal).await,
        }
    }

    async fn refuse<T>(
        &self,
        by: &Caller,
        action: Action,
        id: Uuid,
        refusal: ApiError,
    ) -> Result<T, ApiError> {
        let event = Event {
            user_id: Some(by.user_id()),
            session_id: Some(by.session_id()),
            ..Event::success(action)
        };
        self.metrics.action(action, "refused");
        audit::record_refusal(&self.db, &self.clock, event.to_user(id), refusal).await
    }

    /// Refuses a caller who was suspended or lost the administrator role meanwhile, with the error
    /// that all their later requests get.
    async fn refuse_former_administrator<T>(
        &self,
        by: &Caller,
        action: Action,
        id: Uuid,
    ) -> Result<T, ApiError> {
        self.refuse(by, action, id, ApiError::new(Code::Unauthenticated, SIGN_IN)).await
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
    ) -> Result<UserList, ApiError> {
        // One row more than requested shows whether there is a next page.
        let mut rows = rows::list(&self.db, after, limit + 1).await?;
        let next_cursor = paging::truncate_page(&mut rows, limit, |row| row.email.clone());
        let items = rows.into_iter().map(to_api).collect::<Result<_, _>>()?;
        Ok(UserList { items, next_cursor })
    }

    /// The user with this name, or the owner of the workspace with this name.
    ///
    /// # Errors
    /// 404 if there is none, or the database failed.
    pub async fn by_name(
        &self,
        _: &Permit<ManageUsers>,
        name: &Name,
    ) -> Result<UserInfo, ApiError> {
        let row = rows::by_name(&self.db, name).await?.ok_or_else(access::name_not_found)?;
        Ok(to_api(row)?)
    }

    /// The user with this identifier.
    ///
    /// # Errors
    /// 404 if there is none, or the database failed.
    pub async fn existing(&self, _: &Permit<ManageUsers>, id: Uuid) -> Result<UserInfo, ApiError> {
        let row = rows::find(&self.db, id).await?.ok_or_else(|| {
            let text = "there is no such user; `kubectl tenant users list` lists them";
            ApiError::new(Code::NotFound, text)
        })?;
        Ok(to_api(row)?)
    }

    /// Suspends a user and all their workspaces. Once the transaction is durable the user has no
    /// session and gets no credential, because every replica reads the database on every request.
    /// Then the workspaces' rights are revoked in the cluster. Idempotent: a second call repeats
    /// the steps.
    ///
    /// # Errors
    /// 403 if callers suspend themselves, 404 if there is no such user, 401 if the caller was
    /// suspended meanwhile; or the database failed, and nothing was changed. A step that failed in
    /// the cluster is no error: it is open in the result, and the sweep retries it.
    pub async fn suspend(
        &self,
        permit: &Permit<ManageUsers>,
        kill: &Permit<SuspendWorkspaces>,
        id: Uuid,
        reason: Option<String>,
    ) -> Result<UserSuspension, ApiError> {
        let by = permit.caller();
        if id == by.user_id() {
            let text = "you cannot suspend yourself; another administrator has to";
            let refusal = ApiError::new(Code::Forbidden, text);
            return self.refuse(by, Action::SuspendUser, id, refusal).await;
        }
        self.existing(permit, id).await?;
        let reason = reason.unwrap_or_else(|| NO_REASON.to_owned());
        let because = Some(format!("the user was suspended: {reason}"));
        let mut tx = self.db.begin().await?;
        let change = async |tx: &mut Tx| rows::set_suspended(tx, id).await;
        let Some(changed) =
            rows::change_as_administrator(&mut tx, by.user_id(), id, change).await?
        else {
            drop(tx);
            return self.refuse_former_administrator(by, Action::SuspendUser, id).await;
        };
        // Read after the user's row is updated: an earlier `init` is seen here, and a later one
        // sees that the user is suspended.
        let rows = self.workspaces.for_user_in(&mut tx, id).await?;
        if changed {
            let why = "the user was suspended";
            self.identity.end_all_sessions(&mut tx, by, id, why).await?;
            self.record(&mut tx, permit, Action::SuspendUser, id, &reason).await?;
        }
        for workspace in &rows {
            self.workspaces.begin_suspension(&mut tx, kill, workspace, because.clone()).await?;
        }
        tx.commit().await?;
        if changed {
            self.metrics.action(Action::SuspendUser, "success");
        }
        let mut workspaces = Vec::new();
        for workspace in &rows {
            workspaces.push(self.workspaces.suspend(kill, workspace, because.clone()).await?);
        }
        Ok(UserSuspension { user: self.existing(permit, id).await?, workspaces })
    }

    /// Resumes a user, who may then sign in again. Earlier sessions stay ended, and the workspaces
    /// stay suspended.
    ///
    /// # Errors
    /// 404 if there is no such user, 401 if the caller was suspended meanwhile; or the database
    /// failed, and nothing was changed.
    pub async fn resume(
        &self,
        permit: &Permit<ManageUsers>,
        id: Uuid,
        reason: Option<String>,
    ) -> Result<UserInfo, ApiError> {
        self.existing(permit, id).await?;
        let by = permit.caller();
        let mut tx = self.db.begin().await?;
        let change = async |tx: &mut Tx| rows::set_active(tx, id).await;
        let Some(changed) =
            rows::change_as_administrator(&mut tx, by.user_id(), id, change).await?
        else {
            drop(tx);
            return self.refuse_former_administrator(by, Action::ResumeUser, id).await;
        };
        if changed {
            let reason = reason.as_deref().unwrap_or(NO_REASON);
            self.record(&mut tx, permit, Action::ResumeUser, id, reason).await?;
            tx.commit().await?;
            self.metrics.action(Action::ResumeUser, "success");
        }
        self.existing(permit, id).await
    }

    /// Changes a user's e-mail address, by default to a placeholder, so that the owner of the
    /// previous address can use it. Everything else stays: identifier, password, sessions,
    /// workspaces and audit rows.
    ///
    /// # Errors
    /// 400 if the text is no address, 404 if there is no such user, 409 if another user has the
    /// address, 401 if the caller was suspended meanwhile; or the database failed. Nothing was
    /// changed then.
    pub async fn change_email(
        &self,
        permit: &Permit<ManageUsers>,
        id: Uuid,
        email: Option<&str>,
        reason: Option<&str>,
    ) -> Result<UserInfo, ApiError> {
        self.existing(permit, id).await?;
        let email = match email {
            Some(text) => text
                .parse::<Email>()
                .map_err(|error| ApiError::new(Code::InvalidRequest, error.to_string()))?
                .as_str()
                .to_owned(),
            None => placeholder_email(id),
        };
        let by = permit.caller();
        let mut tx = self.db.begin().await?;
        let change = async |tx: &mut Tx| rows::set_email(tx, id, &email).await;
        let before = match rows::change_as_administrator(&mut tx, by.user_id(), id, change).await {
            Ok(Some(before)) => before,
            Ok(None) => {
                drop(tx);
                return self.refuse_former_administrator(by, Action::ChangeEmail, id).await;
            }
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {
                drop(tx);
                let text = "another user has this e-mail address; change theirs first";
                let refusal = ApiError::new(Code::EmailTaken, text);
                return self.refuse(by, Action::ChangeEmail, id, refusal).await;
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(before) = before.filter(|before| *before != email) {
            let reason = reason.unwrap_or(NO_REASON);
            let reason = format!("{before} is {email} from now on: {reason}");
            self.record(&mut tx, permit, Action::ChangeEmail, id, &reason).await?;
            tx.commit().await?;
            self.metrics.action(Action::ChangeEmail, "success");
        }
        self.existing(permit, id).await
    }

    async fn record(
        &self,
        tx: &mut Tx,
        permit: &Permit<ManageUsers>,
        action: Action,
        id: Uuid,
        reason: &str,
    ) -> sqlx::Result<()> {
        let by = permit.caller();
        let event = Event {
            user_id: Some(by.user_id()),
            session_id: Some(by.session_id()),
            reason: Some(reason.to_owned()),
            ..Event::success(action)
        }
        .to_user(id);
        audit::record(tx, &self.clock, event).await
    }

    /// A page of a user's live sessions, newest first.
    ///
    /// # Errors
    /// 404 if there is no such user, or the database failed.
    pub(crate) async fn sessions(
        &self,
        permit: &Permit<ManageUsers>,
        id: Uuid,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<SessionList, ApiError> {
        self.existing(permit, id).await?;
        self.identity.sessions_of(permit.caller(), id, after, limit).await
    }

    /// Ends one session of a user, or all.
    ///
    /// # Errors
    /// 404 if there is no such user; or the database failed, and no session was ended.
    pub async fn end_sessions(
        &self,
        permit: &Permit<ManageUsers>,
        id: Uuid,
        session: Option<Uuid>,
    ) -> Result<EndedSessions, ApiError> {
        self.existing(permit, id).await?;
        let which = session.map_or(SessionSelector::All, SessionSelector::One);
        let ended = self.identity.end_sessions(permit.caller(), id, which).await?;
        Ok(EndedSessions { ended })
    }
}

fn to_api(row: rows::UserRow) -> sqlx::Result<UserInfo> {
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
