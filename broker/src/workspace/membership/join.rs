//! Becoming a member of a tenant.

use tenant_shared::WorkspaceStatus as Status;

use super::MembershipRequest;
use crate::{
    access::{JoinTenant, Permit},
    audit::{self, Action},
    base::db::Tx,
    identity::lock_if_active,
    tenant::{home_name, lock_active_tenant, member_account_name},
    workspace::{
        Initialized, WorkspaceError, WorkspaceRow, Workspaces,
        state::Event,
        store::{
            self,
            membership::{self, NewMembership},
        },
    },
};

impl Workspaces {
    /// Makes the caller a member of a tenant, and creates the ServiceAccount of the membership.
    /// Idempotent. Whether the tenant names the caller is for the caller of this function to check.
    ///
    /// # Errors
    /// The user, the membership or the tenant is suspended; the user left a moment ago; the home
    /// does not exist; or the cluster or the database failed. After a failure of the cluster the
    /// sweep finishes the provisioning.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn join(
        &self,
        permit: &Permit<JoinTenant, MembershipRequest>,
    ) -> Result<Initialized, WorkspaceError> {
        self.join_with(permit.resource(), permit.caller().event(Action::JoinTenant)).await
    }

    /// Like [`Self::join`], because of what the Tenant says and not because the user asked.
    ///
    /// # Errors
    /// See [`Self::join`].
    pub async fn add_member(
        &self,
        request: &MembershipRequest,
    ) -> Result<Initialized, WorkspaceError> {
        let event = audit::Event::success(Action::JoinTenant).to_user(request.user);
        self.join_with(request, event).await
    }

    async fn join_with(
        &self,
        request: &MembershipRequest,
        event: audit::Event,
    ) -> Result<Initialized, WorkspaceError> {
        let workspace = self.begin_join(request, event).await?;
        match workspace.status() {
            Status::Provisioned => {
                Ok(Initialized { workspace: workspace.to_api(), created: false })
            }
            Status::Provisioning | Status::Resuming => {
                Box::pin(self.finish_provisioning(&workspace)).await
            }
            Status::Suspending | Status::Suspended => Err(WorkspaceError::Suspended),
            Status::Failed => Err(WorkspaceError::NotReady(Status::Failed)),
        }
    }

    /// Records the request. The locks order it against a suspension of the user and of the tenant:
    /// an earlier one is seen here, and a later one finds the membership.
    pub(super) async fn begin_join(
        &self,
        request: &MembershipRequest,
        event: audit::Event,
    ) -> Result<WorkspaceRow, WorkspaceError> {
        let (tenant, user) = (&request.tenant, request.user);
        let mut tx = self.db.begin().await?;
        if !lock_if_active(&mut tx, user).await? {
            return Err(WorkspaceError::NotActive);
        }
        if !lock_active_tenant(&mut tx, tenant.id).await? {
            return Err(WorkspaceError::TenantNotActive(tenant.name.to_string()));
        }
        let changed = match store::by_membership(&mut tx, tenant.id, user).await? {
            None => self.insert_membership(&mut tx, request).await?,
            Some(left) if left.former_status().is_some() => {
                self.rejoin(&mut tx, &left).await?;
                true
            }
            Some(member) => store::advance(&mut tx, &self.clock, member.id, Event::Retry).await?,
        };
        let workspace = store::by_membership(&mut tx, tenant.id, user)
            .await?
            .ok_or(sqlx::Error::RowNotFound)?;
        if changed {
            let reason = Some(format!("tenant {}", tenant.name));
            let event = audit::Event { workspace_id: Some(workspace.id), reason, ..event };
            audit::record(&mut tx, &self.clock, event).await?;
        }
        tx.commit().await?;
        if changed {
            self.metrics.action(Action::JoinTenant.as_str(), "success");
        }
        Ok(workspace)
    }

    /// Inserts the row of a new member. One who was suspended in an earlier tenant of this name is
    /// suspended in this one too.
    async fn insert_membership(
        &self,
        tx: &mut Tx,
        request: &MembershipRequest,
    ) -> Result<bool, WorkspaceError> {
        let home = home_name(&request.tenant.name);
        let account = member_account_name(request.user);
        let tenant = request.tenant.id;
        let status = match membership::predecessor(tx, (&home, &account), tenant).await? {
            None => Status::Provisioning,
            // The ServiceAccount of this name is still the earlier membership's.
            Some(earlier) if earlier.status() != Status::Suspended => {
                return Err(WorkspaceError::NotReady(earlier.status()));
            }
            Some(earlier) if is_held(earlier.former_status()) => Status::Suspended,
            Some(earlier) => {
                self.require_expired_token_cache(&earlier)?;
                Status::Provisioning
            }
        };
        let new = NewMembership {
            id: self.clock.random_id(),
            tenant_id: tenant,
            user_id: request.user,
            cluster: self.clusters.for_new_workspaces().name(),
            home: &home,
            account: &account,
            tier: &request.tier,
            status,
        };
        Ok(membership::insert(tx, &self.clock, new).await?)
    }

    /// Makes a user who left a member again, with a new ServiceAccount.
    async fn rejoin(&self, tx: &mut Tx, left: &WorkspaceRow) -> Result<(), WorkspaceError> {
        let held = is_held(left.former_status());
        if !held {
            if left.status() != Status::Suspended {
                return Err(WorkspaceError::NotReady(left.status()));
            }
            self.require_expired_token_cache(left)?;
        }
        membership::clear_former_status(tx, left.id).await?;
        if !held {
            store::advance(tx, &self.clock, left.id, Event::Resume).await?;
        }
        Ok(())
    }
}

/// Whether a membership was suspended before the user left. `None`: the user did not leave, so only
/// an administrator can have suspended it.
fn is_held(left_status: Option<Status>) -> bool {
    matches!(left_status, None | Some(Status::Suspending | Status::Suspended))
}
