//! `DELETE /workspaces/{id}/credentials/{credential_id}`

use poem_openapi::{
    OpenApi,
    param::{Path, Query},
};
use tenant_shared::{Revocation, RevocationState};
use uuid::Uuid;

use super::parse_credential_id;
use crate::{
    credential::Credentials,
    http::{ApiError, Authenticated, StepsResponse},
};

/// `revokeCredential`.
#[derive(Debug)]
pub struct Revoke {
    pub(super) credentials: Credentials,
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
    ) -> Result<StepsResponse<Revocation>, ApiError> {
        // Parsed before the workspace is looked up, so that this error does not depend on what
        // exists.
        let credential = parse_credential_id(&credential_id.0)?;
        let permit = self.credentials.authorize_revocation(&caller.0, id.0, &credential).await?;
        let revocation = self.credentials.revoke(&permit, &credential, reason.0).await?;
        let is_done = match revocation.state {
            RevocationState::Revoked | RevocationState::Over => true,
            RevocationState::Revoking => false,
        };
        Ok(StepsResponse::new(revocation, is_done))
    }
}
