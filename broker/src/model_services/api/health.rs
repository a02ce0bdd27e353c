//! `GET /healthcheck`

use poem_openapi::{OpenApi, payload::Json};
use tenant_shared::{MODEL_SERVICES_VERSION, ModelServicesHealth, ModelServicesSystem};

use crate::model_services::Failure;

/// `showModelServicesHealth`.
#[derive(Clone, Copy, Debug)]
pub struct ShowHealth;

#[OpenApi]
#[expect(clippy::unused_async, reason = "operations are async")]
impl ShowHealth {
    /// Show that the service answers, for everybody
    ///
    /// It is at `/healthcheck` of the listener as well.
    #[oai(path = "/healthcheck", method = "get", operation_id = "showModelServicesHealth")]
    async fn health(&self) -> Result<Json<ModelServicesHealth>, Failure> {
        Ok(Json(available()))
    }
}

/// The response while the process runs.
pub(super) fn available() -> ModelServicesHealth {
    let version = MODEL_SERVICES_VERSION.to_owned();
    ModelServicesHealth {
        status: "available".to_owned(),
        system_info: ModelServicesSystem { version },
    }
}
