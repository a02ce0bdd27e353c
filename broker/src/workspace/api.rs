//! HTTP API of workspaces: `/workspaces`.

use poem_openapi::{
    ApiResponse, OpenApi,
    param::{Path, Query},
    payload::Json,
};
use tenant_shared::{
    Code, InitRequest, StepResult, SuspendRequest, Suspension, Workspace, WorkspaceList,
};
use uuid::Uuid;

use super::Workspaces;
use crate::{
    access::{self, Permit, SuspendWorkspaces},
    audit::Action,
    http::{ApiError, query},
    identity::{Authenticated, AuthenticatedForWorkspace, Caller},
};

/// Maximum number of workspaces on a page.
const MAX_PAGE_SIZE: u32 = 500;
/// Maximum number of workspaces in a list that was requested without paging. Clients from before
/// paging take this list for all workspaces.
const MAX_UNPAGED: u32 = 10_000;

/// Operations on workspaces.
#[derive(Debug)]
pub struct WorkspaceApi {
    /// The workspace service.
    pub workspaces: Workspaces,
    /// The same service on the database connections that are reserved for suspensions.
    pub authority: Workspaces,
}

/// Responses of `init`.
#[derive(ApiResponse)]
pub(crate) enum InitResponse {
    /// The workspace was created: all of its objects exist.
    #[oai(status = 201)]
    Created(Json<Workspace>),
    /// The workspace existed already.
    #[oai(status = 200)]
    Exists(Json<Workspace>),
}

/// Responses of `suspend` and `resume`.
#[derive(ApiResponse)]
pub(crate) enum SuspensionResponse {
    /// Every step is done.
    #[oai(status = 200)]
    Done(Json<Suspension>),
    /// The decision is recorded; the broker retries the open steps.
    #[oai(status = 202)]
    Open(Json<Suspension>),
}

impl From<Suspension> for SuspensionResponse {
    fn from(suspension: Suspension) -> Self {
        if suspension.steps.iter().all(|step| step.result == StepResult::Done) {
            Self::Done(Json(suspension))
        } else {
            Self::Open(Json(suspension))
        }
    }
}

#[OpenApi(prefix_path = "/workspaces")]
impl WorkspaceApi {
    /// Create my workspace
    ///
    /// Gives the caller a namespace with a quota, limits and a role in that namespace only. The
    /// operation is idempotent: the same call again returns 200 with the same body. Another tier is
    /// refused.
    #[oai(path = "/init", method = "post", operation_id = "initWorkspace")]
    async fn init(
        &self,
        caller: Authenticated,
        request: Json<InitRequest>,
    ) -> Result<InitResponse, ApiError> {
        let permit = access::create_workspace(&caller.0);
        let initialized = self.workspaces.init(&permit, &request.tier).await?;
        let body = Json(initialized.workspace.to_api());
        Ok(if initialized.created {
            InitResponse::Created(body)
        } else {
            InitResponse::Exists(body)
        })
    }

    /// List workspaces
    ///
    /// The caller's own workspaces, oldest first. With `all=true` an administrator gets
    /// everybody's. Without `limit` and `cursor` the response is the whole list, or 400 if there
    /// are more than 10,000 workspaces. With one of them it is a page, and `next_cursor` is set
    /// while there are more.
    #[oai(path = "/", method = "get", operation_id = "listWorkspaces")]
    async fn list(
        &self,
        caller: AuthenticatedForWorkspace,
        /// All workspaces instead of the caller's own; for administrators.
        all: Query<Option<bool>>,
        /// `next_cursor` of the previous page.
        #[oai(validator(max_length = 64))]
        cursor: Query<Option<String>>,
        /// Page size, 1 to 500. The default is 500 if `cursor` is given.
        #[oai(validator(minimum(value = "1"), maximum(value = "500")))]
        limit: Query<Option<u32>>,
    ) -> Result<Json<WorkspaceList>, ApiError> {
        let everything = match all.0 {
            Some(true) => Some(access::read_everything(&caller.0)?),
            _ => None,
        };
        let whole = cursor.0.is_none() && limit.0.is_none();
        let after = cursor.0.as_deref().map(query::parse_cursor).transpose()?;
        let limit = if whole {
            MAX_UNPAGED
        } else {
            query::parse_limit(limit.0, MAX_PAGE_SIZE, MAX_PAGE_SIZE)?
        };
        if whole && everything.is_some() && self.workspaces.are_more_than(MAX_UNPAGED).await? {
            // A partial list that looks complete would hide workspaces.
            let text = format!(
                "there are more than {MAX_UNPAGED} workspaces: request pages with limit and \
                 cursor, or look one up by its name; a kubectl-tenant that does neither is too old"
            );
            return Err(ApiError::new(Code::InvalidRequest, text));
        }
        Ok(Json(match everything {
            Some(permit) => self.workspaces.page_of_all(&permit, after, limit).await?,
            None => self.workspaces.page_of(&caller.0, after, limit).await?,
        }))
    }

    /// Look a workspace up
    ///
    /// Finds a workspace by its namespace, by its identifier, or by the e-mail address or
    /// identifier of its owner. The match is exact. A user finds their own workspaces, an
    /// administrator finds everybody's; 404 if there is none. The name of an owner gives all their
    /// workspaces, at most 100.
    #[oai(path = "/lookup", method = "get", operation_id = "lookUpWorkspace")]
    async fn look_up(
        &self,
        caller: AuthenticatedForWorkspace,
        /// The name to look up, at most 254 bytes.
        #[oai(validator(max_length = 254))]
        name: Query<String>,
    ) -> Result<Json<WorkspaceList>, ApiError> {
        let items = self.workspaces.by_name(&caller.0, &query::parse_name(&name.0)?).await?;
        Ok(Json(WorkspaceList { items, next_cursor: None }))
    }

    /// Show a workspace
    ///
    /// While the workspace is being created, suspended or resumed, `unfinished` lists the open
    /// steps. `drift` lists the differences between its objects in the cluster and their desired
    /// state.
    #[oai(path = "/:id", method = "get", operation_id = "showWorkspace")]
    async fn show(
        &self,
        caller: AuthenticatedForWorkspace,
        /// Identifier of the workspace.
        id: Path<Uuid>,
    ) -> Result<Json<Workspace>, ApiError> {
        Ok(Json(self.workspaces.show(&caller.0, id.0).await?))
    }

    /// Suspend a workspace (the kill switch)
    ///
    /// No credential is issued after the first step (`record`). The request body is optional.
    #[oai(path = "/:id/suspend", method = "post", operation_id = "suspendWorkspace")]
    async fn suspend(
        &self,
        caller: Authenticated,
        /// Identifier of the workspace.
        id: Path<Uuid>,
        request: crate::http::OptionalJson<SuspendRequest>,
    ) -> Result<SuspensionResponse, ApiError> {
        let permit = self.permit(&caller.0, Action::SuspendWorkspace, id.0).await?;
        let workspace = self.authority.existing(id.0).await?;
        Ok(self.authority.suspend(&permit, &workspace, request.0.reason).await?.into())
    }

    /// Resume a workspace
    ///
    /// Possible from 10 seconds after the suspension, and not while the owner is suspended. Tokens
    /// from before the suspension stay invalid. The request body is optional.
    #[oai(path = "/:id/resume", method = "post", operation_id = "resumeWorkspace")]
    async fn resume(
        &self,
        caller: Authenticated,
        /// Identifier of the workspace.
        id: Path<Uuid>,
        request: crate::http::OptionalJson<SuspendRequest>,
    ) -> Result<SuspensionResponse, ApiError> {
        let permit = self.permit(&caller.0, Action::ResumeWorkspace, id.0).await?;
        let workspace = self.authority.existing(id.0).await?;
        Ok(self.authority.resume(&permit, &workspace, request.0.reason).await?.into())
    }
}

impl WorkspaceApi {
    /// The permit to suspend and resume. A refusal is recorded in the audit trail.
    async fn permit(
        &self,
        caller: &Caller,
        action: Action,
        id: Uuid,
    ) -> Result<Permit<SuspendWorkspaces>, ApiError> {
        match access::suspend_workspaces(caller) {
            Ok(permit) => Ok(permit),
            Err(refusal) => self.workspaces.refuse(caller, action, id, refusal).await,
        }
    }
}
