//! The members of a tenant.

use tenant_shared::{TenantMember, TenantMemberList};
use uuid::Uuid;

use super::{TenantOperations, error::TenantError, list::roles};
use crate::{
    identity::{self, Caller, users},
    tenant::{Rights, TenantName, rights_of},
};

impl TenantOperations {
    /// The members of a tenant with their rights, by e-mail address.
    ///
    /// # Errors
    /// [`TenantError::NotFound`], also if the caller may not see the tenant;
    /// [`TenantError::NotOwner`] for members who neither own it nor are administrators; the Tenants
    /// were not read yet; or the database failed.
    pub async fn members(
        &self,
        caller: &Caller,
        name: &TenantName,
    ) -> Result<TenantMemberList, TenantError> {
        let (viewer, cached) = self.view(caller, name).await?;
        // The copy may still name an owner who was removed, and the list has e-mail addresses.
        if !viewer.is_administrator && !self.fresh(caller, name).await?.rights.is_owner {
            return Err(TenantError::NotOwner { tenant: name.clone() });
        }
        let row = self.tenants.by_name(name).await?.ok_or(TenantError::NotFound)?;
        let members = self.workspaces.members_of(row.id).await?;
        let ids: Vec<Uuid> = members.iter().map(|member| member.user).collect();
        let persons = identity::persons(&self.db, &self.person_rules, &ids).await?;
        let mut emails = users::emails(&self.db, &ids).await?;
        let items = members.into_iter().map(|member| {
            // A user who may not sign in is nobody to Kubernetes.
            let rights = match (cached.as_deref(), persons.get(&member.user)) {
                (Some(cached), Some(person)) => rights_of(&cached.tenant, person, &self.settings),
                _ => Rights::default(),
            };
            TenantMember {
                user: member.user,
                email: emails.remove(&member.user).unwrap_or_default(),
                workspace: member.workspace,
                status: member.status,
                is_owner: rights.is_owner,
                roles: roles(&rights),
            }
        });
        let mut items: Vec<TenantMember> = items.collect();
        items.sort_by(|one, other| one.email.cmp(&other.email));
        Ok(TenantMemberList { items })
    }
}
