//! `POST /workspaces/{id}/credentials`

use poem_openapi::{OpenApi, param::Path, payload::Json};
use secrecy::ExposeSecret as _;
use tenant_shared::{Credential, CredentialKind};
use uuid::Uuid;

use crate::{
    access::UseWorkspace,
    credential::{Credentials, Issued, audit_action},
    http::{ApiError, AuthenticatedForWorkspace},
    workspace::Workspaces,
};

/// `issueCredential`.
#[derive(Debug)]
pub struct Issue {
    pub(super) workspaces: Workspaces,
    pub(super) credentials: Credentials,
}

#[OpenApi(prefix_path = "/workspaces")]
impl Issue {
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
        let kind = CredentialKind::Exec;
        let permit = self
            .workspaces
            .authorize_audited::<UseWorkspace>(&caller.0, id.0, audit_action(kind))
            .await?;
        let (_, issued) = self.credentials.issue(permit, kind).await?;
        Ok(Json(to_api(&issued)))
    }
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
