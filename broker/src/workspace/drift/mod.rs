//! Drift: differences between the objects of a workspace in the cluster and their desired state.
//!
//! A round lists each kind of object once for all workspaces, in pages, and compares the objects
//! with their desired state. A difference only makes the workspace a suspect. [`examine`] reads a
//! suspect's objects again and acts on what it finds, provided that the workspace's row did not
//! change meanwhile. The admission policies keep tenants from causing drift, so its causes are an
//! administrator, a restored backup or somebody who bypassed the policies.

mod examine;
mod record;

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::{
    core::v1::{LimitRange, Namespace, ResourceQuota, ServiceAccount},
    networking::v1::NetworkPolicy,
    rbac::v1::RoleBinding,
};
use kube::ResourceExt as _;
use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use super::{
    WorkspaceError, WorkspaceRow, Workspaces, objects,
    store::{drift, work},
};
use crate::{
    base::error_chain,
    cluster::{Compared, Object},
};

/// Rows of workspaces in one read.
const ROWS_PER_READ: u32 = 1_000;
/// Maximum number of recorded drifts that a round examines again. There are few of them.
const MAX_KNOWN_DRIFTS: u32 = 10_000;
/// Suspects that are examined concurrently. The limit leaves the API server to its other clients.
const MAX_CONCURRENT: usize = 4;
/// Name of the lease that one replica holds during a round.
const LEASE_NAME: &str = "drift";
/// TTL of the lease in milliseconds, in addition to the interval between rounds.
const LEASE_TTL_MS: i64 = 60_000;

/// Maximum number of missing namespaces that always count as lost, whatever their share.
const MAX_PLAUSIBLE_LOSSES: usize = 10;

/// Whether so many namespaces are missing that the broker is probably connected to the wrong
/// cluster. It must not mark everybody's workspace as lost then.
fn is_wrong_cluster(missing: usize, all: usize) -> bool {
    missing > MAX_PLAUSIBLE_LOSSES && missing * 2 > all
}

/// Workspaces in a state with a desired set of objects (provisioned or suspended), by namespace.
type SteadyWorkspaces = BTreeMap<String, WorkspaceRow>;

impl Workspaces {
    /// Runs one round, unless another replica holds the lease; returns whether it ran. The caller
    /// starts the next round after `pause_seconds`.
    ///
    /// # Errors
    /// The cluster or the database failed. Drift that was found until then is recorded.
    pub async fn detect_drift(&self, pause_seconds: u32) -> Result<bool, WorkspaceError> {
        let lease_ms = LEASE_TTL_MS + i64::from(pause_seconds) * 1000;
        if !self.acquire_drift_lease(lease_ms).await? {
            return Ok(false);
        }
        let result = self.drift_round(lease_ms).await;
        self.metrics.drift_round(result.is_ok());
        result.map(|()| true)
    }

    async fn acquire_drift_lease(&self, milliseconds: i64) -> sqlx::Result<bool> {
        work::acquire_lease(&self.db, &self.clock, LEASE_NAME, self.replica, milliseconds).await
    }

    async fn drift_round(&self, lease_ms: i64) -> Result<(), WorkspaceError> {
        let steady = self.steady().await?;
        let suspects = self.suspects(&steady).await?;
        let mut examined = stream::iter(suspects)
            .map(|id| async move { (id, self.examine(id).await) })
            .buffer_unordered(MAX_CONCURRENT);
        let mut since = self.clock.now_ms();
        let mut failed = None;
        while let Some((id, result)) = examined.next().await {
            if let Err(error) = result {
                tracing::warn!(
                    workspace = %id, error = error_chain(&error), "drift detection failed"
                );
                failed = Some(error);
            }
            // A long round renews its lease, and ends if the lease was lost.
            if self.clock.now_ms() - since > LEASE_TTL_MS / 2 {
                since = self.clock.now_ms();
                if !self.acquire_drift_lease(lease_ms).await? {
                    break;
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn steady(&self) -> sqlx::Result<SteadyWorkspaces> {
        let mut steady = SteadyWorkspaces::new();
        let mut after = Uuid::nil();
        loop {
            let rows = drift::steady(&self.db, after, ROWS_PER_READ).await?;
            let Some(last) = rows.last() else { return Ok(steady) };
            after = last.id;
            steady.extend(
                rows.into_iter().map(|workspace| (workspace.k8s_namespace.clone(), workspace)),
            );
        }
    }

    /// The workspaces to examine. All suspended workspaces are among them, because RoleBindings
    /// without our label, which the lists do not show, are drift there too. They are few.
    async fn suspects(&self, steady: &SteadyWorkspaces) -> Result<BTreeSet<Uuid>, WorkspaceError> {
        let known = drift::all(&self.db, MAX_KNOWN_DRIFTS).await?;
        let mut suspects: BTreeSet<Uuid> = known.iter().map(|row| row.workspace_id).collect();
        let is_suspended =
            |workspace: &&WorkspaceRow| workspace.status() == WorkspaceStatus::Suspended;
        suspects.extend(steady.values().filter(is_suspended).map(|workspace| workspace.id));

        let missing = self
            .add_suspects::<Namespace>(steady, &mut suspects, |workspace, there| {
                self.desired_object(workspace, |object| match object {
                    Object::Namespace(it) => Some(it),
                    _ => None,
                })
                .is_some_and(|it| examine::namespace_matches(there, &it))
                    // A namespace whose uid is not recorded is examined in order to record it.
                    && workspace.k8s_namespace_uid == there.uid()
            })
            .await?;
        if is_wrong_cluster(missing, steady.len()) {
            return Err(WorkspaceError::Conflict(
                "most namespaces of workspaces are missing; is this the right cluster?".to_owned(),
            ));
        }
        self.add_suspects::<ResourceQuota>(steady, &mut suspects, |workspace, there| {
            self.matches_known_version(workspace, there, |object| match object {
                Object::ResourceQuota(it) => Some(it),
                _ => None,
            })
        })
        .await?;
        self.add_suspects::<LimitRange>(steady, &mut suspects, |workspace, there| {
            self.matches_known_version(workspace, there, |object| match object {
                Object::LimitRange(it) => Some(it),
                _ => None,
            })
        })
        .await?;
        self.add_suspects::<ServiceAccount>(steady, &mut suspects, |workspace, there| {
            workspace.k8s_sa_uid.is_some() && there.uid() == workspace.k8s_sa_uid
        })
        .await?;
        self.add_suspects::<RoleBinding>(steady, &mut suspects, |workspace, there| {
            self.desired_object(workspace, |object| match object {
                Object::RoleBinding(it) => Some(it),
                _ => None,
            })
            .is_some_and(|it| there.compare(&it).is_none())
        })
        .await?;
        let has_network_policy = |workspace: &WorkspaceRow| {
            self.tiers.get(&workspace.tier).is_some_and(|tier| tier.network_policy)
        };
        if self.tiers.iter().any(|(_, tier)| tier.network_policy) {
            let with: SteadyWorkspaces = steady
                .iter()
                .filter(|(_, workspace)| has_network_policy(workspace))
                .map(|(namespace, workspace)| (namespace.clone(), workspace.clone()))
                .collect();
            self.add_suspects::<NetworkPolicy>(&with, &mut suspects, |workspace, there| {
                self.desired_object(workspace, |object| match object {
                    Object::NetworkPolicy(it) => Some(it),
                    _ => None,
                })
                .is_some_and(|it| there.compare(&it).is_none())
            })
            .await?;
        }
        Ok(suspects)
    }

    /// Whether a quota or limits are those that this version or an older one creates. A workspace
    /// keeps the objects that it was created with.
    fn matches_known_version<K: Compared>(
        &self,
        workspace: &WorkspaceRow,
        there: &K,
        pick: impl Fn(Object) -> Option<Box<K>>,
    ) -> bool {
        let Some(tier) = self.tiers.get(&workspace.tier) else { return false };
        let objects =
            objects::desired(workspace.id, &workspace.k8s_namespace, &workspace.tier, tier);
        objects.into_iter().any(|wanted| {
            let older = objects::older_version_of(&wanted, tier).and_then(&pick);
            let is_one = |it: &K| there.compare(it).is_none();
            pick(wanted).is_some_and(|it| is_one(&it)) || older.is_some_and(|it| is_one(&it))
        })
    }

    /// The desired object of one kind. `None` if the tier is no longer configured.
    fn desired_object<K>(
        &self,
        workspace: &WorkspaceRow,
        pick: impl Fn(Object) -> Option<Box<K>>,
    ) -> Option<Box<K>> {
        let tier = self.tiers.get(&workspace.tier)?;
        let objects =
            objects::desired(workspace.id, &workspace.k8s_namespace, &workspace.tier, tier);
        objects.into_iter().find_map(pick)
    }

    /// Adds the workspaces whose object of this kind is missing or altered. Returns the number of
    /// workspaces where it is missing.
    async fn add_suspects<K>(
        &self,
        steady: &SteadyWorkspaces,
        suspects: &mut BTreeSet<Uuid>,
        is_intact: impl Fn(&WorkspaceRow, &K) -> bool,
    ) -> Result<usize, WorkspaceError>
    where
        K: Compared + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let (mut seen, mut intact) = (0, BTreeSet::new());
        self.cluster
            .list_managed(|there: K| {
                let place = there.namespace().unwrap_or_else(|| there.name_any());
                if let Some(workspace) = steady.get(&place)
                    && objects::is_name_of::<K>(&there.name_any(), &place)
                {
                    seen += 1;
                    if is_intact(workspace, &there) {
                        intact.insert(workspace.id);
                    }
                }
            })
            .await?;
        suspects.extend(
            steady.values().map(|workspace| workspace.id).filter(|id| !intact.contains(id)),
        );
        // A list is read page by page, so an object that changes meanwhile may be seen twice.
        Ok(steady.len().saturating_sub(seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_missing_namespaces_are_losses_and_most_mean_a_wrong_cluster() {
        for (missing, all) in [(0, 0), (1, 1), (10, 10), (11, 22), (5_000, 10_000)] {
            assert!(!is_wrong_cluster(missing, all), "{missing} of {all}");
        }
        for (missing, all) in [(11, 11), (11, 21), (10_000, 10_000)] {
            assert!(is_wrong_cluster(missing, all), "{missing} of {all}");
        }
    }
}
