//! Suspects of a round: workspaces whose objects may differ from their desired state.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    core::v1::{LimitRange, Namespace, ResourceQuota, ServiceAccount},
    networking::v1::NetworkPolicy,
    rbac::v1::RoleBinding,
};
use kube::ResourceExt as _;
use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use super::examine::namespace_matches;
use crate::{
    base::error_chain,
    cluster::{Cluster, Compared, Object},
    workspace::{
        WorkspaceError, WorkspaceRow, Workspaces, objects, state::WorkspaceKind, store::drift,
    },
};

/// Rows of workspaces in one read.
const ROWS_PER_READ: u32 = 1_000;

/// Maximum number of missing namespaces that always count as lost, whatever their share.
const MAX_PLAUSIBLE_LOSSES: usize = 10;

/// Whether so many namespaces are missing that the broker is probably connected to the wrong
/// cluster. It must not mark everybody's workspace as lost then.
fn is_wrong_cluster(missing: usize, all: usize) -> bool {
    missing > MAX_PLAUSIBLE_LOSSES && missing * 2 > all
}

/// Workspaces of a cluster in a state with a desired set of objects (provisioned or suspended), by
/// namespace.
type SteadyWorkspaces = BTreeMap<String, WorkspaceRow>;

/// All steady workspaces of a cluster.
#[derive(Default)]
pub(super) struct ClusterWorkspaces {
    personal: SteadyWorkspaces,
    memberships: Vec<WorkspaceRow>,
}

impl Workspaces {
    /// All steady workspaces, by name of their cluster.
    pub(super) async fn steady(&self) -> sqlx::Result<BTreeMap<&str, ClusterWorkspaces>> {
        let mut steady = BTreeMap::<&str, ClusterWorkspaces>::new();
        let mut after = Uuid::nil();
        loop {
            let rows = drift::steady(&self.db, after, ROWS_PER_READ).await?;
            let Some(last) = rows.last() else { return Ok(steady) };
            after = last.id;
            for workspace in rows {
                match self.cluster_of(&workspace) {
                    Ok(cluster) => {
                        let of_cluster = steady.entry(cluster.name()).or_default();
                        match workspace.kind() {
                            WorkspaceKind::Personal => {
                                let namespace = workspace.k8s_namespace.clone();
                                of_cluster.personal.insert(namespace, workspace);
                            }
                            WorkspaceKind::Membership => of_cluster.memberships.push(workspace),
                        }
                    }
                    Err(error) => {
                        tracing::warn!(
                            workspace_id = %workspace.id, error = error_chain(&error),
                            "drift detection skips a workspace"
                        );
                    }
                }
            }
        }
    }

    /// The workspaces of a cluster to examine. All suspended personal workspaces are among them,
    /// because RoleBindings without our label, which the lists do not show, are drift there too.
    /// They are few.
    pub(super) async fn suspects(
        &self,
        cluster: &Cluster,
        steady: &ClusterWorkspaces,
    ) -> Result<BTreeSet<Uuid>, WorkspaceError> {
        let ClusterWorkspaces { personal: steady, memberships } = steady;
        let is_suspended =
            |workspace: &&WorkspaceRow| workspace.status() == WorkspaceStatus::Suspended;
        let mut suspects: BTreeSet<Uuid> =
            steady.values().filter(is_suspended).map(|workspace| workspace.id).collect();
        self.compare_namespaces(cluster, steady, &mut suspects).await?;
        self.compare_limits(cluster, steady, &mut suspects).await?;
        self.compare_access(cluster, steady, &mut suspects).await?;
        self.compare_network_policies(cluster, steady, &mut suspects).await?;
        self.compare_memberships(cluster, memberships, &mut suspects).await?;
        Ok(suspects)
    }

    /// Compares the namespaces. If most are missing, the broker is probably connected to the wrong
    /// cluster, which is an error.
    async fn compare_namespaces(
        &self,
        cluster: &Cluster,
        steady: &SteadyWorkspaces,
        suspects: &mut BTreeSet<Uuid>,
    ) -> Result<(), WorkspaceError> {
        let missing = add_suspects::<Namespace>(cluster, steady, suspects, |workspace, there| {
            self.desired_object(workspace, |object| match object {
                Object::Namespace(it) => Some(it),
                _ => None,
            })
            .is_some_and(|it| namespace_matches(there, &it))
                // A namespace whose uid is not recorded is examined in order to record it.
                && workspace.k8s_namespace_uid == there.uid()
        })
        .await?;
        if is_wrong_cluster(missing, steady.len()) {
            return Err(WorkspaceError::Conflict(
                "most namespaces of workspaces are missing; is this the right cluster?".to_owned(),
            ));
        }
        Ok(())
    }

    /// Compares the `ResourceQuota` and `LimitRange` objects.
    async fn compare_limits(
        &self,
        cluster: &Cluster,
        steady: &SteadyWorkspaces,
        suspects: &mut BTreeSet<Uuid>,
    ) -> Result<(), WorkspaceError> {
        add_suspects::<ResourceQuota>(cluster, steady, suspects, |workspace, there| {
            self.matches_known_version(workspace, there, |object| match object {
                Object::ResourceQuota(it) => Some(it),
                _ => None,
            })
        })
        .await?;
        add_suspects::<LimitRange>(cluster, steady, suspects, |workspace, there| {
            self.matches_known_version(workspace, there, |object| match object {
                Object::LimitRange(it) => Some(it),
                _ => None,
            })
        })
        .await?;
        Ok(())
    }

    /// Compares the ServiceAccounts and RoleBindings.
    async fn compare_access(
        &self,
        cluster: &Cluster,
        steady: &SteadyWorkspaces,
        suspects: &mut BTreeSet<Uuid>,
    ) -> Result<(), WorkspaceError> {
        add_suspects::<ServiceAccount>(cluster, steady, suspects, |workspace, there| {
            workspace.k8s_sa_uid.is_some() && there.uid() == workspace.k8s_sa_uid
        })
        .await?;
        add_suspects::<RoleBinding>(cluster, steady, suspects, |workspace, there| {
            self.matches_desired(workspace, there, |object| match object {
                Object::RoleBinding(it) => Some(it),
                _ => None,
            })
        })
        .await?;
        Ok(())
    }

    /// Compares the NetworkPolicies of the workspaces whose tier has one.
    async fn compare_network_policies(
        &self,
        cluster: &Cluster,
        steady: &SteadyWorkspaces,
        suspects: &mut BTreeSet<Uuid>,
    ) -> Result<(), WorkspaceError> {
        if !self.tiers.iter().any(|(_, tier)| tier.network_policy) {
            return Ok(());
        }
        let has_network_policy = |workspace: &WorkspaceRow| {
            self.tiers.get(&workspace.tier).is_some_and(|tier| tier.network_policy)
        };
        let with: SteadyWorkspaces = steady
            .iter()
            .filter(|(_, workspace)| has_network_policy(workspace))
            .map(|(namespace, workspace)| (namespace.clone(), workspace.clone()))
            .collect();
        add_suspects::<NetworkPolicy>(cluster, &with, suspects, |workspace, there| {
            self.matches_desired(workspace, there, |object| match object {
                Object::NetworkPolicy(it) => Some(it),
                _ => None,
            })
        })
        .await?;
        Ok(())
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

    /// Whether an object is the desired one of its kind.
    fn matches_desired<K: Compared>(
        &self,
        workspace: &WorkspaceRow,
        there: &K,
        pick: impl Fn(Object) -> Option<Box<K>>,
    ) -> bool {
        self.desired_object(workspace, pick).is_some_and(|it| there.compare(&it).is_none())
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
}

/// Adds the workspaces whose object of this kind is missing or altered. Returns the number of
/// workspaces where it is missing.
async fn add_suspects<K>(
    cluster: &Cluster,
    steady: &SteadyWorkspaces,
    suspects: &mut BTreeSet<Uuid>,
    is_intact: impl Fn(&WorkspaceRow, &K) -> bool,
) -> Result<usize, WorkspaceError>
where
    K: Compared + serde::de::DeserializeOwned + Send + 'static,
{
    let (mut seen, mut intact) = (0, BTreeSet::new());
    cluster
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
    suspects
        .extend(steady.values().map(|workspace| workspace.id).filter(|id| !intact.contains(id)));
    // A list is read page by page, so an object that changes meanwhile may be seen twice.
    Ok(steady.len().saturating_sub(seen))
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
