//! HTTP API of the audit trail: `/audit-logs`.

mod export;
mod read;

use self::{export::ExportAuditLogs, read::ReadAuditLogs};
use super::AuditTrail;
use crate::workspace::Workspaces;

/// Operations on the audit trail.
pub type AuditApi = (ReadAuditLogs, ExportAuditLogs);

/// The operations on this trail.
pub fn api(trail: AuditTrail, workspaces: Workspaces) -> AuditApi {
    (ReadAuditLogs { trail: trail.clone(), workspaces }, ExportAuditLogs { trail })
}
