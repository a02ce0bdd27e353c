//! Reading the audit trail over HTTP.

use poem_openapi::{OpenApi, param::Query, payload::Json};
use tenant_shared::{AuditEntry, AuditPage, Role};
use uuid::Uuid;

use super::{Addressed, Filter, Row, page, read, read_addressed};
use crate::{
    access, clock::timestamp, db::Db, http::JsonLines, identity::Bearer, list, problem::Failure,
    workspace::Workspaces,
};

/// Rows of a page where the caller names no number.
const DEFAULT_LIMIT: u32 = 50;
/// Rows of a page at most.
const MOST: u32 = 500;

/// Rows of a page of an export, about, where the caller names no number.
const EXPORT_LIMIT: u32 = 1000;
/// Rows of a page of an export at most, but for the batch that it ends in.
const MOST_EXPORTED: u32 = 5000;

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
    /// Newest first. A person sees what they did and what happened to them and their workspace, an
    /// administrator everything. Where somebody else did it, a person does not see from which address
    /// and in which session.
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
        let limit = list::limit(limit.0, DEFAULT_LIMIT, MOST)?;
        let filter = Filter {
            user_id: (caller.0.role() != Role::Admin).then(|| caller.0.user_id()),
            workspace_id: workspace_id.0,
            action: action.0,
            before: cursor.0,
        };
        // One row more than asked for tells whether there is a next page.
        let mut items: Vec<AuditEntry> = if let Some(reader) = filter.user_id {
            let rows = read(&self.db, &filter, limit + 1).await?;
            rows.into_iter().map(|row| row.wire().shown_to(reader)).collect()
        } else {
            let rows = read_addressed(&self.db, &filter, limit + 1).await?;
            rows.into_iter().map(Addressed::wire).collect()
        };
        let next_cursor = list::page(&mut items, limit, |entry| entry.id.to_string());
        Ok(Json(AuditPage { items, next_cursor }))
    }

    /// Export the audit trail
    ///
    /// For administrators. JSON Lines in the order of the chain: rows, each with its number and hash,
    /// and the signed checkpoints among them, so that `tenant-broker audit verify --file` can say
    /// whether a copy is whole. A page ends at a checkpoint. The next one is asked for with the number
    /// of the last line; no row is ever missed or sent twice that way. Empty if there is nothing yet.
    #[oai(path = "/audit-logs/export", method = "get", operation_id = "exportAuditLogs")]
    async fn export(
        &self,
        caller: Bearer,
        /// `sequence` of the last line of the page before; 0 or nothing for the first one.
        #[oai(validator(minimum(value = "0")))]
        after: Query<Option<i64>>,
        /// About how many rows, 1 to 5000, 1000 if not given. A page may have up to 500 more.
        #[oai(validator(minimum(value = "1"), maximum(value = "5000")))]
        limit: Query<Option<u32>>,
    ) -> Result<JsonLines, Failure> {
        access::read_everything(&caller.0)?;
        let limit = list::limit(limit.0, EXPORT_LIMIT, MOST_EXPORTED)?;
        let Some(page) = page(&self.db, after.0.unwrap_or_default(), limit).await? else {
            return Ok(JsonLines(String::new()));
        };
        page.to_json_lines().map(JsonLines).map_err(|error| Failure::internal(&error))
    }
}

impl Addressed {
    /// As the API shows it to an administrator.
    pub fn wire(self) -> AuditEntry {
        let Self { row, user_email, subject_email } = self;
        AuditEntry { user_email, subject_email, ..row.wire() }
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
