//! `GET /lsd/status`

use poem_openapi::OpenApi;
use tenant_shared::DistributionStatusResponse;

use super::{caller::ReviewedNamespace, direct_json::DirectJson};
use crate::model_services::Failure;

/// `showLlamaStackStatus`.
#[derive(Clone, Copy, Debug)]
pub struct ShowStatus;

#[OpenApi]
impl ShowStatus {
    /// Show the status of the Llama Stack of a namespace
    ///
    /// `data` is null if there is none.
    #[oai(path = "/lsd/status", method = "get", operation_id = "showLlamaStackStatus")]
    async fn status(
        &self,
        /// Name of the namespace.
        namespace: ReviewedNamespace,
    ) -> Result<DirectJson<DistributionStatusResponse>, Failure> {
        let data = namespace.0.distribution_status().await?;
        let services = namespace.0.client().services().clone();
        services.json(DistributionStatusResponse { data }, namespace.0).await
    }
}
