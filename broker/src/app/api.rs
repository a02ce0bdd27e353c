//! The HTTP API: the operations of all modules, and their OpenAPI document.

use std::{collections::HashMap, marker::PhantomData};

use poem::{endpoint::BoxEndpoint, http::Method};
use poem_openapi::{
    LicenseObject, OpenApi, OpenApiService,
    registry::{MetaApi, Registry},
};
use tenant_shared::{MODEL_SERVICES_PATH, MODEL_SERVICES_VERSION};

use crate::{
    audit::api::AuditApi,
    credential::api::CredentialApi,
    gateway::api::GatewayApi,
    http::{API_PATH, MergedPaths},
    identity::api::IdentityApi,
    issuer::api::AuthApi,
    model_services::api::ModelServicesApi,
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

/// The description of an API for its OpenAPI document, without handlers.
struct Description<A>(PhantomData<A>);

impl<A: OpenApi> OpenApi for Description<A> {
    fn meta() -> Vec<MetaApi> {
        A::meta()
    }

    fn register(registry: &mut Registry) {
        A::register(registry);
    }

    fn add_routes(self, _: &mut HashMap<String, HashMap<Method, BoxEndpoint<'static>>>) {}
}

/// The OpenAPI document of the broker's API, as YAML.
pub fn document() -> String {
    service(Description::<Api>(PhantomData)).spec_yaml()
}

/// The OpenAPI document of model services, as YAML.
pub fn model_services_document() -> String {
    model_services(Description::<ModelServicesApi>(PhantomData)).spec_yaml()
}

/// The service of the operations of model services.
pub(super) fn model_services<T: OpenApi>(api: T) -> OpenApiService<T, ()> {
    OpenApiService::new(api, "Model services", MODEL_SERVICES_VERSION)
        .description(
            "The namespaces that the caller may see, the models that KServe serves there, and a \
             Llama Stack for them. Every call to Kubernetes is made with the caller's own rights: \
             with their Kubernetes token, or with the token of the workspace of their session. \
             Unknown fields of requests are ignored.",
        )
        .license(license())
        .server(MODEL_SERVICES_PATH)
}

fn license() -> LicenseObject {
    LicenseObject::new("Apache-2.0").url("https://www.apache.org/licenses/LICENSE-2.0")
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
        .license(license())
        .server(API_PATH)
}
