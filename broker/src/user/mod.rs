//! Users, as administrators manage them: who there is, who may sign in, who is signed in where.

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
    clock::{Clock, timestamp},
    db::{Db, Tx},
    identity::{Caller, Email, Identity, Which, provider::placeholder},
    list::{self, Cursor},
    problem::{Failure, SIGN_IN},
    telemetry::Metrics,
    workspace::Workspaces,
};

/// What the audit trail says where an administrator gave no reason.
const NO_REASON: &str = "no reason given";

/// All users. Clones share everything.
#[derive(Clone, Debug)]
pub struct Users {
    db: Db,
    clock: Clock,
    identity: Identity,
    workspaces: Workspaces,
    metrics: Metrics,
}

impl Users {
    /// The verbs on this database.
    pub fn new(
        db: Db,
        clock: Clock,
        identity: Identity,
        workspaces: Workspaces,
        metrics: Metrics,
    ) -> Self {
        Self { db, clock, identity, workspaces, metrics }
    }

    /// The permit for something that is done to a user; a refusal is on record.
    ///
    /// # Errors
    /// The refusal; the database's.
    pub async fn permit(
        &self,
        caller: &Caller,
        action: Action,
        id: Uuid,
    ) -> Result<Permit<ManageUsers>, Failure> {
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
        refusal: Failure,
    ) -> Result<T, Failure> {
        let event = Event {
            user_id: Some(by.user_id()),
            session_id: Some(by.session_id()),
            ..Event::success(action)
        };
        self.metrics.action(action, "refused");
        audit::record_refusal(&self.db, &self.clock, event.to_user(id), refusal).await
    }

    /// Refuses somebody who was suspended, or lost the role, while this was decided: as every request
    /// of theirs from now on.
    async fn refuse_former_administrator<T>(
        &self,
        by: &Caller,
        action: Action,
        id: Uuid,
    ) -> Result<T, Failure> {
        self.refuse(by, action, id, Failure::new(Code::Unauthenticated, SIGN_IN)).await
    }

    /// A page of users by address, after this one.
    ///
    /// # Errors
    /// The database's.
    pub async fn list(
        &self,
        _: &Permit<ManageUsers>,
        after: &str,
        limit: u32,
    ) -> Result<UserList, Failure> {
        // One more than shown tells whether there is a next page.
        let mut rows = rows::list(&self.db, after, limit + 1).await?;
        let next_cursor = list::page(&mut rows, limit, |row| row.email.clone());
        let items = rows.into_iter().map(wire).collect::<Result<_, _>>()?;
        Ok(UserList { items, next_cursor })
    }

    /// The user of this name, or the owner of the workspace of this name.
    ///
    /// # Errors
    /// 404 if there is none; the database's.
    pub async fn named(&self, _: &Permit<ManageUsers>, name: &Name) -> Result<UserInfo, Failure> {
        let found = rows::named(&self.db, name).await?.ok_or_else(access::nothing_of_this_name)?;
        Ok(wire(found)?)
    }

    /// The user of this identifier.
    ///
    /// # Errors
    /// 404 if there is none; the database's.
    pub async fn existing(&self, _: &Permit<ManageUsers>, id: Uuid) -> Result<UserInfo, Failure> {
        let found = rows::find(&self.db, id).await?.ok_or_else(|| {
            let text = "there is no such user; `kubectl tenant users list` lists them";
            Failure::new(Code::NotFound, text)
        })?;
        Ok(wire(found)?)
    }

    /// Suspends a user and all their workspaces. They have no session and get no credential from the
    /// moment that this is durable: every replica asks the database on every request. Then the
    /// workspaces' rights are taken away in the cluster. Running it again does the same again.
    ///
    /// # Errors
    /// 403 for oneself, 404 if there is no such user, 401 if the caller was suspended meanwhile; the
    /// database's: then nothing was changed. A step that the cluster did not do is open in the answer, and the sweep goes on with it.
    pub async fn suspend(
        &self,
        permit: &Permit<ManageUsers>,
        kill: &Permit<SuspendWorkspaces>,
        id: Uuid,
        reason: Option<String>,
    ) -> Result<UserSuspension, Failure> {
        let by = permit.caller();
        if id == by.user_id() {
            let text = "you cannot suspend yourself; another administrator has to";
            let refusal = Failure::new(Code::Forbidden, text);
            return self.refuse(by, Action::SuspendUser, id, refusal).await;
        }
        self.existing(permit, id).await?;
        let reason = reason.unwrap_or_else(|| NO_REASON.to_owned());
        let because = Some(format!("the user was suspended: {reason}"));
        let mut tx = self.db.begin().await?;
        let change = async |tx: &mut Tx| rows::set_suspended(tx, id).await;
        let Some(changed) = rows::by_administrator(&mut tx, by.user_id(), id, change).await? else {
            drop(tx);
            return self.refuse_former_administrator(by, Action::SuspendUser, id).await;
        };
        // Read after the user's row is changed: an `init` that was faster is seen, a slower one sees
        // that the user is suspended.
        let found = self.workspaces.of_user_in(&mut tx, id).await?;
        if changed {
            let why = "the user was suspended";
            self.identity.end_all_sessions(&mut tx, by, id, why).await?;
            self.record(&mut tx, permit, Action::SuspendUser, id, &reason).await?;
        }
        for workspace in &found {
            self.workspaces.intend_suspension(&mut tx, kill, workspace, because.clone()).await?;
        }
        tx.commit().await?;
        if changed {
            self.metrics.action(Action::SuspendUser, "success");
        }
        let mut workspaces = Vec::new();
        for workspace in &found {
            workspaces.push(self.workspaces.suspend(kill, workspace, because.clone()).await?);
        }
        Ok(UserSuspension { user: self.existing(permit, id).await?, workspaces })
    }

    /// Lets a user in again; sessions from before stay ended, and workspaces suspended.
    ///
    /// # Errors
    /// 404 if there is no such user, 401 if the caller was suspended meanwhile; the database's: then
    /// nothing was changed.
    pub async fn resume(
        &self,
        permit: &Permit<ManageUsers>,
        id: Uuid,
        reason: Option<String>,
    ) -> Result<UserInfo, Failure> {
        self.existing(permit, id).await?;
        let by = permit.caller();
        let mut tx = self.db.begin().await?;
        let change = async |tx: &mut Tx| rows::set_active(tx, id).await;
        let Some(changed) = rows::by_administrator(&mut tx, by.user_id(), id, change).await? else {
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

    /// Gives a user another address, or one that is nobody's, so that whoever the old one belongs to
    /// can have it. Everything else stays: identifier, password, sessions, workspaces, audit rows.
    ///
    /// # Errors
    /// 400 for text that is no address, 404 if there is no such user, 409 if another user has the
    /// address, 401 if the caller was suspended meanwhile; the database's: then nothing was changed.
    pub async fn change_email(
        &self,
        permit: &Permit<ManageUsers>,
        id: Uuid,
        email: Option<&str>,
        reason: Option<&str>,
    ) -> Result<UserInfo, Failure> {
        self.existing(permit, id).await?;
        let email = match email {
            Some(text) => text
                .parse::<Email>()
                .map_err(|error| Failure::new(Code::InvalidRequest, error.to_string()))?
                .as_str()
                .to_owned(),
            None => placeholder(id),
        };
        let by = permit.caller();
        let mut tx = self.db.begin().await?;
        let change = async |tx: &mut Tx| rows::set_email(tx, id, &email).await;
        let before = match rows::by_administrator(&mut tx, by.user_id(), id, change).await {
            Ok(Some(before)) => before,
            Ok(None) => {
                drop(tx);
                return self.refuse_former_administrator(by, Action::ChangeEmail, id).await;
            }
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {
                drop(tx);
                let text = "another user has this e-mail address; change theirs first";
                let refusal = Failure::new(Code::EmailTaken, text);
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

    /// A page of the sessions of a user that are alive, the newest first.
    ///
    /// # Errors
    /// 404 if there is no such user; the database's.
    pub(crate) async fn sessions(
        &self,
        permit: &Permit<ManageUsers>,
        id: Uuid,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<SessionList, Failure> {
        self.existing(permit, id).await?;
        self.identity.sessions_of(permit.caller(), id, after, limit).await
    }

    /// Ends one session of a user, or all.
    ///
    /// # Errors
    /// 404 if there is no such user; the database's: then none was ended.
    pub async fn end_sessions(
        &self,
        permit: &Permit<ManageUsers>,
        id: Uuid,
        session: Option<Uuid>,
    ) -> Result<EndedSessions, Failure> {
        self.existing(permit, id).await?;
        let which = session.map_or(Which::All, Which::One);
        let ended = self.identity.end_sessions(permit.caller(), id, which).await?;
        Ok(EndedSessions { ended })
    }
}

fn wire(row: rows::Listed) -> sqlx::Result<UserInfo> {
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
