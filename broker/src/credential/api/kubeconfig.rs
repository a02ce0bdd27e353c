//! `GET /workspaces/credentials/kubeconfig`

use std::sync::Arc;

use poem_openapi::{OpenApi, param::Query};
use tenant_shared::{Code, CredentialKind, GATEWAY_PATH};
use uuid::Uuid;

use crate::{
    access::{Permit, UseWorkspace},
    cluster::Endpoint,
    credential::{Credentials, Parts, TokenSource, audit_action, render},
    http::{ApiError, AuthenticatedForWorkspace, Yaml},
    identity::Caller,
    workspace::{WorkspaceRow, Workspaces},
};

/// `getKubeconfig`.
#[derive(Debug)]
pub struct Kubeconfig {
    pub(super) workspaces: Workspaces,
    pub(super) credentials: Credentials,
    pub(super) broker_url: String,
}

/// How the user of a kubeconfig gets its token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, poem_openapi::Enum)]
#[oai(rename_all = "snake_case")]
pub(super) enum Mode {
    /// The document contains a token that is valid for two hours.
    #[default]
    Static,
    /// kubectl calls the exec plugin, which renews the token.
    Exec,
    /// As `exec`, but with the broker's gateway instead of the API server.
    Gateway,
}

#[OpenApi(prefix_path = "/workspaces")]
impl Kubeconfig {
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
        let permit = self.authorize(&caller.0, workspace.0).await?;
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
                let (active, issued) = self.credentials.issue(permit, kind).await?;
                (active, Some(issued))
            }
            Mode::Exec | Mode::Gateway => {
                let permit = self.workspaces.complete_rotation(permit).await?;
                (self.workspaces.active(&permit)?, None)
            }
        };
        let user = match &issued {
            Some(issued) => TokenSource::Token(&issued.token),
            None => TokenSource::Exec {
                broker: &self.broker_url,
                workspace: active.workspace_id(),
                gateway: mode == Mode::Gateway,
            },
        };
        let cluster = self.credentials.cluster_of(active.permit().resource())?;
        let endpoint = match mode {
            Mode::Static | Mode::Exec => cluster.endpoint(),
            Mode::Gateway => Arc::new(Endpoint {
                server: format!("{}{}{}", self.broker_url, GATEWAY_PATH, cluster.name()),
                // The plugin is configured with the CA that the user trusts for the broker.
                certificate_authority_data: None,
            }),
        };
        let namespace = active.namespace();
        let document = render(&Parts { endpoint: &endpoint, namespace, user })
            .map_err(|error| ApiError::internal(&error))?;
        Ok(Yaml(document))
    }
}

impl Kubeconfig {
    /// The permit for the requested workspace, or for the caller's oldest one. Memberships in
    /// tenants come after personal workspaces, so that a new membership changes no file.
    async fn authorize(
        &self,
        caller: &Caller,
        requested: Option<Uuid>,
    ) -> Result<Permit<UseWorkspace, WorkspaceRow>, ApiError> {
        if let Some(id) = requested {
            let action = audit_action(CredentialKind::Kubeconfig);
            return Ok(self.workspaces.authorize_audited(caller, id, action).await?);
        }
        let mut usable = self.workspaces.usable_by(caller).await?;
        usable.sort_by_key(|permit| permit.resource().tenant_name().is_some());
        usable.into_iter().next().ok_or_else(|| {
            let text = "you have no workspace yet; make one with `kubectl tenant init`";
            ApiError::new(Code::NotFound, text)
        })
    }
}
