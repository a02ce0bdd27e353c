//! `GET /user`

use poem_openapi::{OpenApi, payload::Json};
use tenant_shared::ModelServicesUser;

use super::caller::CallerOfRequest;
use crate::model_services::{Failure, ModelServices};

/// `showModelServicesUser`.
#[derive(Debug)]
pub struct ShowUser {
    pub(super) services: ModelServices,
}

#[OpenApi]
impl ShowUser {
    /// Show the name of the caller
    #[oai(path = "/user", method = "get", operation_id = "showModelServicesUser")]
    async fn user(&self, caller: CallerOfRequest) -> Result<Json<ModelServicesUser>, Failure> {
        Ok(Json(self.services.user(&caller.0).await?))
    }
}
