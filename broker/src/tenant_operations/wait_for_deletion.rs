//! Wait for the record of a namespace's end, on which a creation depends.
//!
//! A client may delete a namespace and create one at once. The API server has no such namespace any more, but
//! its row still takes the name, and a place of the quota, until the controller has recorded the end.

use std::time::Duration;

use super::{TenantOperations, create::POLL_INTERVAL, error::TenantError};
use crate::tenant::{NamespaceRow, NamespaceStatus, TenantName, TenantRow};

/// How long a request for the name of a namespace that was deleted waits until the row says so.
const GONE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a request beyond the quota waits until the watch shows the end of a namespace.
const WATCH_TIMEOUT: Duration = Duration::from_millis(300);
/// Namespaces among which a request beyond the quota looks for one that is gone.
const MAX_COUNTED: i64 = 1_000;

impl TenantOperations {
    /// After the refusal of a name that exists, or of a creation beyond the quota, waits until the controller
    /// has recorded the end of the namespace, or of one that counts, if it is gone: a client may delete a
    /// namespace and create one at once. `false` if none is gone, or if its end is not recorded in time.
    pub(super) async fn wait_until_recorded_as_gone(
        &self,
        tenant: &TenantName,
        refusal: &TenantError,
    ) -> Result<bool, TenantError> {
        let Some(tenant) = self.tenants.by_name(tenant).await? else { return Ok(false) };
        let name = match refusal {
            TenantError::NamespaceExists { namespace, .. } => Some(namespace.clone()),
            TenantError::QuotaExceeded { .. } => {
                self.counted_namespace_that_is_gone(&tenant).await?
            }
            _ => None,
        };
        // The end may have been recorded since the refusal.
        let Some(name) = name else { return self.has_room_again(&tenant, refusal).await };
        let row = async || {
            let row = self.tenants.namespace_row(&name).await?;
            Ok::<_, TenantError>(row.filter(|row| row.status != NamespaceStatus::Gone))
        };
        let was_created = |row: &NamespaceRow| {
            use NamespaceStatus::{Active, Terminating};
            row.tenant_id == tenant.id && matches!(row.status, Active | Terminating)
        };
        if self.live_namespace(&name).await?.is_some() {
            return Ok(false);
        }
        match row().await? {
            // Since the refusal.
            None => return Ok(true),
            Some(row) if !was_created(&row) => return Ok(false),
            Some(_) => {}
        }
        self.controller.reconcile_soon(&tenant.name);
        let recorded = async {
            while row().await?.is_some_and(|row| was_created(&row)) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Ok(true)
        };
        tokio::time::timeout(GONE_TIMEOUT, recorded).await.unwrap_or(Ok(false))
    }

    /// Whether fewer namespaces count than at the refusal of a creation beyond the quota.
    async fn has_room_again(
        &self,
        tenant: &TenantRow,
        refusal: &TenantError,
    ) -> Result<bool, TenantError> {
        let TenantError::QuotaExceeded { used, .. } = refusal else { return Ok(false) };
        let counted = self.tenants.counted_namespaces(tenant.id).await?;
        Ok(usize::try_from(*used).is_ok_and(|used| counted < used))
    }

    /// A namespace of a tenant that counts and that the watch of namespaces no longer shows. If one is being
    /// deleted, waits for a moment, because the client may have seen its end before this process does.
    async fn counted_namespace_that_is_gone(
        &self,
        tenant: &TenantRow,
    ) -> Result<Option<String>, TenantError> {
        let counted = self.tenants.created_namespaces(tenant.id, MAX_COUNTED).await?;
        let is_gone = |name: &str| self.cache.tenant_of_namespace(name).is_none();
        let gone = || counted.iter().find(|(name, _)| is_gone(name)).map(|(name, _)| name.clone());
        let is_any_terminating = counted.iter().any(|(_, is_terminating)| *is_terminating);
        let wait = if is_any_terminating { WATCH_TIMEOUT } else { Duration::ZERO };
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            let gone = gone();
            if gone.is_some() || tokio::time::Instant::now() >= deadline {
                return Ok(gone);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
