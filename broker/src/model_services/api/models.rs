//! `GET /aaa/models`

use poem_openapi::OpenApi;
use tenant_shared::AAModelList;

use super::{caller::ReviewedNamespace, direct_json::DirectJson};
use crate::model_services::Failure;

/// `listModels`.
#[derive(Clone, Copy, Debug)]
pub struct ListModels;

#[OpenApi]
impl ListModels {
    /// List the models of a namespace
    ///
    /// Objects of the kinds `InferenceService` and `LLMInferenceService` with the label
    /// `opendatahub.io/genai-asset=true`. A kind that is not installed has none.
    #[oai(path = "/aaa/models", method = "get", operation_id = "listModels")]
    async fn models(
        &self,
        /// Name of the namespace.
        namespace: ReviewedNamespace,
    ) -> Result<DirectJson<AAModelList>, Failure> {
        let models = namespace.0.models().await?;
        let services = namespace.0.client().services().clone();
        services.json(models, namespace.0).await
    }
}
