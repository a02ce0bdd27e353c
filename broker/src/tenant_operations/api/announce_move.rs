//! `POST /tenants/{name}/moves/{namespace}`

use poem_openapi::{OpenApi, param::Path, payload::Json};
use tenant_shared::{MoveNamespaceRequest, NamespaceMovePlan};

use super::TenantService;
use crate::http::{ApiError, Authenticated, OptionalJson};

/// `announceNamespaceMove`.
#[derive(Debug)]
pub struct AnnounceMove {
    pub(super) tenants: TenantService,
}

#[OpenApi(prefix_path = "/tenants")]
impl AnnounceMove {
    /// Announce the move of a namespace into a tenant
    ///
    /// For administrators. The move is recorded for both tenants, and carried out when an
    /// administrator of the cluster sets `labels` of the response on the namespace within 10 minutes,
    /// because the broker's own credential may not move namespaces. 409 if the plan has refusals, or
    /// is no longer what the request says.
    #[oai(
        path = "/:name/moves/:namespace",
        method = "post",
        operation_id = "announceNamespaceMove"
    )]
    async fn announce_move(
        &self,
        caller: Authenticated,
        /// Name of the tenant that gets the namespace.
        name: Path<String>,
        /// Name of the namespace.
        namespace: Path<String>,
        // Optional, so that a missing body reveals nothing to those who are no administrators.
        request: OptionalJson<MoveNamespaceRequest>,
    ) -> Result<Json<NamespaceMovePlan>, ApiError> {
        let (tenants, name) = self.tenants.with_name(&name.0)?;
        let namespace = super::namespace_name(&name, &namespace.0)?;
        let permit = tenants.authorize_moves(&caller.0, &name, namespace).await?;
        Ok(Json(tenants.announce_move(&permit, &name, namespace, &request.0).await?))
    }
}
