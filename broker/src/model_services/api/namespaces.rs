//! `GET /namespaces`

use poem_openapi::OpenApi;
use tenant_shared::ModelNamespaceList;

use super::{caller::CallerOfRequest, direct_json::DirectJson};
use crate::model_services::{Failure, ModelServices};

/// `listModelNamespaces`.
#[derive(Debug)]
pub struct ListNamespaces {
    pub(super) services: ModelServices,
}

#[OpenApi]
impl ListNamespaces {
    /// List the namespaces that the caller may read
    ///
    /// Those of the platform are left out. A session has the namespaces of its active workspaces.
    #[oai(path = "/namespaces", method = "get", operation_id = "listModelNamespaces")]
    async fn namespaces(
        &self,
        caller: CallerOfRequest,
    ) -> Result<DirectJson<ModelNamespaceList>, Failure> {
        let (list, held) = self.services.namespaces(&caller.0).await?;
        self.services.json(list, held).await
    }
}
