//! Calls for the audit trail.

use tenant_shared::AuditEntry;
use uuid::Uuid;

use super::{Broker, Page};
use crate::error::Error;

impl Broker {
    /// Lists at most `limit` rows of the audit trail, newest first: of one workspace or of all that
    /// this user may see, of one action or of all.
    pub(crate) async fn audit(
        &self,
        workspace: Option<Uuid>,
        action: Option<&str>,
        limit: u32,
    ) -> Result<Page<AuditEntry>, Error> {
        let workspace = workspace.map(|id| id.to_string());
        let mut query = Vec::new();
        query.extend(workspace.iter().map(|id| ("workspace_id", &**id)));
        query.extend(action.map(|action| ("action", action)));
        self.list("/audit-logs", &query, limit).await
    }
}
