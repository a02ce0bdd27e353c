//! `GET /config`

use poem_openapi::{OpenApi, payload::Json};
use tenant_shared::ModelServicesConfigResponse;

use super::caller::CallerOfRequest;
use crate::model_services::{Failure, ModelServices};

/// `showModelServicesConfig`.
#[derive(Debug)]
pub struct ShowConfig {
    pub(super) services: ModelServices,
}

#[OpenApi]
impl ShowConfig {
    /// Show settings for a frontend
    #[oai(path = "/config", method = "get", operation_id = "showModelServicesConfig")]
    async fn config(
        &self,
        caller: CallerOfRequest,
    ) -> Result<Json<ModelServicesConfigResponse>, Failure> {
        let data = self.services.config(&caller.0).await?;
        Ok(Json(ModelServicesConfigResponse { data }))
    }
}
