//! `POST /tenants/{name}/namespaces`

use k8s_openapi::api::core::v1::Namespace;
use poem_openapi::{ApiResponse, OpenApi, param::Path, payload::Json};
use tenant_shared::{CreateNamespaceRequest, TenantNamespace};
use uuid::Uuid;

use super::TenantService;
use crate::{
    http::{ApiError, Authenticated, OptionalJson},
    tenant::NamespaceStatus,
};

/// `createTenantNamespace`.
#[derive(Debug)]
pub struct CreateNamespace {
    pub(super) tenants: TenantService,
}

/// The response of `createTenantNamespace`.
#[derive(ApiResponse)]
pub(super) enum CreateNamespaceResponse {
    /// The namespace was created, and the caller has their rights in it.
    #[oai(status = 201)]
    Created(Json<TenantNamespace>),
}

/// The API form of a namespace that a user just created.
fn to_api(namespace: Namespace, made_by: Uuid) -> TenantNamespace {
    let created_at = namespace.metadata.creation_timestamp.map(|time| time.0);
    TenantNamespace {
        name: namespace.metadata.name.unwrap_or_default(),
        status: NamespaceStatus::Active.as_str().to_owned(),
        made_by: Some(made_by),
        created_at: created_at.unwrap_or_default().into(),
    }
}

#[OpenApi(prefix_path = "/tenants")]
impl CreateNamespace {
    /// Create a namespace of a tenant
    ///
    /// For owners, whatever ClusterRoles the Tenant gives them. Makes the caller a member first, if
    /// they are none. The namespace is created with quotas, limits and then the rights of all
    /// members, and can be used at once. 403 with `namespace_quota_exceeded` if the tenant has as
    /// many namespaces as it may have, 409 with `namespace_exists` if the name is taken.
    #[oai(path = "/:name/namespaces", method = "post", operation_id = "createTenantNamespace")]
    async fn create_namespace(
        &self,
        caller: Authenticated,
        /// Name of the tenant.
        name: Path<String>,
        // Optional, so that a missing body reveals nothing to those who may not see the tenant.
        request: OptionalJson<CreateNamespaceRequest>,
    ) -> Result<CreateNamespaceResponse, ApiError> {
        let (tenants, name) = self.tenants.with_name(&name.0)?;
        let created = tenants.create_namespace(&caller.0, &name, &request.0).await?;
        Ok(CreateNamespaceResponse::Created(Json(to_api(created, caller.0.user_id()))))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_namespace_has_the_time_of_the_api_server() {
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "solar-production", "creationTimestamp": "2026-11-21T09:00:00Z"},
        });
        let user = Uuid::from_u128(7);
        let made = to_api(serde_json::from_value(namespace).unwrap(), user);
        let made = serde_json::to_value(made).unwrap();
        assert_eq!(
            made,
            json!({
                "name": "solar-production", "status": "active", "made_by": user,
                "created_at": "2026-11-21T09:00:00Z",
            })
        );
    }
}
