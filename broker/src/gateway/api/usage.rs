//! `GET /workspaces/{id}/usage`

use poem_openapi::{
    OpenApi,
    param::{Path, Query},
    payload::Json,
};
use tenant_shared::{Code, Usage};
use uuid::Uuid;

use crate::{
    access::ReadWorkspace,
    gateway::{Gateway, limits::usage},
    http::{ApiError, Authenticated},
    workspace::Workspaces,
};

/// Days that are shown if the caller gives no number.
const DEFAULT_DAYS: u32 = 7;

/// `showUsage`.
#[derive(Debug)]
pub struct ShowUsage {
    pub(super) workspaces: Workspaces,
    pub(super) gateway: Gateway,
}

#[OpenApi(prefix_path = "/workspaces")]
impl ShowUsage {
    /// Show a workspace's use of the gateway
    ///
    /// Requests, bytes and stream time by day (UTC) and verb, newest day first. Usage in progress
    /// is added every 15 seconds. For the owner and administrators.
    #[oai(path = "/:id/usage", method = "get", operation_id = "showUsage")]
    async fn usage(
        &self,
        caller: Authenticated,
        /// Identifier of the workspace.
        id: Path<Uuid>,
        /// Number of days, 1 to 35; 7 if not given.
        #[oai(validator(minimum(value = "1"), maximum(value = "35")))]
        days: Query<Option<u32>>,
    ) -> Result<Json<Usage>, ApiError> {
        let permit = self.workspaces.authorize::<ReadWorkspace>(&caller.0, id.0).await?;
        let days = days.0.unwrap_or(DEFAULT_DAYS);
        if !(1..=usage::RETENTION_DAYS).contains(&i64::from(days)) {
            return Err(ApiError::new(Code::InvalidRequest, "days must be a number from 1 to 35"));
        }
        Ok(Json(self.gateway.usage(&permit, days).await?))
    }
}
