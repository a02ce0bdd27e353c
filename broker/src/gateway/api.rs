//! The gateway's operations of the HTTP API.

use poem_openapi::{
    OpenApi,
    param::{Path, Query},
    payload::Json,
};
use tenant_shared::{Code, Usage};
use uuid::Uuid;

use super::{Gateway, usage};
use crate::{access, identity::Bearer, problem::Failure, workspace::Workspaces};

/// Days that are shown where the caller names no number.
const DEFAULT_DAYS: u32 = 7;

/// Operations about the gateway.
#[derive(Debug)]
pub struct GatewayApi {
    /// Where workspaces are.
    pub workspaces: Workspaces,
    /// The gateway.
    pub gateway: Gateway,
}

#[OpenApi(prefix_path = "/workspaces")]
impl GatewayApi {
    /// Show what a workspace used of the gateway
    ///
    /// Requests, bytes and time of streams by day (UTC) and verb, the newest day first. What is under
    /// way is added every 15 seconds. For the owner and administrators.
    #[oai(path = "/:id/usage", method = "get", operation_id = "showUsage")]
    async fn usage(
        &self,
        caller: Bearer,
        /// The workspace.
        id: Path<Uuid>,
        /// How many days, 1 to 35, 7 if not given.
        #[oai(validator(minimum(value = "1"), maximum(value = "35")))]
        days: Query<Option<u32>>,
    ) -> Result<Json<Usage>, Failure> {
        let found = self.workspaces.existing(id.0).await?;
        let permit = access::read_workspace(&caller.0, &found)?;
        let days = days.0.unwrap_or(DEFAULT_DAYS);
        if !(1..=usage::DAYS).contains(&i64::from(days)) {
            return Err(Failure::new(Code::InvalidRequest, "days is a number from 1 to 35"));
        }
        Ok(Json(self.gateway.usage(&permit, days).await?))
    }
}
