//! `GET /audit-logs/export`

use poem_openapi::{OpenApi, param::Query};

use crate::{
    access,
    audit::AuditTrail,
    http::{ApiError, Authenticated, JsonLines, query},
};

/// Approximate rows of a page if the request has no `limit`.
const DEFAULT_LIMIT: u32 = 1000;
/// Maximum of `limit`; the batch that the page ends in may add rows.
const MAX_LIMIT: u32 = 5000;

/// `exportAuditLogs`.
#[derive(Debug)]
pub struct ExportAuditLogs {
    pub(super) trail: AuditTrail,
}

#[OpenApi(prefix_path = "/audit-logs")]
impl ExportAuditLogs {
    /// Export the audit trail
    ///
    /// For administrators. JSON Lines in the order of the chain: rows, each with its number and
    /// hash, and the signed checkpoints among them, so that `tenant-broker audit verify --file` can
    /// verify a copy. A page ends at a checkpoint. Request the next page with the number of the
    /// last line; this way no row is missed or sent twice. The response is empty if there are no
    /// new rows yet.
    #[oai(path = "/export", method = "get", operation_id = "exportAuditLogs")]
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
        let whole = access::whole_trail(&caller.0)?;
        let limit = query::parse_limit(limit.0, DEFAULT_LIMIT, MAX_LIMIT)?;
        let after = after.0.unwrap_or_default();
        let Some(page) = self.trail.export_page(whole, after, limit).await? else {
            return Ok(JsonLines(String::new()));
        };
        page.to_json_lines().map(JsonLines).map_err(|error| ApiError::internal(&error))
    }
}
