//! The credential operations of the HTTP API.

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

use super::{Credentials, IssueError, Issued, Mode, NotRecorded, Parts, RevokeError, User, render};
use crate::{
    access::{self, Owned as _},
    audit::Action,
    cluster::{ClusterError, Endpoint},
    http::Yaml,
    identity::{Bearer, Caller, WorkspaceBearer},
    list,
    problem::Failure,
    workspace::{Active, Found, WorkspaceError, Workspaces, cluster_failure},
};

/// Credentials of a page where the caller names no number.
const DEFAULT_LIMIT: u32 = 50;
/// Credentials of a page at most.
const MOST: u32 = 500;
/// How often an issuance is tried whose ServiceAccount is replaced again and again.
const TRIES: usize = 4;

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

/// Answers of `revoke`.
#[derive(ApiResponse)]
pub(crate) enum RevocationAnswer {
    /// Every step is done, or there was nothing to do.
    #[oai(status = 200)]
    Done(Json<Revocation>),
    /// The decision stands; the broker goes on with the open steps.
    #[oai(status = 202)]
    Open(Json<Revocation>),
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
        let (_, issued) = self.issue_for(&caller.0, found, CredentialKind::Exec).await?;
        Ok(Json(wire(&issued)))
    }

    /// List a workspace's credentials
    ///
    /// What was issued, newest first: those that work, or with `all=true` the others too. Never a
    /// token. For the owner and administrators.
    #[oai(path = "/:id/credentials", method = "get", operation_id = "listCredentials")]
    async fn list(
        &self,
        caller: Bearer,
        /// The workspace.
        id: Path<Uuid>,
        /// Those that expired or were revoked, too.
        all: Query<Option<bool>>,
        /// `next_cursor` of the page before.
        #[oai(validator(max_length = 132))]
        cursor: Query<Option<String>>,
        /// Rows of a page, 1 to 500, 50 if not given.
        #[oai(validator(minimum(value = "1"), maximum(value = "500")))]
        limit: Query<Option<u32>>,
    ) -> Result<Json<CredentialPage>, Failure> {
        let found = self.workspaces.existing(id.0).await?;
        let permit = access::read_workspace(&caller.0, &found)?;
        let limit = list::limit(limit.0, DEFAULT_LIMIT, MOST)?;
        let cursor = cursor.0.as_deref().map(credential_id).transpose()?;
        let (all, after) = (all.0.unwrap_or(false), cursor.as_ref().map(CredentialId::as_str));
        Ok(Json(self.credentials.list(&permit, all, after, limit as usize).await?))
    }

    /// Revoke a credential
    ///
    /// A credential that is bound to a Secret of its own ends alone. Without one
    /// (`cluster.bind_tokens_to_secrets` is off) the workspace's ServiceAccount is replaced, and all
    /// its credentials end: exec plugins get new ones, downloaded kubeconfigs do not. For ten seconds
    /// an API server may still accept a token that it accepted before. For the owner and
    /// administrators; of an id that is over there is nothing to do, which is said.
    #[oai(
        path = "/:id/credentials/:credential_id",
        method = "delete",
        operation_id = "revokeCredential"
    )]
    async fn revoke(
        &self,
        caller: Bearer,
        /// The workspace.
        id: Path<Uuid>,
        /// The credential, as the list or the cluster's audit log (`JTI=…`) names it.
        #[oai(validator(max_length = 132))]
        credential_id: Path<String>,
        /// Why, in words, for the audit trail.
        #[oai(validator(max_length = 500))]
        reason: Query<Option<String>>,
    ) -> Result<RevocationAnswer, Failure> {
        let found = self.workspaces.existing(id.0).await?;
        let credential = self::credential_id(&credential_id.0)?;
        let permit = match access::revoke_credentials(&caller.0, &found) {
            Ok(permit) => permit,
            Err(failure) => {
                let why = format!("the workspace {} is not theirs", found.id());
                self.credentials.refused(&caller.0, None, &credential, &why).await?;
                return Err(failure);
            }
        };
        Ok(self.credentials.revoke(&permit, &found, &credential, reason.0).await?.into())
    }

    /// Get a kubeconfig
    ///
    /// `mode=static` (the default) carries a token for two hours at most; `mode=exec` carries none,
    /// kubectl asks the plugin kubectl-tenant instead; `mode=gateway` is the same, through the
    /// broker's gateway. Keep a static one secret.
    #[oai(path = "/credentials/kubeconfig", method = "get", operation_id = "getKubeconfig")]
    async fn kubeconfig(
        &self,
        caller: WorkspaceBearer,
        /// `static`, `exec` or `gateway`.
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
        let mode = mode.0.unwrap_or_default();
        if mode == Mode::Gateway && !self.broker_url.starts_with("https://") {
            // client-go reads no credentials for a server without TLS, so it could only fail later.
            let text = "kubectl sends no credentials over http: the gateway needs the broker to be \
                        reached over https (tls.cert_file, or public_url behind a proxy)";
            return Err(Failure::new(Code::InvalidRequest, text));
        }
        let (active, issued) = match mode {
            Mode::Static => {
                let kind = CredentialKind::Kubeconfig;
                let (active, issued) = self.issue_for(&caller.0, found, kind).await?;
                (active, Some(issued))
            }
            Mode::Exec | Mode::Gateway => {
                (self.active(&caller.0, found, Action::IssueKubeconfig).await?, None)
            }
        };
        let user = match &issued {
            Some(issued) => User::Token(&issued.token),
            None => User::Exec {
                broker: &self.broker_url,
                workspace: active.permit().workspace().unwrap_or_default(),
                gateway: mode == Mode::Gateway,
            },
        };
        let cluster = self.workspaces.cluster();
        let gateway = Endpoint {
            server: format!("{}{}{}", self.broker_url, GATEWAY_PATH, cluster.name()),
            // The plugin knows which CA the person trusts for the broker.
            certificate_authority_data: None,
        };
        let endpoint = if mode == Mode::Gateway { &gateway } else { cluster.endpoint() };
        let document = render(&Parts { endpoint, namespace: active.namespace(), user })
            .map_err(|error| Failure::internal(&error))?;
        Ok(Yaml(document))
    }
}

impl CredentialApi {
    async fn active(
        &self,
        caller: &Caller,
        found: Found,
        action: Action,
    ) -> Result<Active, Failure> {
        match access::use_workspace(caller, &found) {
            Ok(permit) => {
                let found = self.workspaces.ready(found).await?;
                Ok(self.workspaces.active(permit, &found)?)
            }
            Err(refusal) => self.workspaces.refuse(caller, action, found.id(), refusal).await,
        }
    }

    /// Issues a credential, again if the workspace's ServiceAccount was replaced meanwhile.
    async fn issue_for(
        &self,
        caller: &Caller,
        mut found: Found,
        kind: CredentialKind,
    ) -> Result<(Active, Issued), Failure> {
        let id = found.id();
        for _ in 0..TRIES {
            let active = self.active(caller, found, super::action(kind)).await?;
            let error = match self.credentials.issue(&active, kind).await {
                Ok(issued) => return Ok((active, issued)),
                Err(error) => error,
            };
            found = self.workspaces.existing(id).await?;
            let may_have_changed = matches!(
                error,
                IssueError::Ledger(NotRecorded::Changed)
                    | IssueError::Cluster(ClusterError::Conflict(_) | ClusterError::NotFound(_))
            );
            if !may_have_changed || found.issues_with(active.service_account_uid()) {
                return Err(error.into());
            }
        }
        Err(WorkspaceError::Rotating.into())
    }
}

impl From<Revocation> for RevocationAnswer {
    fn from(revocation: Revocation) -> Self {
        match revocation.state {
            RevocationState::Revoked | RevocationState::Over => Self::Done(Json(revocation)),
            RevocationState::Revoking => Self::Open(Json(revocation)),
        }
    }
}

impl From<RevokeError> for Failure {
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

fn no_workspace_yet() -> Failure {
    Failure::new(Code::NotFound, "you have no workspace yet; make one with `kubectl tenant init`")
}

/// The id that a request names. Its text is not repeated: it may be anything.
fn credential_id(text: &str) -> Result<CredentialId, Failure> {
    text.parse()
        .map_err(|error: CredentialIdError| Failure::new(Code::InvalidRequest, error.to_string()))
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
            IssueError::Ledger(NotRecorded::Changed) => WorkspaceError::Rotating.into(),
            IssueError::Ledger(error @ NotRecorded::Failed) => {
                crate::problem::note("cause", error.to_string());
                Self::new(
                    Code::StorageUnavailable,
                    "the issuance could not be recorded, so the token was dropped; try again",
                )
            }
        }
    }
}
