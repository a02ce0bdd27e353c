//! Lists of memberships.

use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use super::{ChangedMembership, Membership};
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

    /// The tenants with a name that have members, in no order, whether or not they are closed.
    ///
    /// # Errors
    /// The database failed.
    pub async fn tenants_with_members(&self) -> sqlx::Result<Vec<Uuid>> {
        membership::tenants_with_members(&self.db).await
    }

    /// The tenants with a name that a user is a member of, the oldest membership first.
    ///
    /// # Errors
    /// The database failed.
    pub async fn memberships_of(&self, user: Uuid) -> sqlx::Result<Vec<Membership>> {
        let rows = membership::of_user(&self.db, user).await?;
        Ok(rows.into_iter().map(Membership::from).collect())
    }

    /// The memberships that began, ended or changed their status after this time on any replica. A
    /// change may become visible some seconds after its time, so ask again for the last seconds.
    ///
    /// # Errors
    /// The database failed.
    pub async fn changed_memberships(&self, since: i64) -> sqlx::Result<Vec<ChangedMembership>> {
        let rows = membership::changed(&self.db, since).await?;
        let changed = rows.into_iter().map(|(tenant, workspace, changed_at)| ChangedMembership {
            tenant,
            workspace,
            changed_at,
        });
        Ok(changed.collect())
    }
}
