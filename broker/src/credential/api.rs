//! HTTP API of credentials: `/workspaces/{id}/credentials` and the kubeconfig.

use poem_openapi::{
    ApiResponse, OpenApi,
    param::{Path, Query},
    payload::Json,
};
use secrecy::ExposeSecret as _;
use tenant_shared::{
    Code, Credential, CredentialId, CredentialIdError, CredentialKind, CredentialPage,
    GATEWAY_PATH, Revocation, RevocationState,
};
use uuid::Uuid;

use super::{
    Credentials, IssueError, Issued, Mode, NotRecorded, Parts, RevokeError, TokenSource, render,
};
use crate::{
    access::{self, Owned as _},
    audit::Action,
    cluster::{ClusterError, Endpoint},
    http::{ApiError, Yaml, query},
    identity::{Authenticated, AuthenticatedForWorkspace, Caller},
    workspace::{Active, WorkspaceError, WorkspaceRow, Workspaces, cluster_failure},
};

/// Default page size of the list of credentials.
const DEFAULT_LIMIT: u32 = 50;
/// Maximum page size of the list of credentials.
const MAX_LIMIT: u32 = 500;
/// Maximum number of attempts of an issuance whose ServiceAccount is replaced meanwhile.
const MAX_ATTEMPTS: usize = 4;

/// Operations on credentials.
#[derive(Debug)]
pub struct CredentialApi {
    /// The workspace service.
    pub workspaces: Workspaces,
    /// The credential service.
    pub credentials: Credentials,
    /// URL of the broker for kubeconfigs.
    pub broker_url: String,
}

/// Responses of `revoke`.
#[derive(ApiResponse)]
pub(crate) enum RevocationResponse {
    /// Every step is done, or there was nothing to do.
    #[oai(status = 200)]
    Done(Json<Revocation>),
    /// The decision is recorded; the broker retries the open steps.
    #[oai(status = 202)]
    Open(Json<Revocation>),
}

#[OpenApi(prefix_path = "/workspaces")]
impl CredentialApi {
    /// Get a token for a workspace
    ///
    /// Issues a Kubernetes token of the workspace's ServiceAccount for the exec plugin. The token
    /// is valid for at most two hours. Only the owner of the workspace may request one.
    #[oai(path = "/:id/credentials", method = "post", operation_id = "issueCredential")]
    async fn issue(
        &self,
        caller: AuthenticatedForWorkspace,
        /// The workspace.
        id: Path<Uuid>,
    ) -> Result<Json<Credential>, ApiError> {
        let workspace = self.workspaces.existing(id.0).await?;
        let (_, issued) = self.issue_for(&caller.0, workspace, CredentialKind::Exec).await?;
        Ok(Json(to_api(&issued)))
    }

    /// List a workspace's credentials
    ///
    /// Lists the live credentials, newest first; with `all=true` also those that expired or were
    /// revoked. The list never contains a token. For the owner and administrators.
    #[oai(path = "/:id/credentials", method = "get", operation_id = "listCredentials")]
    async fn list(
        &self,
        caller: Authenticated,
        /// The workspace.
        id: Path<Uuid>,
        /// Also list credentials that expired, were revoked or were withdrawn.
        all: Query<Option<bool>>,
        /// `next_cursor` of the previous page.
        #[oai(validator(max_length = 132))]
        cursor: Query<Option<String>>,
        /// Page size, 1 to 500. The default is 50.
        #[oai(validator(minimum(value = "1"), maximum(value = "500")))]
        limit: Query<Option<u32>>,
    ) -> Result<Json<CredentialPage>, ApiError> {
        let workspace = self.workspaces.existing(id.0).await?;
        let permit = access::read_workspace(&caller.0, &workspace)?;
        let limit = query::parse_limit(limit.0, DEFAULT_LIMIT, MAX_LIMIT)?;
        let cursor = cursor.0.as_deref().map(credential_id).transpose()?;
        let (all, after) = (all.0.unwrap_or(false), cursor.as_ref().map(CredentialId::as_str));
        Ok(Json(self.credentials.list(&permit, all, after, limit as usize).await?))
    }

    /// Revoke a credential
    ///
    /// A credential that is bound to its own Secret is revoked alone. Without a Secret
    /// (`cluster.bind_tokens_to_secrets` is off) the workspace's ServiceAccount is replaced, which
    /// revokes all its credentials: exec plugins get new ones, downloaded kubeconfigs do not. An
    /// API server may accept a token that it accepted before for up to ten more seconds. Revoking
    /// an expired or withdrawn credential is a no-op and says so (`state` is `over`); a second call
    /// for a revoked one continues with the open steps. For the owner and administrators.
    #[oai(
        path = "/:id/credentials/:credential_id",
        method = "delete",
        operation_id = "revokeCredential"
    )]
    async fn revoke(
        &self,
        caller: Authenticated,
        /// The workspace.
        id: Path<Uuid>,
        /// The credential's id from the list or the cluster's audit log (`JTI=…`).
        #[oai(validator(max_length = 132))]
        credential_id: Path<String>,
        /// The reason for the audit trail, as free text.
        #[oai(validator(max_length = 500))]
        reason: Query<Option<String>>,
    ) -> Result<RevocationResponse, ApiError> {
        let workspace = self.workspaces.existing(id.0).await?;
        let credential = self::credential_id(&credential_id.0)?;
        let permit = match access::revoke_credentials(&caller.0, &workspace) {
            Ok(permit) => permit,
            Err(failure) => {
                let why = format!("the workspace {} is not the caller's", workspace.id());
                self.credentials.record_refusal(&caller.0, None, &credential, &why).await?;
                return Err(failure);
            }
        };
        Ok(self.credentials.revoke(&permit, &workspace, &credential, reason.0).await?.into())
    }

    /// Get a kubeconfig
    ///
    /// With `mode=static` (the default) the kubeconfig contains a token that is valid for at most
    /// two hours, so keep it secret. With `mode=exec` it contains no token; kubectl calls the
    /// plugin kubectl-tenant instead. `mode=gateway` is like `exec`, but connects through the
    /// broker's gateway.
    #[oai(path = "/credentials/kubeconfig", method = "get", operation_id = "getKubeconfig")]
    async fn kubeconfig(
        &self,
        caller: AuthenticatedForWorkspace,
        /// `static`, `exec` or `gateway`; the default is `static`.
        mode: Query<Option<Mode>>,
        /// The workspace; the default is the caller's oldest one.
        workspace: Query<Option<Uuid>>,
    ) -> Result<Yaml, ApiError> {
        let workspace = match workspace.0 {
            Some(id) => self.workspaces.existing(id).await?,
            None => self
                .workspaces
                .for_user(caller.0.user_id())
                .await?
                .into_iter()
                .find(|workspace| caller.0.is_scoped_to(workspace.id()))
                .ok_or_else(no_workspace_yet)?,
        };
        let mode = mode.0.unwrap_or_default();
        if mode == Mode::Gateway && !self.broker_url.starts_with("https://") {
            // client-go sends no credentials to a server without TLS, so every request would fail.
            let text = "kubectl sends no credentials over http: the gateway needs the broker to be \
                        reached over https (tls.cert_file, or public_url behind a proxy)";
            return Err(ApiError::new(Code::InvalidRequest, text));
        }
        let (active, issued) = match mode {
            Mode::Static => {
                let kind = CredentialKind::Kubeconfig;
                let (active, issued) = self.issue_for(&caller.0, workspace, kind).await?;
                (active, Some(issued))
            }
            Mode::Exec | Mode::Gateway => {
                (self.active(&caller.0, workspace, Action::IssueKubeconfig).await?, None)
            }
        };
        let user = match &issued {
            Some(issued) => TokenSource::Token(&issued.token),
            None => TokenSource::Exec {
                broker: &self.broker_url,
                workspace: active.permit().workspace().unwrap_or_default(),
                gateway: mode == Mode::Gateway,
            },
        };
        let cluster = self.workspaces.cluster();
        let gateway = Endpoint {
            server: format!("{}{}{}", self.broker_url, GATEWAY_PATH, cluster.name()),
            // The plugin is configured with the CA that the user trusts for the broker.
            certificate_authority_data: None,
        };
        let endpoint = if mode == Mode::Gateway { &gateway } else { cluster.endpoint() };
        let document = render(&Parts { endpoint, namespace: active.namespace(), user })
            .map_err(|error| ApiError::internal(&error))?;
        Ok(Yaml(document))
    }
}

impl CredentialApi {
    async fn active(
        &self,
        caller: &Caller,
        workspace: WorkspaceRow,
        action: Action,
    ) -> Result<Active, ApiError> {
        match access::use_workspace(caller, &workspace) {
            Ok(permit) => {
                let workspace = self.workspaces.complete_rotation(workspace).await?;
                Ok(self.workspaces.active(permit, &workspace)?)
            }
            Err(refusal) => self.workspaces.refuse(caller, action, workspace.id(), refusal).await,
        }
    }

    /// Issues a credential. Retries if the workspace's ServiceAccount was replaced meanwhile.
    async fn issue_for(
        &self,
        caller: &Caller,
        mut workspace: WorkspaceRow,
        kind: CredentialKind,
    ) -> Result<(Active, Issued), ApiError> {
        let id = workspace.id();
        for _ in 0..MAX_ATTEMPTS {
            let active = self.active(caller, workspace, super::audit_action(kind)).await?;
            let error = match self.credentials.issue(&active, kind).await {
                Ok(issued) => return Ok((active, issued)),
                Err(error) => error,
            };
            workspace = self.workspaces.existing(id).await?;
            let may_have_changed = matches!(
                error,
                IssueError::Ledger(NotRecorded::Changed)
                    | IssueError::Cluster(ClusterError::Conflict(_) | ClusterError::NotFound(_))
            );
            if !may_have_changed || workspace.issues_with(active.service_account_uid()) {
                return Err(error.into());
            }
        }
        Err(WorkspaceError::Rotating.into())
    }
}

impl From<Revocation> for RevocationResponse {
    fn from(revocation: Revocation) -> Self {
        match revocation.state {
            RevocationState::Revoked | RevocationState::Over => Self::Done(Json(revocation)),
            RevocationState::Revoking => Self::Open(Json(revocation)),
        }
    }
}

impl From<RevokeError> for ApiError {
    fn from(error: RevokeError) -> Self {
        match error {
            RevokeError::Unknown => Self::new(
                Code::NotFound,
                "the workspace has no such credential; `kubectl tenant credentials list --all` \
                 lists them",
            ),
            RevokeError::Storage(error) => Self::storage(&error),
        }
    }
}

fn no_workspace_yet() -> ApiError {
    ApiError::new(Code::NotFound, "you have no workspace yet; make one with `kubectl tenant init`")
}

/// Parses the id in a request. The error does not repeat the text, because it may be anything.
fn credential_id(text: &str) -> Result<CredentialId, ApiError> {
    text.parse()
        .map_err(|error: CredentialIdError| ApiError::new(Code::InvalidRequest, error.to_string()))
}

fn to_api(issued: &Issued) -> Credential {
    Credential {
        token: issued.token.expose_secret().to_owned(),
        expiration_timestamp: issued.expires_at.into(),
        expires_in: issued.lifetime,
        credential_id: issued.credential_id.clone(),
        workspace_id: issued.workspace_id,
    }
}

impl From<IssueError> for ApiError {
    fn from(error: IssueError) -> Self {
        match error {
            IssueError::Cluster(error) => cluster_failure(&error),
            IssueError::Ledger(NotRecorded::Changed) => WorkspaceError::Rotating.into(),
            IssueError::Ledger(error @ NotRecorded::Failed) => {
                crate::base::request_context::record_field("cause", error.to_string());
                Self::new(
                    Code::StorageUnavailable,
                    "the issuance could not be recorded, so the token was dropped; try again",
                )
            }
        }
    }
}
