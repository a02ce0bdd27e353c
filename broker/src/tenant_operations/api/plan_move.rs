//! `GET /tenants/{name}/moves/{namespace}`

use poem_openapi::{OpenApi, param::Path, payload::Json};
use tenant_shared::NamespaceMovePlan;

use super::TenantService;
use crate::http::{ApiError, Authenticated};

/// `planNamespaceMove`.
#[derive(Debug)]
pub struct PlanMove {
    pub(super) tenants: TenantService,
}

#[OpenApi(prefix_path = "/tenants")]
impl PlanMove {
    /// Plan the move of a namespace into a tenant
    ///
    /// For administrators. Says what the move changes and why it is refused, and changes nothing.
    #[oai(path = "/:name/moves/:namespace", method = "get", operation_id = "planNamespaceMove")]
    async fn plan_move(
        &self,
        caller: Authenticated,
        /// Name of the tenant that gets the namespace.
        name: Path<String>,
        /// Name of the namespace.
        namespace: Path<String>,
    ) -> Result<Json<NamespaceMovePlan>, ApiError> {
        let (tenants, name) = self.tenants.with_name(&name.0)?;
        let namespace = super::namespace_name(&name, &namespace.0)?;
        let permit = tenants.authorize_moves(&caller.0, &name, namespace).await?;
        Ok(Json(tenants.plan_move(&permit, &name, namespace).await?))
    }
}
