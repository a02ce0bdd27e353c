//! The credential operations of the HTTP API.

use poem_openapi::{
    OpenApi,
    param::{Path, Query},
    payload::Json,
};
use secrecy::ExposeSecret as _;
use tenant_shared::{Code, Credential};
use uuid::Uuid;

use super::{Credentials, IssueError, Issued, Mode, Parts, User, render};
use crate::{
    access::{self, Owned as _},
    audit::Action,
    http::Yaml,
    identity::{Caller, WorkspaceBearer},
    problem::Failure,
    workspace::{Active, Found, Workspaces, cluster_failure},
};

/// Operations that hand out credentials.
#[derive(Debug)]
pub struct CredentialApi {
    /// Where workspaces are.
    pub workspaces: Workspaces,
    /// Who issues.
    pub credentials: Credentials,
    /// URL of the broker, as people's kubeconfigs name it.
    pub broker_url: String,
}

#[OpenApi(prefix_path = "/workspaces")]
impl CredentialApi {
    /// Get a token for a workspace
    ///
    /// For the exec plugin: a Kubernetes token of the workspace's ServiceAccount, for two hours at
    /// most. Only the owner gets one.
    #[oai(path = "/:id/credentials", method = "post", operation_id = "issueCredential")]
    async fn issue(
        &self,
        caller: WorkspaceBearer,
        /// The workspace.
        id: Path<Uuid>,
    ) -> Result<Json<Credential>, Failure> {
        let found = self.workspaces.existing(id.0).await?;
        let active = self.active(&caller.0, &found, Action::IssueCredential).await?;
        let issued = self.credentials.issue(&active, Action::IssueCredential).await?;
        Ok(Json(wire(&issued)))
    }

    /// Get a kubeconfig
    ///
    /// `mode=static` (the default) carries a token for two hours at most; `mode=exec` carries none,
    /// kubectl asks the plugin kubectl-tenant instead. Keep a static one secret.
    #[oai(path = "/credentials/kubeconfig", method = "get", operation_id = "getKubeconfig")]
    async fn kubeconfig(
        &self,
        caller: WorkspaceBearer,
        /// `static` or `exec`.
        mode: Query<Option<Mode>>,
        /// The workspace; without it the caller's first.
        workspace: Query<Option<Uuid>>,
    ) -> Result<Yaml, Failure> {
        let found = match workspace.0 {
            Some(id) => self.workspaces.existing(id).await?,
            None => self
                .workspaces
                .of_user(caller.0.user_id())
                .await?
                .into_iter()
                .find(|found| caller.0.may_know(found.id()))
                .ok_or_else(no_workspace_yet)?,
        };
        let active = self.active(&caller.0, &found, Action::IssueKubeconfig).await?;
        let issued = match mode.0.unwrap_or_default() {
            Mode::Static => Some(self.credentials.issue(&active, Action::IssueKubeconfig).await?),
            Mode::Exec => None,
        };
        let user = match &issued {
            Some(issued) => User::Token(&issued.token),
            None => User::Exec {
                broker: &self.broker_url,
                workspace: active.permit().workspace().unwrap_or_default(),
            },
        };
        let endpoint = self.workspaces.cluster().endpoint();
        let document = render(&Parts { endpoint, namespace: active.namespace(), user })
            .map_err(|error| Failure::internal(&error))?;
        Ok(Yaml(document))
    }
}

impl CredentialApi {
    async fn active(
        &self,
        caller: &Caller,
        found: &Found,
        action: Action,
    ) -> Result<Active, Failure> {
        match access::use_workspace(caller, found) {
            Ok(permit) => Ok(self.workspaces.active(permit, found)?),
            Err(refusal) => self.workspaces.refuse(caller, action, found.id(), refusal).await,
        }
    }
}

fn no_workspace_yet() -> Failure {
    Failure::new(Code::NotFound, "you have no workspace yet; make one with `kubectl tenant init`")
}

fn wire(issued: &Issued) -> Credential {
    Credential {
        token: issued.token.expose_secret().to_owned(),
        expiration_timestamp: issued.expires_at.into(),
        expires_in: issued.lifetime,
        credential_id: issued.credential_id.clone(),
        workspace_id: issued.workspace_id,
    }
}

impl From<IssueError> for Failure {
    fn from(error: IssueError) -> Self {
        match error {
            IssueError::Cluster(error) => cluster_failure(&error),
            IssueError::Ledger(error) => {
                crate::problem::note("cause", error.to_string());
                Self::new(
                    Code::StorageUnavailable,
                    "the issuance could not be recorded, so the token was dropped; try again",
                )
            }
        }
    }
}
