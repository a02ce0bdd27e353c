//! HTTP API of the audit trail.

use poem_openapi::{OpenApi, param::Query, payload::Json};
use tenant_shared::{AuditEntry, AuditPage, Role};
use uuid::Uuid;

use super::{Filter, Row, RowWithEmails, export_page, read, read_with_emails};
use crate::{
    access,
    base::{clock::timestamp, db::Db, paging},
    http::{ApiError, JsonLines, query},
    identity::Authenticated,
    workspace::Workspaces,
};

/// Rows of a page if the request has no `limit`.
const DEFAULT_LIMIT: u32 = 50;
/// Maximum of `limit`.
const MAX_LIMIT: u32 = 500;

/// Approximate rows of an export page if the request has no `limit`.
const DEFAULT_EXPORT_LIMIT: u32 = 1000;
/// Maximum of `limit` of an export; the batch that the page ends in may add rows.
const MAX_EXPORT_LIMIT: u32 = 5000;

/// Operations on the audit trail.
#[derive(Debug)]
pub struct AuditApi {
    /// Database of the trail.
    pub db: Db,
    /// Workspaces, for the permission checks.
    pub workspaces: Workspaces,
}

#[OpenApi]
impl AuditApi {
    /// Read the audit trail
    ///
    /// Newest first. A user sees their own actions and what happened to them and to their
    /// workspace; an administrator sees everything. If somebody else acted, a user does not see the
    /// address and the session of that actor.
    #[oai(path = "/audit-logs", method = "get", operation_id = "readAuditLogs")]
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
            let found = self.workspaces.existing(id).await?;
            access::read_workspace(&caller.0, &found)?;
        }
        let limit = query::parse_limit(limit.0, DEFAULT_LIMIT, MAX_LIMIT)?;
        let filter = Filter {
            user_id: (caller.0.role() != Role::Admin).then(|| caller.0.user_id()),
            workspace_id: workspace_id.0,
            action: action.0,
            before: cursor.0,
        };
        // One row more than requested tells whether there is a next page.
        let mut items: Vec<AuditEntry> = if let Some(reader) = filter.user_id {
            let rows = read(&self.db, &filter, limit + 1).await?;
            rows.into_iter().map(|row| row.into_api().shown_to(reader)).collect()
        } else {
            let rows = read_with_emails(&self.db, &filter, limit + 1).await?;
            rows.into_iter().map(RowWithEmails::into_api).collect()
        };
        let next_cursor = paging::truncate_page(&mut items, limit, |entry| entry.id.to_string());
        Ok(Json(AuditPage { items, next_cursor }))
    }

    /// Export the audit trail
    ///
    /// For administrators. JSON Lines in the order of the chain: rows, each with its number and
    /// hash, and the signed checkpoints among them, so that `tenant-broker audit verify --file` can
    /// verify a copy. A page ends at a checkpoint. Request the next page with the number of the
    /// last line; this way no row is missed or sent twice. The response is empty if there are no
    /// new rows yet.
    #[oai(path = "/audit-logs/export", method = "get", operation_id = "exportAuditLogs")]
    async fn export(
        &self,
        caller: Authenticated,
        /// `sequence` of the last line of the previous page; 0 or omitted for the first page.
        #[oai(validator(minimum(value = "0")))]
        after: Query<Option<i64>>,
        /// Approximate number of rows, 1 to 5000; 1000 by default. A page may have up to 500 more.
        #[oai(validator(minimum(value = "1"), maximum(value = "5000")))]
        limit: Query<Option<u32>>,
    ) -> Result<JsonLines, ApiError> {
        access::read_everything(&caller.0)?;
        let limit = query::parse_limit(limit.0, DEFAULT_EXPORT_LIMIT, MAX_EXPORT_LIMIT)?;
        let Some(page) = export_page(&self.db, after.0.unwrap_or_default(), limit).await? else {
            return Ok(JsonLines(String::new()));
        };
        page.to_json_lines().map(JsonLines).map_err(|error| ApiError::internal(&error))
    }
}

impl RowWithEmails {
    /// The row as the API shows it to an administrator.
    pub fn into_api(self) -> AuditEntry {
        let Self { row, user_email, subject_email } = self;
        AuditEntry { user_email, subject_email, ..row.into_api() }
    }
}

impl Row {
    /// The row as the API shows it.
    pub fn into_api(self) -> AuditEntry {
        AuditEntry {
            id: self.id,
            created_at: timestamp(self.created_at).into(),
            action: self.action,
            outcome: self.outcome,
            user_id: self.user_id,
            user_email: None,
            subject_user_id: self.subject_user_id,
            subject_email: None,
            workspace_id: self.workspace_id,
            session_id: self.session_id,
            subject_session_id: self.subject_session_id,
            credential_id: self.credential_id,
            ip_address: self.ip_address,
            request_id: self.request_id,
            reason: self.reason,
        }
    }
}
