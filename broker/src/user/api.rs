//! `/users`.

use poem_openapi::{
    ApiResponse, OpenApi,
    param::{Path, Query},
    payload::Json,
};
use tenant_shared::{
    ChangeEmailRequest, EndedSessions, SessionList, StepResult, SuspendRequest, UserInfo, UserList,
    UserSuspension,
};
use uuid::Uuid;

use super::Users;
use crate::{
    access,
    audit::Action,
    http::OptionalJson,
    identity::{Bearer, MOST_SESSIONS},
    list::{self, Cursor},
    problem::Failure,
};

/// Users of a page where the caller names no number.
const DEFAULT_LIMIT: u32 = 100;
/// Users of a page at most.
const MOST: u32 = 500;

/// Operations on users, for administrators.
#[derive(Clone, Debug)]
pub struct UserApi {
    /// The verbs.
    pub users: Users,
}

/// Answers of `suspend`.
#[derive(ApiResponse)]
pub(crate) enum SuspensionAnswer {
    /// Every step is done.
    #[oai(status = 200)]
    Done(Json<UserSuspension>),
    /// The decision stands; the broker goes on with the open steps.
    #[oai(status = 202)]
    Open(Json<UserSuspension>),
}

impl From<UserSuspension> for SuspensionAnswer {
    fn from(suspension: UserSuspension) -> Self {
        let steps = suspension.workspaces.iter().flat_map(|workspace| &workspace.steps);
        if steps.into_iter().all(|step| step.result == StepResult::Done) {
            Self::Done(Json(suspension))
        } else {
            Self::Open(Json(suspension))
        }
    }
}

#[OpenApi(prefix_path = "/users")]
impl UserApi {
    /// List users
    ///
    /// By e-mail address, page by page: `next_cursor` is there while there are more.
    #[oai(path = "/", method = "get", operation_id = "listUsers")]
    async fn list(
        &self,
        caller: Bearer,
        /// `next_cursor` of the page before.
        #[oai(validator(max_length = 254))]
        cursor: Query<Option<String>>,
        /// Rows of a page, 1 to 500, 100 if not given.
        #[oai(validator(minimum(value = "1"), maximum(value = "500")))]
        limit: Query<Option<u32>>,
    ) -> Result<Json<UserList>, Failure> {
        let permit = access::manage_users(&caller.0)?;
        let limit = list::limit(limit.0, DEFAULT_LIMIT, MOST)?;
        Ok(Json(self.users.list(&permit, cursor.0.as_deref().unwrap_or_default(), limit).await?))
    }

    /// Look a user up
    ///
    /// By e-mail address or identifier, or by the namespace or identifier of a workspace of theirs;
    /// an exact match. 404 if there is none.
    #[oai(path = "/lookup", method = "get", operation_id = "lookUpUser")]
    async fn look_up(
        &self,
        caller: Bearer,
        /// The name, 254 bytes at most.
        #[oai(validator(max_length = 254))]
        name: Query<String>,
    ) -> Result<Json<UserInfo>, Failure> {
        let permit = access::manage_users(&caller.0)?;
        Ok(Json(self.users.named(&permit, &list::name(&name.0)?).await?))
    }

    /// Show a user
    #[oai(path = "/:id", method = "get", operation_id = "showUser")]
    async fn show(
        &self,
        caller: Bearer,
        /// Its identifier.
        id: Path<Uuid>,
    ) -> Result<Json<UserInfo>, Failure> {
        let permit = access::manage_users(&caller.0)?;
        Ok(Json(self.users.existing(&permit, id.0).await?))
    }

    /// Suspend a user
    ///
    /// Every session ends at once, nothing is issued any more on any replica, and all their
    /// workspaces are suspended. The body may be left out.
    #[oai(path = "/:id/suspend", method = "post", operation_id = "suspendUser")]
    async fn suspend(
        &self,
        caller: Bearer,
        /// Its identifier.
        id: Path<Uuid>,
        request: OptionalJson<SuspendRequest>,
    ) -> Result<SuspensionAnswer, Failure> {
        let permit = self.users.permit(&caller.0, Action::SuspendUser, id.0).await?;
        let kill = access::suspend_workspaces(&caller.0)?;
        Ok(self.users.suspend(&permit, &kill, id.0, request.0.reason).await?.into())
    }

    /// Let a user in again
    ///
    /// Sessions from before stay ended, and workspaces suspended until they are resumed themselves.
    /// The body may be left out.
    #[oai(path = "/:id/resume", method = "post", operation_id = "resumeUser")]
    async fn resume(
        &self,
        caller: Bearer,
        /// Its identifier.
        id: Path<Uuid>,
        request: OptionalJson<SuspendRequest>,
    ) -> Result<Json<UserInfo>, Failure> {
        let permit = self.users.permit(&caller.0, Action::ResumeUser, id.0).await?;
        Ok(Json(self.users.resume(&permit, id.0, request.0.reason).await?))
    }

    /// Change a user's e-mail address
    ///
    /// For an address that somebody registered who does not own it: its owner can sign in at a
    /// provider once it is free. Sessions, workspaces and the audit trail stay as they are; to keep
    /// the user out, suspend them. A provider's user gets the provider's address again at their next
    /// sign-in. The body may be left out.
    #[oai(path = "/:id/email", method = "post", operation_id = "changeEmailOfUser")]
    async fn change_email(
        &self,
        caller: Bearer,
        /// Its identifier.
        id: Path<Uuid>,
        request: OptionalJson<ChangeEmailRequest>,
    ) -> Result<Json<UserInfo>, Failure> {
        let permit = self.users.permit(&caller.0, Action::ChangeEmail, id.0).await?;
        let ChangeEmailRequest { email, reason } = request.0;
        let changed = self.users.change_email(&permit, id.0, email.as_deref(), reason.as_deref());
        Ok(Json(changed.await?))
    }

    /// List a user's sessions
    ///
    /// The newest first; `next_cursor` is there while there are more.
    #[oai(path = "/:id/sessions", method = "get", operation_id = "listSessionsOfUser")]
    async fn sessions(
        &self,
        caller: Bearer,
        /// The user's identifier.
        id: Path<Uuid>,
        /// `next_cursor` of the page before.
        #[oai(validator(max_length = 64))]
        cursor: Query<Option<String>>,
        /// Rows of a page, 1 to 1000, 1000 if not given.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
    ) -> Result<Json<SessionList>, Failure> {
        let permit = access::manage_users(&caller.0)?;
        let after = cursor.0.as_deref().map(Cursor::parse).transpose()?;
        let limit = list::limit(limit.0, MOST_SESSIONS, MOST_SESSIONS)?;
        Ok(Json(self.users.sessions(&permit, id.0, after, limit).await?))
    }

    /// End a user's sessions
    ///
    /// One of them, or all.
    #[oai(path = "/:id/sessions", method = "delete", operation_id = "endSessionsOfUser")]
    async fn end_sessions(
        &self,
        caller: Bearer,
        /// The user's identifier.
        id: Path<Uuid>,
        /// Only this session.
        session_id: Query<Option<Uuid>>,
    ) -> Result<Json<EndedSessions>, Failure> {
        let permit = self.users.permit(&caller.0, Action::SignOut, id.0).await?;
        Ok(Json(self.users.end_sessions(&permit, id.0, session_id.0).await?))
    }
}
