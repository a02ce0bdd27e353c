//! `DELETE /lsd/delete`

use poem_openapi::{OpenApi, param::Query, payload::Json};
use tenant_shared::{DeleteDistributionRequest, DeletedDistribution, DeletedDistributionResponse};

use super::caller::ReviewedNamespace;
use crate::{
    http::OptionalJson,
    model_services::{Failure, name_to_delete},
};

/// `deleteLlamaStack`.
#[derive(Clone, Copy, Debug)]
pub struct Delete;

#[OpenApi]
impl Delete {
    /// Delete the Llama Stack of a namespace
    ///
    /// Only one that this API created, with its ConfigMap. The name may be in the body or in the
    /// query, because some proxies drop the body of a DELETE.
    #[oai(path = "/lsd/delete", method = "delete", operation_id = "deleteLlamaStack")]
    async fn delete(
        &self,
        /// Name of the namespace.
        namespace: ReviewedNamespace,
        /// Name of the `LlamaStackDistribution`, instead of the body.
        name: Query<Option<String>>,
        request: OptionalJson<DeleteDistributionRequest>,
    ) -> Result<Json<DeletedDistributionResponse>, Failure> {
        let name = name_to_delete(&request.0.name, name.0.as_deref())?;
        namespace.0.delete_distribution(name).await?;
        let data = "LlamaStackDistribution deleted successfully".to_owned();
        Ok(Json(DeletedDistributionResponse { data: DeletedDistribution { data } }))
    }
}
