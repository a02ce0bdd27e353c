//! The members of a tenant as persons.

use std::collections::BTreeSet;

use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use super::{TenantController, error::ReconcileError};
use crate::{
    base::error_chain,
    identity,
    tenant::{Member, TenantName, TenantRow},
};

impl TenantController {
    /// The members of a tenant with their names in Kubernetes. A member who is in none of the groups
    /// that may be members (`tenants.groups`) is suspended. One who may not sign in is left out.
    ///
    /// # Errors
    /// The database failed.
    pub(super) async fn members(&self, row: &TenantRow) -> Result<Vec<Member>, ReconcileError> {
        let memberships = self.workspaces.members_of(row.id).await?;
        let users: Vec<Uuid> = memberships.iter().map(|membership| membership.user).collect();
        let mut persons = identity::persons(&self.db, &self.person_rules, &users).await?;
        let members = memberships.into_iter().filter_map(|membership| {
            let person = persons.remove(&membership.user)?;
            // Only a provisioned member has a ServiceAccount that may be bound.
            let suspended = membership.status != WorkspaceStatus::Provisioned
                || !person.is_in_scope(&self.settings.groups);
            Some(Member { user: membership.user, person, suspended })
        });
        Ok(members.collect())
    }

    /// Ends all memberships of a tenant whose object is gone. Members get no credential from then
    /// on; the sweep finishes what fails in the cluster.
    ///
    /// # Errors
    /// The database failed.
    pub(super) async fn end_memberships(&self, row: &TenantRow) -> Result<(), ReconcileError> {
        for membership in self.workspaces.members_of(row.id).await? {
            let reason = Some(format!("the Tenant {} is gone", row.name));
            Box::pin(self.workspaces.leave(membership.workspace, reason)).await?;
        }
        Ok(())
    }

    /// Names of the tenants of these users, and of those whose members changed after this time.
    ///
    /// # Errors
    /// The database failed.
    pub(super) async fn tenants_of_members(
        &self,
        users: &[Uuid],
        since: i64,
    ) -> sqlx::Result<BTreeSet<TenantName>> {
        let changed = self.workspaces.tenants_with_changed_members(since).await?;
        let mut ids: BTreeSet<Uuid> = changed.into_iter().map(|(tenant, _)| tenant).collect();
        for user in users {
            let memberships = self.workspaces.memberships_of(*user).await?;
            ids.extend(memberships.into_iter().map(|membership| membership.tenant));
        }
        let mut names = BTreeSet::new();
        for id in ids {
            match self.tenants.by_id(id).await {
                Ok(row) => names.extend(row.map(|row| row.name)),
                // The others are not delayed by a row that this version cannot read.
                Err(error) => {
                    tracing::warn!(
                        error = error_chain(&error),
                        "cannot read the tenant of a membership that changed"
                    );
                }
            }
        }
        Ok(names)
    }
}
