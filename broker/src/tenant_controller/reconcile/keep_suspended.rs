//! A home with the label of a suspended tenant, although the row says that the tenant is active: the
//! database was restored, or is new, or somebody labelled the home. The policies let only the broker and
//! their administrators write the label, and a resumption removes it before the row is active. So the
//! tenant was suspended later than the row says.

use crate::{
    audit::{self, Action},
    cluster::HomeState,
    tenant::{TenantRow, TenantStatus, decision_reason, home_name},
    tenant_controller::{TenantController, error::ReconcileError, objects::snapshot::Snapshot},
};

/// Why a tenant is suspended, for the audit trail.
const WHY: &str = "the home has the suspended label: the tenant was suspended after the restored \
                   backup, or an administrator of the policies set the label";

impl TenantController {
    /// Begins the suspension of an active tenant whose home has the suspended label. Returns whether the
    /// home has it, so that the run ends: the next one reads the row again.
    ///
    /// # Errors
    /// The home could not be read, or the database failed.
    pub(in crate::tenant_controller) async fn keep_suspended(
        &self,
        row: &TenantRow,
        snapshot: &Snapshot,
    ) -> Result<bool, ReconcileError> {
        let (home, tenant) = (home_name(&row.name), row.name.as_str());
        let is_marked = row.status == TenantStatus::Active
            && snapshot.namespace(&home).is_some_and(|it| is_suspended(&HomeState::of(it, tenant)));
        // A list may be older than a resumption that another replica finished.
        if !is_marked || !is_suspended(&self.cluster.home_state(&home, tenant).await?) {
            return Ok(false);
        }
        let event = audit::Event {
            reason: Some(decision_reason(&row.name, Some(WHY))),
            ..audit::Event::success(Action::SuspendTenant)
        };
        if self.tenants.keep_suspended(row, event).await? {
            self.metrics.action(Action::SuspendTenant.as_str(), "success");
            tracing::warn!(
                tenant = %row.name,
                "a tenant is suspended, because its home has the suspended label"
            );
            self.suspend_soon(&row.name);
        }
        Ok(true)
    }
}

fn is_suspended(home: &HomeState) -> bool {
    *home == HomeState::Suspended
}
