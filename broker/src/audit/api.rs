//! Reading the audit trail over HTTP.

use poem_openapi::{OpenApi, param::Query, payload::Json};
use tenant_shared::{AuditEntry, AuditPage, Code, Role};
use uuid::Uuid;

use super::{Filter, Row, page, read};
use crate::{
    access, clock::timestamp, db::Db, http::JsonLines, identity::Bearer, problem::Failure,
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
        let shown = |row: Row| match filter.user_id {
            Some(reader) => row.wire().shown_to(reader),
            None => row.wire(),
        };
        Ok(Json(AuditPage { items: rows.into_iter().map(shown).collect(), next_cursor }))
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
        let limit = limit.0.unwrap_or(EXPORT_LIMIT);
        if !(1..=MOST_EXPORTED).contains(&limit) {
            return Err(Failure::new(Code::InvalidRequest, "limit is a number from 1 to 5000"));
        }
        let Some(page) = page(&self.db, after.0.unwrap_or_default(), limit).await? else {
            return Ok(JsonLines(String::new()));
        };
        page.to_json_lines().map(JsonLines).map_err(|error| Failure::internal(&error))
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
            subject_user_id: self.subject_user_id,
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
