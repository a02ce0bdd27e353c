//! `GET /audit-logs`

use poem_openapi::{OpenApi, param::Query, payload::Json};
use tenant_shared::{AuditEntry, AuditPage};
use uuid::Uuid;

use crate::{
    access::{self, ReadWorkspace},
    audit::{AuditTrail, Filter},
    base::paging,
    http::{ApiError, Authenticated, query},
    workspace::Workspaces,
};

/// Rows of a page if the request has no `limit`.
const DEFAULT_LIMIT: u32 = 50;
/// Maximum of `limit`.
const MAX_LIMIT: u32 = 500;

/// `readAuditLogs`.
#[derive(Debug)]
pub struct ReadAuditLogs {
    pub(super) trail: AuditTrail,
    pub(super) workspaces: Workspaces,
}

#[OpenApi(prefix_path = "/audit-logs")]
impl ReadAuditLogs {
    /// Read the audit trail
    ///
    /// Newest first. A user sees their own actions and what happened to them and to their
    /// workspace; an administrator sees everything. If somebody else acted, a user does not see the
    /// address and the session of that actor.
    #[oai(path = "/", method = "get", operation_id = "readAuditLogs")]
    async fn read(
        &self,
        caller: Authenticated,
        /// Only rows of this workspace.
        workspace_id: Query<Option<Uuid>>,
        /// Only rows with this action, for example `IssueKubeconfig`.
        #[oai(validator(max_length = 64))]
        action: Query<Option<String>>,
        /// `next_cursor` of the previous page.
        cursor: Query<Option<Uuid>>,
        /// Rows of a page, 1 to 500; 50 by default.
        #[oai(validator(minimum(value = "1"), maximum(value = "500")))]
        limit: Query<Option<u32>>,
    ) -> Result<Json<AuditPage>, ApiError> {
        if let Some(id) = workspace_id.0 {
            self.workspaces.authorize::<ReadWorkspace>(&caller.0, id).await?;
        }
        let scope = access::audit_scope(&caller.0);
        let limit = query::parse_limit(limit.0, DEFAULT_LIMIT, MAX_LIMIT)?;
        let filter = Filter { workspace_id: workspace_id.0, action: action.0, before: cursor.0 };
        // One row more than requested tells whether there is a next page.
        let mut items: Vec<AuditEntry> = if let Some(reader) = scope.user_id() {
            let rows = self.trail.read(scope, &filter, limit + 1).await?;
            rows.into_iter().map(|row| AuditEntry::from(row).shown_to(reader)).collect()
        } else {
            let rows = self.trail.read_with_emails(scope, &filter, limit + 1).await?;
            rows.into_iter().map(AuditEntry::from).collect()
        };
        let next_cursor = paging::truncate_page(&mut items, limit, |entry| entry.id.to_string());
        Ok(Json(AuditPage { items, next_cursor }))
    }
}
