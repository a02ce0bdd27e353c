//! Provisioning: `init`, and its completion, which `resume` uses too.

use tenant_shared::{Quota, Workspace, WorkspaceStatus, tenant_namespace};
use uuid::Uuid;

use super::{
    WorkspaceError, WorkspaceRow, Workspaces,
    state::{Event, WorkspaceKind},
    store::{self, NewWorkspace, ObjectUids},
};
use crate::{
    access::{CreateWorkspace, Permit},
    audit::{self, Action},
    base::throttle::{self, RateLimit},
    identity::lock_if_active,
    tenant::{get_or_create_personal, lock_active_tenant},
    tier::Tier,
};

/// Name of the namespace of a new workspace of this user.
fn new_namespace(user: Uuid) -> String {
    tenant_namespace(user)
}

/// Result of `init`.
#[derive(Debug)]
pub struct Initialized {
    /// The API form of the workspace.
    pub workspace: Workspace,
    /// Whether this call finished its provisioning.
    pub created: bool,
}

impl Workspaces {
    /// Returns the caller's workspace, and creates it or finishes its provisioning if needed.
    /// Idempotent.
    ///
    /// # Errors
    /// The tier is unknown or not the workspace's, the rate limit is exceeded, the user or the
    /// workspace is suspended, an object conflicts, or the cluster or the database failed. After a
    /// failure of the cluster the sweep finishes the provisioning.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn init(
        &self,
        permit: &Permit<CreateWorkspace>,
        tier_name: &str,
    ) -> Result<Initialized, WorkspaceError> {
        let tier = self.tiers.get(tier_name).ok_or_else(|| WorkspaceError::UnknownTier {
            tier: tier_name.chars().take(63).collect(),
            known: self.tiers.names().into_iter().map(str::to_owned).collect(),
        })?;
        let workspace = self.begin_init(permit, tier_name, tier).await?;
        match workspace.status() {
            _ if workspace.tier != tier_name => Err(WorkspaceError::OtherTier(workspace.tier)),
            WorkspaceStatus::Provisioned => {
                Ok(Initialized { workspace: workspace.to_api(), created: false })
            }
            WorkspaceStatus::Provisioning => self.finish_provisioning(&workspace).await,
            WorkspaceStatus::Suspending | WorkspaceStatus::Suspended => {
                Err(WorkspaceError::Suspended)
            }
            status => Err(WorkspaceError::NotReady(status)),
        }
    }

    /// Records the request. One transaction counts the call against the rate limit, inserts the row
    /// with the caller's personal tenant and writes the audit entry, so that none of them exists
    /// without the others.
    async fn begin_init(
        &self,
        permit: &Permit<CreateWorkspace>,
        tier_name: &str,
        tier: &Tier,
    ) -> Result<WorkspaceRow, WorkspaceError> {
        let caller = permit.caller();
        let user = caller.user_id();
        let namespace = new_namespace(user);
        let mut tx = self.db.begin().await?;
        // An administrator may have suspended the user since the session was read.
        if !lock_if_active(&mut tx, user).await? {
            return Err(WorkspaceError::NotActive);
        }
        let subject = user.to_string();
        let taken =
            throttle::consume(&mut tx, &self.clock, RateLimit::Init, &subject, self.init_limit)
                .await?;
        if let Err(too_many) = taken {
            tx.commit().await?;
            self.metrics.action(Action::InitWorkspace.as_str(), "refused");
            return Err(WorkspaceError::TooMany(too_many));
        }
        let tenant = get_or_create_personal(&mut tx, &self.clock, user).await?;
        let new = NewWorkspace {
            id: self.clock.random_id(),
            tenant_id: tenant,
            user_id: user,
            cluster: self.clusters.for_new_workspaces().name(),
            namespace: &namespace,
            tier: tier_name,
            quota: Quota { cpu: tier.cpu.clone(), memory: tier.memory.clone() },
        };
        let inserted = store::insert(&mut tx, &self.clock, new).await?;
        let workspace =
            store::by_membership(&mut tx, tenant, user).await?.ok_or(sqlx::Error::RowNotFound)?;
        let retried = !inserted
            && workspace.tier == tier_name
            && store::advance(&mut tx, &self.clock, workspace.id, Event::Retry).await?;
        if inserted || retried {
            let event = caller.event(Action::InitWorkspace);
            let event = audit::Event { workspace_id: Some(workspace.id), ..event };
            audit::record(&mut tx, &self.clock, event).await?;
        }
        let workspace = if retried {
            store::by_membership(&mut tx, tenant, user).await?.ok_or(sqlx::Error::RowNotFound)?
        } else {
            workspace
        };
        tx.commit().await?;
        Ok(workspace)
    }

    /// Creates all objects of a workspace and marks it provisioned. Concurrent calls are safe: each
    /// object is created once, and one of the calls finishes first.
    pub(super) async fn finish_provisioning(
        &self,
        workspace: &WorkspaceRow,
    ) -> Result<Initialized, WorkspaceError> {
        if workspace.status() == WorkspaceStatus::Provisioning && workspace.retired_sa_uid.is_some()
        {
            Box::pin(self.delete_retired_account(workspace)).await?;
        }
        let made = match Box::pin(self.create_all(workspace)).await {
            Ok(made) => made,
            Err(WorkspaceError::Conflict(what)) => {
                self.mark_failed(workspace, &what).await?;
                return Err(WorkspaceError::Conflict(what));
            }
            Err(error) => return Err(error),
        };
        let action = match workspace.status() {
            WorkspaceStatus::Resuming => Action::WorkspaceResumed,
            _ => Action::WorkspaceProvisioned,
        };
        let mut tx = self.db.begin().await?;
        // A suspension of the tenant that began before the account existed did not find it.
        if let Some(tenant) = workspace.tenant_name()
            && !lock_active_tenant(&mut tx, workspace.tenant_id).await?
        {
            drop(tx);
            self.undo_account(workspace, &made.service_account).await?;
            return Err(WorkspaceError::TenantNotActive(tenant));
        }
        let since = Some(workspace.status_changed_at);
        let exist = Event::ObjectsExist;
        let created =
            store::advance_since(&mut tx, &self.clock, workspace.id, exist, since).await?;
        if created {
            store::set_uids(&mut tx, workspace.id, &made).await?;
            let event = audit::Event {
                user_id: Some(workspace.user_id),
                workspace_id: Some(workspace.id),
                ..audit::Event::success(action)
            };
            audit::record(&mut tx, &self.clock, event).await?;
        }
        tx.commit().await?;
        let workspace =
            store::by_id(&self.db, workspace.id).await?.ok_or(sqlx::Error::RowNotFound)?;
        match workspace.status() {
            WorkspaceStatus::Provisioned => {
                if created {
                    self.metrics.action(action.as_str(), "success");
                }
                Ok(Initialized { workspace: workspace.to_api(), created })
            }
            WorkspaceStatus::Suspending | WorkspaceStatus::Suspended => {
                // The workspace was suspended meanwhile, so access is revoked again, including the
                // new objects.
                self.revoke_regained_access(&workspace).await?;
                Err(WorkspaceError::Suspended)
            }
            status => Err(WorkspaceError::NotReady(status)),
        }
    }

    /// Creates the objects that a workspace consists of.
    async fn create_all(&self, workspace: &WorkspaceRow) -> Result<ObjectUids, WorkspaceError> {
        match workspace.kind() {
            WorkspaceKind::Personal => Ok(self.create_objects(workspace).await?),
            WorkspaceKind::Membership => self.create_member_account(workspace).await,
        }
    }

    async fn mark_failed(&self, workspace: &WorkspaceRow, why: &str) -> sqlx::Result<()> {
        let action = match workspace.kind() {
            WorkspaceKind::Personal => Action::InitWorkspace,
            WorkspaceKind::Membership => Action::JoinTenant,
        };
        let mut tx = self.db.begin().await?;
        if store::advance(&mut tx, &self.clock, workspace.id, Event::Conflict).await? {
            let event = audit::Event {
                user_id: Some(workspace.user_id),
                workspace_id: Some(workspace.id),
                ..audit::Event::refused(action, why)
            };
            audit::record(&mut tx, &self.clock, event).await?;
            self.metrics.action(action.as_str(), "refused");
        }
        tx.commit().await
    }
}

#[cfg(test)]
mod tests {
    use tenant_shared::Role;

    use super::*;
    use crate::{
        access,
        identity::Caller,
        testing::{On, Storage, on_both_engines, run_concurrently},
    };

    on_both_engines!(of_concurrent_calls_one_creates_the_workspace_and_its_tenant);

    async fn of_concurrent_calls_one_creates_the_workspace_and_its_tenant(on: On) {
        let storage = Storage::new(on).await;
        let user = storage.user().await;
        let workspaces = storage.workspaces().await;
        let replicas = [workspaces.clone(), workspaces.with_db(&storage.database.connect().await)];
        let found = run_concurrently((0..8).map(|n| {
            let workspaces = replicas[n % 2].clone();
            async move {
                let caller = Caller::for_tests(&workspaces.clock, user, Role::User);
                let permit = access::authorize_all::<CreateWorkspace>(&caller).unwrap();
                let tier = workspaces.tiers.get("basic").unwrap();
                workspaces.begin_init(&permit, "basic", tier).await.unwrap()
            }
        }))
        .await;
        assert!(found.iter().all(|row| row.id == found[0].id), "all see the same row");
        assert_eq!(found[0].k8s_namespace, tenant_namespace(user));
        let personal = "SELECT COUNT(*) FROM workspaces w JOIN tenants t ON t.id = w.tenant_id \
                        WHERE t.id = w.user_id AND t.name IS NULL";
        for (count, of) in [
            (personal, "personal tenants with their workspace"),
            ("SELECT COUNT(*) FROM tenants", "tenants"),
            ("SELECT COUNT(*) FROM audit_logs WHERE action = 'InitWorkspace'", "audit entries"),
        ] {
            assert_eq!(storage.number(count).await, 1, "{of}");
        }
    }
}
