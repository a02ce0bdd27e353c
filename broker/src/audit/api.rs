//! Reading the audit trail over HTTP.

use poem_openapi::{OpenApi, param::Query, payload::Json};
use tenant_shared::{AuditEntry, AuditPage, Code, Role};
use uuid::Uuid;

use super::{Filter, Row, read};
use crate::{
    access, clock::timestamp, db::Db, identity::Bearer, problem::Failure, workspace::Workspaces,
};

/// Rows of a page where the caller names no number.
const DEFAULT_LIMIT: u32 = 50;
/// Rows of a page at most.
const MOST: u32 = 500;

/// Operations on the audit trail.
#[derive(Debug)]
pub struct AuditApi {
    /// Where the trail is.
    pub db: Db,
    /// Where workspaces are.
    pub workspaces: Workspaces,
}

#[OpenApi]
impl AuditApi {
    /// Read the audit trail
    ///
    /// Newest first. A person sees what they did and what happened to their workspace, an
    /// administrator everything.
    #[oai(path = "/audit-logs", method = "get", operation_id = "readAuditLogs")]
    async fn read(
        &self,
        caller: Bearer,
        /// Only this workspace.
        workspace_id: Query<Option<Uuid>>,
        /// Only this action, for example `IssueKubeconfig`.
        #[oai(validator(max_length = 64))]
        action: Query<Option<String>>,
        /// `next_cursor` of the page before.
        cursor: Query<Option<Uuid>>,
        /// Rows of a page, 1 to 500, 50 if not given.
        #[oai(validator(minimum(value = "1"), maximum(value = "500")))]
        limit: Query<Option<u32>>,
    ) -> Result<Json<AuditPage>, Failure> {
        if let Some(id) = workspace_id.0 {
            let found = self.workspaces.existing(id).await?;
            access::read_workspace(&caller.0, &found)?;
        }
        let limit = limit.0.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MOST).contains(&limit) {
            return Err(Failure::new(Code::InvalidRequest, "limit is a number from 1 to 500"));
        }
        let filter = Filter {
            user_id: (caller.0.role() != Role::Admin).then(|| caller.0.user_id()),
            workspace_id: workspace_id.0,
            action: action.0,
            before: cursor.0,
        };
        // One row more than asked for tells whether there is a next page.
        let mut rows = read(&self.db, &filter, limit + 1).await?;
        let more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let next_cursor = rows.last().filter(|_| more).map(|row| row.id.to_string());
        Ok(Json(AuditPage { items: rows.into_iter().map(Row::wire).collect(), next_cursor }))
    }
}

impl Row {
    /// As the API shows it.
    pub fn wire(self) -> AuditEntry {
        AuditEntry {
            id: self.id,
            created_at: timestamp(self.created_at).into(),
            action: self.action,
            outcome: self.outcome,
            user_id: self.user_id,
            workspace_id: self.workspace_id,
            session_id: self.session_id,
            credential_id: self.credential_id,
            ip_address: self.ip_address,
            request_id: self.request_id,
            reason: self.reason,
        }
    }
}
