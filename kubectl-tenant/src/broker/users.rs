//! Calls for users and their sessions.

use http::Method;
use tenant_shared::{
    ChangeEmailRequest, EndedSessions, Me, Name, SessionInfo, SetGroupsRequest, UserGroups,
    UserInfo, UserSuspension,
};
use uuid::Uuid;

use super::{Broker, Page, json_body, lookup_path};
use crate::error::Error;

impl Broker {
    /// Returns the signed-in user.
    pub(crate) async fn me(&self) -> Result<Me, Error> {
        self.parse(&self.call(Method::GET, "/me", None).await?)
    }

    /// Looks up the user of this name, for an administrator.
    pub(crate) async fn user_named(&self, name: &Name) -> Result<UserInfo, Error> {
        self.parse(&self.call(Method::GET, &lookup_path("/users", name), None).await?)
    }

    /// Lists at most `limit` sessions of this user or of another one.
    pub(crate) async fn sessions(
        &self,
        user: Option<Uuid>,
        limit: u32,
    ) -> Result<Page<SessionInfo>, Error> {
        let path = user.map(|id| format!("/users/{id}/sessions"));
        self.list(path.as_deref().unwrap_or("/me/sessions"), &[], limit).await
    }

    /// Revokes one session or all sessions of another user, for an administrator.
    pub(crate) async fn end_sessions_of(
        &self,
        user: Uuid,
        session: Option<Uuid>,
    ) -> Result<EndedSessions, Error> {
        let session = session.map(|id| format!("?session_id={id}")).unwrap_or_default();
        let path = format!("/users/{user}/sessions{session}");
        self.parse(&self.call(Method::DELETE, &path, None).await?)
    }

    /// Revokes one session of this user.
    pub(crate) async fn end_session(&self, id: Uuid) -> Result<(), Error> {
        self.call(Method::DELETE, &format!("/me/sessions/{id}"), None).await.map(drop)
    }

    /// Revokes every session of this user, or all but the current one.
    pub(crate) async fn end_sessions(&self, keep_current: bool) -> Result<EndedSessions, Error> {
        let path = format!("/me/sessions?keep_current={keep_current}");
        self.parse(&self.call(Method::DELETE, &path, None).await?)
    }

    /// Lists at most `limit` users by e-mail address, for an administrator.
    pub(crate) async fn users(&self, limit: u32) -> Result<Page<UserInfo>, Error> {
        self.list("/users", &[], limit).await
    }

    /// Suspends a user and their workspaces.
    pub(crate) async fn suspend_user(
        &self,
        id: Uuid,
        reason: Option<&str>,
    ) -> Result<UserSuspension, Error> {
        self.post_reason(&format!("/users/{id}/suspend"), reason).await
    }

    /// Resumes a suspended user.
    pub(crate) async fn resume_user(
        &self,
        id: Uuid,
        reason: Option<&str>,
    ) -> Result<UserInfo, Error> {
        self.post_reason(&format!("/users/{id}/resume"), reason).await
    }

    /// Changes a user's e-mail address; without `email` to a placeholder that nobody owns.
    pub(crate) async fn change_email(
        &self,
        id: Uuid,
        email: Option<&str>,
        reason: Option<&str>,
    ) -> Result<UserInfo, Error> {
        let (email, reason) = (email.map(str::to_owned), reason.map(str::to_owned));
        let body = json_body(&ChangeEmailRequest { email, reason })?;
        self.parse(&self.call(Method::POST, &format!("/users/{id}/email"), Some(body)).await?)
    }

    /// The groups of a user for Tenants.
    pub(crate) async fn groups(&self, id: Uuid) -> Result<UserGroups, Error> {
        self.parse(&self.call(Method::GET, &format!("/users/{id}/groups"), None).await?)
    }

    /// Replaces the groups of a user with a local account.
    pub(crate) async fn set_groups(
        &self,
        id: Uuid,
        groups: &[String],
        reason: Option<&str>,
    ) -> Result<UserGroups, Error> {
        let (groups, reason) = (Some(groups.to_vec()), reason.map(str::to_owned));
        let body = json_body(&SetGroupsRequest { groups, reason })?;
        self.parse(&self.call(Method::POST, &format!("/users/{id}/groups"), Some(body)).await?)
    }
}
