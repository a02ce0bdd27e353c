//! The workspace operations of the HTTP API.

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
    identity::{Bearer, Caller, WorkspaceBearer},
    list::{self, Cursor},
    problem::Failure,
};

/// Workspaces of a page at most.
const MOST_OF_A_PAGE: u32 = 500;
/// Workspaces of a list that nobody asked for in pages at most: what clients of a time without pages
/// take for all.
const MOST_WHOLE: u32 = 10_000;

/// Operations on workspaces.
#[derive(Debug)]
pub struct WorkspaceApi {
    /// The verbs.
    pub workspaces: Workspaces,
    /// The same on the share of the database that nothing else can use up.
    pub authority: Workspaces,
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
    /// The caller's own, the oldest first; with `all=true` an administrator gets everybody's. Without
    /// `limit` and `cursor` the answer is the whole list, and 400 if that has more than 10,000
    /// workspaces. With one of them it is a page: `next_cursor` is there while there are more.
    #[oai(path = "/", method = "get", operation_id = "listWorkspaces")]
    async fn list(
        &self,
        caller: WorkspaceBearer,
        /// Everybody's, for administrators.
        all: Query<Option<bool>>,
        /// `next_cursor` of the page before.
        #[oai(validator(max_length = 64))]
        cursor: Query<Option<String>>,
        /// Rows of a page, 1 to 500; 500 if only `cursor` is given.
        #[oai(validator(minimum(value = "1"), maximum(value = "500")))]
        limit: Query<Option<u32>>,
    ) -> Result<Json<WorkspaceList>, Failure> {
        let everything = match all.0 {
            Some(true) => Some(access::read_everything(&caller.0)?),
            _ => None,
        };
        let whole = cursor.0.is_none() && limit.0.is_none();
        let after = cursor.0.as_deref().map(Cursor::parse).transpose()?;
        let limit =
            if whole { MOST_WHOLE } else { list::limit(limit.0, MOST_OF_A_PAGE, MOST_OF_A_PAGE)? };
        if whole && everything.is_some() && self.workspaces.are_more_than(MOST_WHOLE).await? {
            // A part of the list that looks like all of it would hide workspaces.
            let text = format!(
                "there are more than {MOST_WHOLE} workspaces: ask for pages with limit and cursor, \
                 or look one up by its name; a kubectl-tenant that does neither is too old"
            );
            return Err(Failure::new(Code::InvalidRequest, text));
        }
        Ok(Json(match everything {
            Some(permit) => self.workspaces.page_of_all(&permit, after, limit).await?,
            None => self.workspaces.page_of(&caller.0, after, limit).await?,
        }))
    }

    /// Look a workspace up
    ///
    /// By its namespace, its identifier, or the e-mail address or identifier of its owner; an exact
    /// match. A person finds their own, an administrator everybody's; 404 if there is none. A
    /// person's name gives all of their workspaces, 100 at most.
    #[oai(path = "/lookup", method = "get", operation_id = "lookUpWorkspace")]
    async fn look_up(
        &self,
        caller: WorkspaceBearer,
        /// The name, 254 bytes at most.
        #[oai(validator(max_length = 254))]
        name: Query<String>,
    ) -> Result<Json<WorkspaceList>, Failure> {
        let items = self.workspaces.named(&caller.0, &list::name(&name.0)?).await?;
        Ok(Json(WorkspaceList { items, next_cursor: None }))
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
        Ok(Json(self.workspaces.shown(&caller.0, id.0).await?))
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
        let found = self.authority.existing(id.0).await?;
        Ok(self.authority.suspend(&permit, &found, request.0.reason).await?.into())
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
        let found = self.authority.existing(id.0).await?;
        Ok(self.authority.resume(&permit, &found, request.0.reason).await?.into())
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
