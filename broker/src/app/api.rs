//! The HTTP API: the operations of all modules, and their OpenAPI document.

use std::collections::HashMap;

use poem::{endpoint::BoxEndpoint, http::Method};
use poem_openapi::{
    LicenseObject, OpenApi, OpenApiService,
    registry::{MetaApi, Registry},
};

use crate::{
    audit::api::AuditApi,
    credential::api::CredentialApi,
    gateway::api::GatewayApi,
    http::{API_PATH, MergedPaths},
    identity::api::IdentityApi,
    issuer::api::AuthApi,
    tenant_operations::api::TenantApi,
    user::api::UserApi,
    workspace::api::WorkspaceApi,
};

/// The operations of all modules.
pub(super) type Api = MergedPaths<(
    AuthApi,
    IdentityApi,
    UserApi,
    WorkspaceApi,
    TenantApi,
    CredentialApi,
    GatewayApi,
    AuditApi,
)>;

/// The description of the API for its OpenAPI document, without handlers.
struct ApiDescription;

impl OpenApi for ApiDescription {
    fn meta() -> Vec<MetaApi> {
        Api::meta()
    }

    fn register(registry: &mut Registry) {
        Api::register(registry);
    }

    fn add_routes(self, _: &mut HashMap<String, HashMap<Method, BoxEndpoint<'static>>>) {}
}

/// The OpenAPI document of the broker's API, as YAML.
pub fn document() -> String {
    service(ApiDescription).spec_yaml()
}

/// The service of these operations.
pub(super) fn service<T: OpenApi>(api: T) -> OpenApiService<T, ()> {
    OpenApiService::new(api, "Tenant broker", env!("CARGO_PKG_VERSION"))
        .description(
            "Gives each person an isolated namespace of a Kubernetes cluster. Sign in at the issuer \
             that `/.well-known/openid-configuration` describes and send its access token as bearer \
             token. Every error response is problem details (RFC 9457) with a stable `code`. \
             Responses to authenticated callers have the headers `Tenant-Broker-Version`, the \
             broker's version, and `Tenant-Min-Plugin-Version`, the oldest kubectl-tenant that it \
             supports.",
        )
        .license(LicenseObject::new("Apache-2.0").url("https://www.apache.org/licenses/LICENSE-2.0"))
        .server(API_PATH)
}
