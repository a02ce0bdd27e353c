//! HTTP API of users for administrators: `/users`.

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
    http::{ApiError, OptionalJson, query},
    identity::{Authenticated, MAX_SESSIONS},
};

/// Default page size of the list of users.
const DEFAULT_LIMIT: u32 = 100;
/// Maximum page size of the list of users.
const MAX_LIMIT: u32 = 500;

/// Operations on users, for administrators.
#[derive(Clone, Debug)]
pub struct UserApi {
    /// The user service.
    pub users: Users,
}

/// Responses of `suspend`.
#[derive(ApiResponse)]
pub(crate) enum SuspensionResponse {
    /// Every step is done.
    #[oai(status = 200)]
    Done(Json<UserSuspension>),
    /// The decision is recorded; the broker retries the open steps.
    #[oai(status = 202)]
    Open(Json<UserSuspension>),
}

impl From<UserSuspension> for SuspensionResponse {
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
    /// Lists users ordered by e-mail address, in pages. `next_cursor` is set while there are more.
    #[oai(path = "/", method = "get", operation_id = "listUsers")]
    async fn list(
        &self,
        caller: Authenticated,
        /// `next_cursor` of the previous page.
        #[oai(validator(max_length = 254))]
        cursor: Query<Option<String>>,
        /// Page size, 1 to 500. The default is 100.
        #[oai(validator(minimum(value = "1"), maximum(value = "500")))]
        limit: Query<Option<u32>>,
    ) -> Result<Json<UserList>, ApiError> {
        let permit = access::manage_users(&caller.0)?;
        let limit = query::parse_limit(limit.0, DEFAULT_LIMIT, MAX_LIMIT)?;
        Ok(Json(self.users.list(&permit, cursor.0.as_deref().unwrap_or_default(), limit).await?))
    }

    /// Look a user up
    ///
    /// Finds a user by their e-mail address or identifier, or by the namespace or identifier of one
    /// of their workspaces. The match is exact; 404 if there is none.
    #[oai(path = "/lookup", method = "get", operation_id = "lookUpUser")]
    async fn look_up(
        &self,
        caller: Authenticated,
        /// The name to look up, at most 254 bytes.
        #[oai(validator(max_length = 254))]
        name: Query<String>,
    ) -> Result<Json<UserInfo>, ApiError> {
        let permit = access::manage_users(&caller.0)?;
        Ok(Json(self.users.by_name(&permit, &query::parse_name(&name.0)?).await?))
    }

    /// Show a user
    #[oai(path = "/:id", method = "get", operation_id = "showUser")]
    async fn show(
        &self,
        caller: Authenticated,
        /// Identifier of the user.
        id: Path<Uuid>,
    ) -> Result<Json<UserInfo>, ApiError> {
        let permit = access::manage_users(&caller.0)?;
        Ok(Json(self.users.existing(&permit, id.0).await?))
    }

    /// Suspend a user
    ///
    /// Ends every session of the user at once, stops the issuance of credentials on every replica,
    /// and suspends all their workspaces. The request body is optional.
    #[oai(path = "/:id/suspend", method = "post", operation_id = "suspendUser")]
    async fn suspend(
        &self,
        caller: Authenticated,
        /// Identifier of the user.
        id: Path<Uuid>,
        request: OptionalJson<SuspendRequest>,
    ) -> Result<SuspensionResponse, ApiError> {
        let permit = self.users.permit(&caller.0, Action::SuspendUser, id.0).await?;
        let kill = access::suspend_workspaces(&caller.0)?;
        Ok(self.users.suspend(&permit, &kill, id.0, request.0.reason).await?.into())
    }

    /// Resume a user
    ///
    /// Lets a suspended user sign in again. Earlier sessions stay ended, and the workspaces stay
    /// suspended until each is resumed. The request body is optional.
    #[oai(path = "/:id/resume", method = "post", operation_id = "resumeUser")]
    async fn resume(
        &self,
        caller: Authenticated,
        /// Identifier of the user.
        id: Path<Uuid>,
        request: OptionalJson<SuspendRequest>,
    ) -> Result<Json<UserInfo>, ApiError> {
        let permit = self.users.permit(&caller.0, Action::ResumeUser, id.0).await?;
        Ok(Json(self.users.resume(&permit, id.0, request.0.reason).await?))
    }

    /// Change a user's e-mail address
    ///
    /// Frees an address that somebody registered without owning it, so that its owner can sign in
    /// through a provider. Sessions, workspaces and the audit trail stay unchanged; suspend the
    /// user to keep them out. A user of a provider gets the provider's address again at their next
    /// sign-in. The request body is optional.
    #[oai(path = "/:id/email", method = "post", operation_id = "changeEmailOfUser")]
    async fn change_email(
        &self,
        caller: Authenticated,
        /// Identifier of the user.
        id: Path<Uuid>,
        request: OptionalJson<ChangeEmailRequest>,
    ) -> Result<Json<UserInfo>, ApiError> {
        let permit = self.users.permit(&caller.0, Action::ChangeEmail, id.0).await?;
        let ChangeEmailRequest { email, reason } = request.0;
        let changed = self.users.change_email(&permit, id.0, email.as_deref(), reason.as_deref());
        Ok(Json(changed.await?))
    }

    /// List a user's sessions
    ///
    /// Lists the user's live sessions, newest first. `next_cursor` is set while there are more.
    #[oai(path = "/:id/sessions", method = "get", operation_id = "listSessionsOfUser")]
    async fn sessions(
        &self,
        caller: Authenticated,
        /// Identifier of the user.
        id: Path<Uuid>,
        /// `next_cursor` of the previous page.
        #[oai(validator(max_length = 64))]
        cursor: Query<Option<String>>,
        /// Page size, 1 to 1000. The default is 1000.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
    ) -> Result<Json<SessionList>, ApiError> {
        let permit = access::manage_users(&caller.0)?;
        let after = cursor.0.as_deref().map(query::parse_cursor).transpose()?;
        let limit = query::parse_limit(limit.0, MAX_SESSIONS, MAX_SESSIONS)?;
        Ok(Json(self.users.sessions(&permit, id.0, after, limit).await?))
    }

    /// End a user's sessions
    ///
    /// Ends all sessions of the user, or only one.
    #[oai(path = "/:id/sessions", method = "delete", operation_id = "endSessionsOfUser")]
    async fn end_sessions(
        &self,
        caller: Authenticated,
        /// Identifier of the user.
        id: Path<Uuid>,
        /// Identifier of the only session to end.
        session_id: Query<Option<Uuid>>,
    ) -> Result<Json<EndedSessions>, ApiError> {
        let permit = self.users.permit(&caller.0, Action::SignOut, id.0).await?;
        Ok(Json(self.users.end_sessions(&permit, id.0, session_id.0).await?))
    }
}
