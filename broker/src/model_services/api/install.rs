//! `POST /lsd/install`

use poem_openapi::{OpenApi, payload::Json};
use tenant_shared::{InstallDistributionRequest, InstalledDistributionResponse};

use super::caller::ReviewedNamespace;
use crate::model_services::Failure;

/// `installLlamaStack`.
#[derive(Clone, Copy, Debug)]
pub struct Install;

#[OpenApi]
impl Install {
    /// Start a Llama Stack for models of a namespace
    ///
    /// Creates a `LlamaStackDistribution` and its ConfigMap, as the caller. Nothing is created unless
    /// every model has an address.
    #[oai(path = "/lsd/install", method = "post", operation_id = "installLlamaStack")]
    async fn install(
        &self,
        /// Name of the namespace.
        namespace: ReviewedNamespace,
        request: Json<InstallDistributionRequest>,
    ) -> Result<Json<InstalledDistributionResponse>, Failure> {
        let data = namespace.0.install(&request.0).await?;
        Ok(Json(InstalledDistributionResponse { data }))
    }
}
