//! The members of a tenant.

use tenant_shared::{TenantMember, TenantMemberList};
use uuid::Uuid;

use super::{
    TenantOperations, authorize::authorize_on, current_tenant::CurrentTenant, error::TenantError,
    list::roles, tenant_reader::TenantView,
};
use crate::{
    access::{Grants, ListTenantMembers, Permit, ReadTenant, Resource},
    identity::{self, Caller, users},
    tenant::{Rights, TenantName, rights_of},
};

/// The members of a tenant that the caller sees. The copy of the Tenant may still name an owner who
/// was removed, and the list has e-mail addresses, so only a Tenant that was read just now makes the
/// caller an owner of it.
#[derive(Debug)]
pub struct TenantMembers {
    tenant: Permit<ReadTenant, TenantView>,
    /// `None` for administrators.
    current: Option<CurrentTenant>,
}

impl Resource for TenantMembers {
    type Id = TenantName;

    fn id(&self) -> TenantName {
        self.tenant.resource().id()
    }

    fn workspace(&self) -> Option<Uuid> {
        self.tenant.resource().workspace()
    }

    fn grants(&self) -> Grants {
        let is_owner = self.current.as_ref().is_some_and(|current| current.rights.is_owner);
        let tenant = self.tenant.resource();
        Grants::of_person(tenant.user, is_owner, tenant.is_member())
    }
}

impl TenantOperations {
    /// Authorizes a caller to see the members of a tenant.
    ///
    /// # Errors
    /// [`TenantError::NotFound`], also if the caller may not see the tenant;
    /// [`TenantError::NotOwner`] for members who neither own it nor are administrators; the Tenants
    /// were not read yet; or the database failed.
    pub async fn authorize_members(
        &self,
        caller: &Caller,
        name: &TenantName,
    ) -> Result<Permit<ListTenantMembers, TenantMembers>, TenantError> {
        let tenant = self.authorize_read(caller, name).await?;
        let current = if tenant.resource().is_administrator {
            None
        } else {
            Some(self.current_tenant(caller, name).await?)
        };
        authorize_on(caller, TenantMembers { tenant, current })
    }

    /// The members of a tenant with their rights, by e-mail address.
    ///
    /// # Errors
    /// [`TenantError::NotFound`] for a tenant without a row; or the database failed.
    pub async fn members(
        &self,
        permit: &Permit<ListTenantMembers, TenantMembers>,
    ) -> Result<TenantMemberList, TenantError> {
        let TenantView { name, cached, .. } = permit.resource().tenant.resource();
        let row = self.tenants.by_name(name).await?.ok_or(TenantError::NotFound)?;
        let members = self.workspaces.members_of(row.id).await?;
        let ids: Vec<Uuid> = members.iter().map(|member| member.user).collect();
        let persons = identity::rbac_users(&self.db, &self.rbac_user_rules, &ids).await?;
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
