//! `DELETE /workspaces/{id}/credentials/{credential_id}`

use poem_openapi::{
    ApiResponse, OpenApi,
    param::{Path, Query},
    payload::Json,
};
use tenant_shared::{Revocation, RevocationState};
use uuid::Uuid;

use super::parse_credential_id;
use crate::{
    credential::Credentials,
    http::{ApiError, Authenticated},
};

/// `revokeCredential`.
#[derive(Debug)]
pub struct Revoke {
    pub(super) credentials: Credentials,
}

/// Responses of `revoke`.
#[derive(ApiResponse)]
pub(super) enum RevocationResponse {
    /// Every step is done, or there was nothing to do.
    #[oai(status = 200)]
    Done(Json<Revocation>),
    /// The decision is recorded; the broker retries the open steps.
    #[oai(status = 202)]
    Open(Json<Revocation>),
}

impl From<Revocation> for RevocationResponse {
    fn from(revocation: Revocation) -> Self {
        match revocation.state {
            RevocationState::Revoked | RevocationState::Over => Self::Done(Json(revocation)),
            RevocationState::Revoking => Self::Open(Json(revocation)),
        }
    }
}

#[OpenApi(prefix_path = "/workspaces")]
impl Revoke {
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
        // Parsed before the workspace is looked up, so that this error does not depend on what
        // exists.
        let credential = parse_credential_id(&credential_id.0)?;
        let permit = self.credentials.authorize_revocation(&caller.0, id.0, &credential).await?;
        Ok(self.credentials.revoke(&permit, &credential, reason.0).await?.into())
    }
}
