//! Memberships in tenants that have a name.
//!
//! A membership is a workspace without a namespace of its own. It has a ServiceAccount
//! `member-USER` in the home of the tenant, and nothing else: namespaces, quotas and RoleBindings
//! are the tenant's, also those that name this ServiceAccount. Ledger, rotation, suspension and
//! sweep are those of a personal workspace.
//!
//! A user who leaves keeps the row, because credentials refer to it. It is suspended, and
//! `left_status` has the status until then. So a user whom an administrator suspended cannot leave
//! and join again as an active member, not even if the tenant is deleted and made again meanwhile.

mod account;
mod join;
mod leave;
mod list;
#[cfg(test)]
mod tests;
mod tokens;

pub(super) use account::require_home;
use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use crate::{
    access::{Grants, Resource},
    tenant::TenantRow,
};

/// The membership that a user asks for. A [`crate::access::Permit`] for it is the user's own.
#[derive(Clone, Debug)]
pub struct MembershipRequest {
    /// The tenant, which has to name the user as an owner or in a binding.
    pub tenant: TenantRow,
    /// The user who becomes a member.
    pub user: Uuid,
    /// The tier whose gateway limits the member has.
    pub tier: String,
}

impl Resource for MembershipRequest {
    type Id = Uuid;

    /// Identifier of the tenant.
    fn id(&self) -> Uuid {
        self.tenant.id
    }

    fn workspace(&self) -> Option<Uuid> {
        None
    }

    fn grants(&self) -> Grants {
        Grants::owned_by(self.user)
    }
}

/// A user in a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Identifier of the tenant.
    pub tenant: Uuid,
    /// The member.
    pub user: Uuid,
    /// Identifier of the membership, by which the API addresses it as a workspace.
    pub workspace: Uuid,
    /// Only a provisioned member has a ServiceAccount that may be bound.
    pub status: WorkspaceStatus,
}

/// A membership that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedMembership {
    /// Identifier of the tenant.
    pub tenant: Uuid,
    /// Identifier of the membership.
    pub workspace: Uuid,
    /// When it changed, in milliseconds since 1970.
    pub changed_at: i64,
}
