//! `GET /lsd/status`

use poem_openapi::OpenApi;
use tenant_shared::DistributionStatusAnswer;

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
    ) -> Result<DirectJson<DistributionStatusAnswer>, Failure> {
        let data = namespace.0.distribution_status().await?;
        let services = namespace.0.asker().services().clone();
        services.json(DistributionStatusAnswer { data }, namespace.0).await
    }
}
