//! The workspace operations of the HTTP API.

use poem_openapi::{
    ApiResponse, OpenApi,
    param::{Path, Query},
    payload::Json,
};
use tenant_shared::{
    InitRequest, StepResult, SuspendRequest, Suspension, Workspace, WorkspaceList,
};
use uuid::Uuid;

use super::Workspaces;
use crate::{
    access::{self, Owned as _, Permit, SuspendWorkspaces},
    audit::Action,
    identity::{Bearer, Caller, WorkspaceBearer},
    problem::Failure,
};

/// Operations on workspaces.
#[derive(Debug)]
pub struct WorkspaceApi {
    /// The verbs.
    pub workspaces: Workspaces,
}

/// Answers of `init`.
#[derive(ApiResponse)]
pub(crate) enum InitAnswer {
    /// The workspace was made: all of its objects exist.
    #[oai(status = 201)]
    Created(Json<Workspace>),
    /// The workspace was there already.
    #[oai(status = 200)]
    Exists(Json<Workspace>),
}

/// Answers of `suspend` and `resume`.
#[derive(ApiResponse)]
pub(crate) enum SuspensionAnswer {
    /// Every step is done.
    #[oai(status = 200)]
    Done(Json<Suspension>),
    /// The decision stands; the broker goes on with the open steps.
    #[oai(status = 202)]
    Open(Json<Suspension>),
}

impl From<Suspension> for SuspensionAnswer {
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
    /// Make my workspace
    ///
    /// Gives the caller a namespace with quota, limits and a role that ends at its border. The same
    /// call again answers 200 with the same body; another tier is refused.
    #[oai(path = "/init", method = "post", operation_id = "initWorkspace")]
    async fn init(
        &self,
        caller: Bearer,
        request: Json<InitRequest>,
    ) -> Result<InitAnswer, Failure> {
        let permit = access::create_workspace(&caller.0);
        let initialized = self.workspaces.init(&permit, &request.tier).await?;
        let body = Json(initialized.workspace.wire());
        Ok(if initialized.created { InitAnswer::Created(body) } else { InitAnswer::Exists(body) })
    }

    /// List workspaces
    ///
    /// The caller's own; with `all=true` an administrator gets everybody's.
    #[oai(path = "/", method = "get", operation_id = "listWorkspaces")]
    async fn list(
        &self,
        caller: WorkspaceBearer,
        /// Everybody's, for administrators.
        all: Query<Option<bool>>,
    ) -> Result<Json<WorkspaceList>, Failure> {
        let found = if all.0.unwrap_or(false) {
            self.workspaces.list_all(&access::read_everything(&caller.0)?).await?
        } else {
            let mut found = self.workspaces.of_user(caller.0.user_id()).await?;
            found.retain(|found| caller.0.may_know(found.id()));
            found
        };
        Ok(Json(WorkspaceList { items: self.workspaces.described(&found).await? }))
    }

    /// Show a workspace
    ///
    /// While it is being made, suspended or resumed, `unfinished` says which steps are open; `drift`
    /// says what is not as it has to be in the cluster.
    #[oai(path = "/:id", method = "get", operation_id = "showWorkspace")]
    async fn show(
        &self,
        caller: WorkspaceBearer,
        /// Its identifier.
        id: Path<Uuid>,
    ) -> Result<Json<Workspace>, Failure> {
        let found = self.workspaces.existing(id.0).await?;
        access::read_workspace(&caller.0, &found)?;
        let described = self.workspaces.described(&[found]).await?;
        described.into_iter().next().map(Json).ok_or_else(access::no_such_workspace)
    }

    /// Suspend a workspace (the kill switch)
    ///
    /// From the first step on nothing is issued any more. The body may be left out.
    #[oai(path = "/:id/suspend", method = "post", operation_id = "suspendWorkspace")]
    async fn suspend(
        &self,
        caller: Bearer,
        /// Its identifier.
        id: Path<Uuid>,
        request: crate::http::OptionalJson<SuspendRequest>,
    ) -> Result<SuspensionAnswer, Failure> {
        let permit = self.permit(&caller.0, Action::SuspendWorkspace, id.0).await?;
        let found = self.workspaces.existing(id.0).await?;
        Ok(self.workspaces.suspend(&permit, &found, request.0.reason).await?.into())
    }

    /// Resume a workspace
    ///
    /// At the earliest 10 seconds after its suspension, and not while its owner is suspended. Tokens
    /// from before stay dead. The body may be left out.
    #[oai(path = "/:id/resume", method = "post", operation_id = "resumeWorkspace")]
    async fn resume(
        &self,
        caller: Bearer,
        /// Its identifier.
        id: Path<Uuid>,
        request: crate::http::OptionalJson<SuspendRequest>,
    ) -> Result<SuspensionAnswer, Failure> {
        let permit = self.permit(&caller.0, Action::ResumeWorkspace, id.0).await?;
        let found = self.workspaces.existing(id.0).await?;
        Ok(self.workspaces.resume(&permit, &found, request.0.reason).await?.into())
    }
}

impl WorkspaceApi {
    /// The permit to suspend and resume; a refusal is on record.
    async fn permit(
        &self,
        caller: &Caller,
        action: Action,
        id: Uuid,
    ) -> Result<Permit<SuspendWorkspaces>, Failure> {
        match access::suspend_workspaces(caller) {
            Ok(permit) => Ok(permit),
            Err(refusal) => self.workspaces.refuse(caller, action, id, refusal).await,
        }
    }
}
