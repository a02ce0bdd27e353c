//! Init, and the objects that init and resume make.

use std::time::Duration;

use tenant_shared::{Quota, WorkspaceStatus, tenant_namespace};

use super::{
    Found, WorkspaceError, Workspaces, objects,
    state::Event,
    store::{self, MadeUids, New},
};
use crate::{
    access::{CreateWorkspace, Permit},
    audit::{self, Action},
    cluster::{ClusterError, Object, Outcome},
    config::Tier,
    identity::hold_active,
    throttle::{self, Limited},
};

/// How long the quota controller may take until the API server enforces a new quota.
const QUOTA_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two looks at the quota; doubled each time up to [`MAX_QUOTA_PAUSE`].
const QUOTA_PAUSE: Duration = Duration::from_millis(10);
const MAX_QUOTA_PAUSE: Duration = Duration::from_millis(200);

/// What init found or made.
#[derive(Debug)]
pub struct Initialized {
    /// The workspace.
    pub workspace: Found,
    /// Whether this call finished it.
    pub created: bool,
}

impl Workspaces {
    /// Gives a person their workspace: makes it, or finishes it, or finds it finished.
    ///
    /// # Errors
    /// Unknown or other tier, too many calls, a suspension, something foreign in the way; the
    /// cluster or the database failed: then the sweep finishes what was begun.
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
            WorkspaceStatus::Provisioned => Ok(Initialized { workspace, created: false }),
            WorkspaceStatus::Provisioning => self.finish_provisioning(&workspace).await,
            WorkspaceStatus::Suspending | WorkspaceStatus::Suspended => {
                Err(WorkspaceError::Suspended)
            }
            status => Err(WorkspaceError::NotReady(status)),
        }
    }

    /// Writes down that a workspace is wanted. One transaction counts the call, makes the row and
    /// the audit entry, so that none is there without the others.
    async fn begin_init(
        &self,
        permit: &Permit<CreateWorkspace>,
        tier_name: &str,
        tier: &Tier,
    ) -> Result<Found, WorkspaceError> {
        let caller = permit.caller();
        let namespace = tenant_namespace(caller.user_id());
        let event = audit::Event {
            user_id: Some(caller.user_id()),
            session_id: Some(caller.session_id()),
            ..audit::Event::success(Action::InitWorkspace)
        };
        let mut tx = self.db.begin().await?;
        // Between the look at the session and this an administrator may have suspended the user.
        if !hold_active(&mut tx, caller.user_id()).await? {
            return Err(WorkspaceError::NotActive);
        }
        let subject = caller.user_id().to_string();
        let taken =
            throttle::take(&mut tx, &self.clock, Limited::Init, &subject, self.init_limit).await?;
        if let Err(too_many) = taken {
            tx.commit().await?;
            self.metrics.action(Action::InitWorkspace, "refused");
            return Err(WorkspaceError::TooMany(too_many));
        }
        let new = New {
            id: self.clock.random_id(),
            user_id: caller.user_id(),
            cluster: self.cluster.name(),
            namespace: &namespace,
            tier: tier_name,
            quota: Quota { cpu: tier.cpu.clone(), memory: tier.memory.clone() },
        };
        let inserted = store::insert(&mut tx, &self.clock, new).await?;
        let found =
            store::by_namespace(&mut tx, &namespace).await?.ok_or(sqlx::Error::RowNotFound)?;
        let retried = !inserted
            && found.tier == tier_name
            && store::advance(&mut tx, &self.clock, found.id, Event::Retry).await?;
        if inserted || retried {
            let event = audit::Event { workspace_id: Some(found.id), ..event };
            audit::record(&mut tx, &self.clock, event).await?;
        }
        let found = if retried {
            store::by_namespace(&mut tx, &namespace).await?.ok_or(sqlx::Error::RowNotFound)?
        } else {
            found
        };
        tx.commit().await?;
        Ok(found)
    }

    /// Makes all objects of a workspace and lets it work. Two at once do no harm: each object is
    /// made once, and one of the two finishes first.
    pub(super) async fn finish_provisioning(
        &self,
        found: &Found,
    ) -> Result<Initialized, WorkspaceError> {
        let made = match self.make_objects(found).await {
            Ok(made) => made,
            Err(ClusterError::Conflict(what)) => {
                self.give_up(found, &what).await?;
                return Err(WorkspaceError::Conflict(what));
            }
            Err(error) => return Err(error.into()),
        };
        let action = match found.status() {
            WorkspaceStatus::Resuming => Action::WorkspaceResumed,
            _ => Action::WorkspaceProvisioned,
        };
        let mut tx = self.db.begin().await?;
        let since = Some(found.status_changed_at);
        let exist = Event::ObjectsExist;
        let created = store::advance_since(&mut tx, &self.clock, found.id, exist, since).await?;
        if created {
            store::set_uids(&mut tx, found.id, &made).await?;
            let event = audit::Event {
                user_id: Some(found.user_id),
                workspace_id: Some(found.id),
                ..audit::Event::success(action)
            };
            audit::record(&mut tx, &self.clock, event).await?;
        }
        tx.commit().await?;
        let workspace = store::by_id(&self.db, found.id).await?.ok_or(sqlx::Error::RowNotFound)?;
        match workspace.status() {
            WorkspaceStatus::Provisioned => {
                if created {
                    self.metrics.action(action, "success");
                }
                Ok(Initialized { workspace, created })
            }
            WorkspaceStatus::Suspending | WorkspaceStatus::Suspended => {
                // The kill switch came in between; what was made since must go again.
                self.revoke_again(&workspace).await?;
                Err(WorkspaceError::Suspended)
            }
            status => Err(WorkspaceError::NotReady(status)),
        }
    }

    /// Makes the objects in order.
    pub(super) async fn make_objects(&self, found: &Found) -> Result<MadeUids, ClusterError> {
        let tier = self.tiers.get(&found.tier).ok_or_else(|| {
            ClusterError::Conflict(format!("the tier {} is configured no more", found.tier))
        })?;
        let mut made = MadeUids::default();
        for object in objects::desired(found.id, &found.k8s_namespace, &found.tier, tier) {
            if matches!(object, Object::RoleBinding(_)) {
                self.until_quota_enforced(&found.k8s_namespace).await?;
            }
            let outcome = match found.status() {
                WorkspaceStatus::Resuming => self.cluster.create_or_keep(&object).await?,
                _ => self.make_object(&object, tier).await?,
            };
            tracing::debug!(
                workspace = %found.id, kind = outcome.kind, created = outcome.created, "object is there"
            );
            match object {
                Object::Namespace(_) => made.namespace = outcome.uid,
                Object::ServiceAccount(_) => made.service_account = outcome.uid,
                _ => {}
            }
        }
        Ok(made)
    }

    /// Returns once the API server enforces the quota, so that nobody has rights before that.
    async fn until_quota_enforced(&self, namespace: &str) -> Result<(), ClusterError> {
        let quota = objects::QUOTA_NAME;
        let mut pause = QUOTA_PAUSE;
        let enforced = async {
            while !self.cluster.quota_is_enforced(namespace, quota).await? {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_QUOTA_PAUSE);
            }
            Ok(())
        };
        let late = |_| {
            let (namespace, quota) = (namespace.to_owned(), quota.to_owned());
            Err(ClusterError::QuotaNotEnforced { namespace, quota })
        };
        tokio::time::timeout(QUOTA_TIMEOUT, enforced).await.unwrap_or_else(late)
    }

    /// Makes an object. One that an older version of the broker made for this tier is as good.
    async fn make_object(&self, object: &Object, tier: &Tier) -> Result<Outcome, ClusterError> {
        let refused = match self.cluster.create_or_verify(object).await {
            Err(refused @ ClusterError::Conflict(_)) => refused,
            other => return other,
        };
        match objects::of_older_version(object, tier) {
            Some(older) => self.cluster.create_or_verify(&older).await.map_err(|_| refused),
            None => Err(refused),
        }
    }

    async fn give_up(&self, found: &Found, why: &str) -> sqlx::Result<()> {
        let mut tx = self.db.begin().await?;
        if store::advance(&mut tx, &self.clock, found.id, Event::Conflict).await? {
            let event = audit::Event {
                user_id: Some(found.user_id),
                workspace_id: Some(found.id),
                ..audit::Event::refused(Action::InitWorkspace, why)
            };
            audit::record(&mut tx, &self.clock, event).await?;
            self.metrics.action(Action::InitWorkspace, "refused");
        }
        tx.commit().await
    }
}
