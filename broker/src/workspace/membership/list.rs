//! Lists of memberships.

use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use super::Membership;
use crate::workspace::{
    Workspaces,
    store::membership::{self, MembershipColumns},
};

impl From<MembershipColumns> for Membership {
    fn from(row: MembershipColumns) -> Self {
        Self {
            tenant: row.tenant_id,
            user: row.user_id,
            workspace: row.id,
            status: WorkspaceStatus::parse(&row.status).unwrap_or(WorkspaceStatus::Failed),
        }
    }
}

impl Workspaces {
    /// The members of a tenant, by user, without those who left.
    ///
    /// # Errors
    /// The database failed.
    pub async fn members_of(&self, tenant: Uuid) -> sqlx::Result<Vec<Membership>> {
        let rows = membership::members(&self.db, tenant).await?;
        Ok(rows.into_iter().map(Membership::from).collect())
    }

    /// The tenants with a name that a user is a member of, the oldest membership first.
    ///
    /// # Errors
    /// The database failed.
    pub async fn memberships_of(&self, user: Uuid) -> sqlx::Result<Vec<Membership>> {
        let rows = membership::of_user(&self.db, user).await?;
        Ok(rows.into_iter().map(Membership::from).collect())
    }

    /// The tenants whose members, or their statuses, changed after this time on any replica, with
    /// the time of the last change, in milliseconds since 1970. A change may become visible some
    /// seconds after its time, so ask again for the last seconds.
    ///
    /// # Errors
    /// The database failed.
    pub async fn tenants_with_changed_members(&self, since: i64) -> sqlx::Result<Vec<(Uuid, i64)>> {
        membership::changed_tenants(&self.db, since).await
    }
}
