//! HTTP API of model services: `/gen-ai/api/v1`, with an OpenAPI document of its own, because paths
//! and failures have another form than those of the broker's API.

mod caller;
mod config;
mod delete;
mod direct_json;
mod error;
mod health;
mod install;
mod large_response;
mod models;
mod namespaces;
mod response_text;
mod routes;
mod status;
mod user;

pub use self::routes::{HEALTH_PATH, endpoint};
use self::{
    config::ShowConfig, delete::Delete, health::ShowHealth, install::Install, models::ListModels,
    namespaces::ListNamespaces, status::ShowStatus, user::ShowUser,
};
use super::ModelServices;

/// Operations of model services.
pub type ModelServicesApi =
    (ShowHealth, ShowUser, ShowConfig, ListNamespaces, ListModels, Install, ShowStatus, Delete);

/// The operations of these services.
pub fn api(services: &ModelServices) -> ModelServicesApi {
    (
        ShowHealth,
        ShowUser { services: services.clone() },
        ShowConfig { services: services.clone() },
        ListNamespaces { services: services.clone() },
        ListModels,
        Install,
        ShowStatus,
        Delete,
    )
}
