//! Groups of users in Kubernetes, as administrators see and give them.

use tenant_shared::UserGroups;
use uuid::Uuid;

use super::{NO_REASON, UserError, Users};
use crate::{
    access::{ManageUsers, Permit},
    audit::Action,
    base::db::Tx,
    identity::{self, GivenGroups, Groups},
};

impl Users {
    /// The groups of a user, and who decides on them.
    ///
    /// # Errors
    /// There is no such user, or the database failed.
    pub async fn groups(&self, _: &Permit<ManageUsers>, id: Uuid) -> Result<UserGroups, UserError> {
        let row = identity::groups_of_user(&self.db, id).await?.ok_or(UserError::NotFound)?;
        Ok(UserGroups {
            id,
            email: row.email,
            groups: row.groups.names().iter().cloned().collect(),
            issuer: row.issuer,
        })
    }

    /// Replaces the groups of a user with a local account. `None` stands for a request without a
    /// list, which is refused, because it must not take groups away by mistake.
    ///
    /// # Errors
    /// There is no list, or it has a name that no group can have, or too many; there is no such
    /// user; a provider decides on their groups; the caller was suspended meanwhile; or the
    /// database failed. Nothing was changed then.
    pub async fn set_groups(
        &self,
        permit: &Permit<ManageUsers>,
        id: Uuid,
        groups: Option<Vec<String>>,
        reason: Option<&str>,
    ) -> Result<UserGroups, UserError> {
        self.existing(permit, id).await?;
        let groups = Groups::given(groups.ok_or(UserError::NoGroups)?)?;
        let now = self.clock.now_ms();
        let change = async |tx: &mut Tx| identity::give_groups(tx, id, &groups, now).await;
        let (mut tx, given) =
            self.change_as_administrator(permit, id, Action::ChangeGroups, change).await?;
        match given {
            Some(GivenGroups::Replaced(before)) if before != groups => {
                let change = before.describe_change(&groups);
                let reason = format!("{change}: {}", reason.unwrap_or(NO_REASON));
                self.record(&mut tx, permit, id, Action::ChangeGroups, &reason).await?;
                tx.commit().await?;
                self.metrics.action(Action::ChangeGroups.as_str(), "success");
            }
            Some(GivenGroups::Replaced(_)) => drop(tx),
            Some(GivenGroups::OfProvider) => {
                // Rolls back first, because the refusal is recorded in another transaction.
                drop(tx);
                let (by, refusal) = (permit.caller(), UserError::GroupsOfProvider);
                return Err(self.refuse(by, id, Action::ChangeGroups, refusal).await);
            }
            None => return Err(UserError::NotFound),
        }
        self.groups(permit, id).await
    }
}
