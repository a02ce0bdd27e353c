//! `GET /workspaces/{id}/credentials`

use poem_openapi::{
    OpenApi,
    param::{Path, Query},
    payload::Json,
};
use tenant_shared::{CredentialId, CredentialPage};
use uuid::Uuid;

use super::parse_credential_id;
use crate::{
    access::ReadWorkspace,
    credential::Credentials,
    http::{ApiError, Authenticated, query},
    workspace::Workspaces,
};

/// Default page size of the list of credentials.
const DEFAULT_LIMIT: u32 = 50;
/// Maximum page size of the list of credentials.
const MAX_LIMIT: u32 = 500;

/// `listCredentials`.
#[derive(Debug)]
pub struct List {
    pub(super) workspaces: Workspaces,
    pub(super) credentials: Credentials,
}

#[OpenApi(prefix_path = "/workspaces")]
impl List {
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
        let permit = self.workspaces.authorize::<ReadWorkspace>(&caller.0, id.0).await?;
        let limit = query::parse_limit(limit.0, DEFAULT_LIMIT, MAX_LIMIT)?;
        let cursor = cursor.0.as_deref().map(parse_credential_id).transpose()?;
        let (all, after) = (all.0.unwrap_or(false), cursor.as_ref().map(CredentialId::as_str));
        Ok(Json(self.credentials.list(&permit, all, after, limit as usize).await?))
    }
}
