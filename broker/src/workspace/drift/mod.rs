//! Drift: objects of a workspace that somebody deleted or altered.
//!
//! A round lists each kind of object once for all workspaces, in pages, and compares what it sees with
//! what has to be. That only names suspects: whether something is wrong with one is decided by looking
//! at it again, after which its row must still be as it was. The guard's policies keep tenants from
//! all of this, so drift is an administrator's doing, a restored backup's, or somebody's who got past
//! the policies. What follows from it is in [`examine`].

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
    Found, WorkspaceError, Workspaces, objects,
    store::{drift, work},
};
use crate::{
    cluster::{Compared, Object},
    problem::chain,
};

/// Rows of workspaces that are read at once.
const ROWS: u32 = 1_000;
/// Most differences that are known at once and looked at again; there are few.
const MOST_KNOWN: u32 = 10_000;
/// Suspects at once: the API server has others to serve.
const AT_ONCE: usize = 4;
/// Name of the lease.
const LEASE: &str = "drift";
/// For how long the lease outlives what its holder last did, besides the pause between rounds.
const LEASE_MS: i64 = 60_000;

/// So many working workspaces without their namespace are an accident of theirs.
const FEW: usize = 10;

/// Whether so many namespaces are missing that the broker rather looks at the wrong place: it must not
/// take everybody's workspace for lost then.
fn is_another_cluster(missing: usize, all: usize) -> bool {
    missing > FEW && missing * 2 > all
}

/// Workspaces that have to be a certain way now, by namespace.
type Settled = BTreeMap<String, Found>;

impl Workspaces {
    /// One round, unless another replica does it. The next one is expected in so many seconds.
    ///
    /// # Errors
    /// The cluster or the database failed; what was found until then is on record.
    pub async fn look_for_drift(&self, pause_seconds: u32) -> Result<bool, WorkspaceError> {
        let lease_ms = LEASE_MS + i64::from(pause_seconds) * 1000;
        if !self.hold_drift_lease(lease_ms).await? {
            return Ok(false);
        }
        let result = self.drift_round(lease_ms).await;
        self.metrics.drift_round(result.is_ok());
        result.map(|()| true)
    }

    async fn hold_drift_lease(&self, milliseconds: i64) -> sqlx::Result<bool> {
        work::hold_lease(&self.db, &self.clock, LEASE, self.replica, milliseconds).await
    }

    async fn drift_round(&self, lease_ms: i64) -> Result<(), WorkspaceError> {
        let settled = self.settled().await?;
        let suspects = self.suspects(&settled).await?;
        let mut examined = stream::iter(suspects)
            .map(|id| async move { (id, self.examine(id).await) })
            .buffer_unordered(AT_ONCE);
        let mut since = self.clock.now_ms();
        let mut failed = None;
        while let Some((id, result)) = examined.next().await {
            if let Err(error) = result {
                tracing::warn!(workspace = %id, error = chain(&error), "cannot look for drift");
                failed = Some(error);
            }
            // A long round keeps its lease, and ends if it was lost all the same.
            if self.clock.now_ms() - since > LEASE_MS / 2 {
                since = self.clock.now_ms();
                if !self.hold_drift_lease(lease_ms).await? {
                    break;
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn settled(&self) -> sqlx::Result<Settled> {
        let mut settled = Settled::new();
        let mut after = Uuid::nil();
        loop {
            let rows = drift::settled(&self.db, after, ROWS).await?;
            let Some(last) = rows.last() else { return Ok(settled) };
            after = last.id;
            settled.extend(rows.into_iter().map(|found| (found.k8s_namespace.clone(), found)));
        }
    }

    /// Workspaces to be looked at. All suspended ones are: nothing that carries no label of ours may be
    /// in them either, and they are few.
    async fn suspects(&self, settled: &Settled) -> Result<BTreeSet<Uuid>, WorkspaceError> {
        let known = drift::all(&self.db, MOST_KNOWN).await?;
        let mut suspects: BTreeSet<Uuid> = known.iter().map(|row| row.workspace_id).collect();
        let is_suspended = |found: &&Found| found.status() == WorkspaceStatus::Suspended;
        suspects.extend(settled.values().filter(is_suspended).map(|found| found.id));

        let missing = self
            .survey::<Namespace>(settled, &mut suspects, |found, there| {
                self.wanted(found, |object| match object {
                    Object::Namespace(it) => Some(it),
                    _ => None,
                })
                .is_some_and(|it| examine::namespace_is_right(there, &it))
                    // One whose uid is not on record is looked at for that.
                    && found.k8s_namespace_uid == there.uid()
            })
            .await?;
        if is_another_cluster(missing, settled.len()) {
            return Err(WorkspaceError::Conflict(
                "most namespaces of workspaces are gone; is this the right cluster?".to_owned(),
            ));
        }
        self.survey::<ResourceQuota>(settled, &mut suspects, |found, there| {
            self.is_as_made(found, there, |object| match object {
                Object::ResourceQuota(it) => Some(it),
                _ => None,
            })
        })
        .await?;
        self.survey::<LimitRange>(settled, &mut suspects, |found, there| {
            self.is_as_made(found, there, |object| match object {
                Object::LimitRange(it) => Some(it),
                _ => None,
            })
        })
        .await?;
        self.survey::<ServiceAccount>(settled, &mut suspects, |found, there| {
            found.k8s_sa_uid.is_some() && there.uid() == found.k8s_sa_uid
        })
        .await?;
        self.survey::<RoleBinding>(settled, &mut suspects, |found, there| {
            self.wanted(found, |object| match object {
                Object::RoleBinding(it) => Some(it),
                _ => None,
            })
            .is_some_and(|it| there.compare(&it).is_none())
        })
        .await?;
        let has_network_policy =
            |found: &Found| self.tiers.get(&found.tier).is_some_and(|tier| tier.network_policy);
        if self.tiers.iter().any(|(_, tier)| tier.network_policy) {
            let with: Settled = settled
                .iter()
                .filter(|(_, found)| has_network_policy(found))
                .map(|(namespace, found)| (namespace.clone(), found.clone()))
                .collect();
            self.survey::<NetworkPolicy>(&with, &mut suspects, |found, there| {
                self.wanted(found, |object| match object {
                    Object::NetworkPolicy(it) => Some(it),
                    _ => None,
                })
                .is_some_and(|it| there.compare(&it).is_none())
            })
            .await?;
        }
        Ok(suspects)
    }

    /// Whether a quota or limits are those that this version makes, or those that an older one made:
    /// a workspace keeps what it was made with.
    fn is_as_made<K: Compared>(
        &self,
        found: &Found,
        there: &K,
        pick: impl Fn(Object) -> Option<Box<K>>,
    ) -> bool {
        let Some(tier) = self.tiers.get(&found.tier) else { return false };
        let objects = objects::desired(found.id, &found.k8s_namespace, &found.tier, tier);
        objects.into_iter().any(|wanted| {
            let older = objects::of_older_version(&wanted, tier).and_then(&pick);
            let is_one = |it: &K| there.compare(it).is_none();
            pick(wanted).is_some_and(|it| is_one(&it)) || older.is_some_and(|it| is_one(&it))
        })
    }

    /// The object of one kind that a workspace has to have; none without its tier.
    fn wanted<K>(&self, found: &Found, pick: impl Fn(Object) -> Option<Box<K>>) -> Option<Box<K>> {
        let tier = self.tiers.get(&found.tier)?;
        let objects = objects::desired(found.id, &found.k8s_namespace, &found.tier, tier);
        objects.into_iter().find_map(pick)
    }

    /// Adds the workspaces that have no object of a kind that is right. Returns how many have none at
    /// all.
    async fn survey<K>(
        &self,
        settled: &Settled,
        suspects: &mut BTreeSet<Uuid>,
        is_right: impl Fn(&Found, &K) -> bool,
    ) -> Result<usize, WorkspaceError>
    where
        K: Compared + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let (mut seen, mut right) = (0, BTreeSet::new());
        self.cluster
            .survey(|there: K| {
                let place = there.namespace().unwrap_or_else(|| there.name_any());
                if let Some(found) = settled.get(&place)
                    && objects::is_name_of::<K>(&there.name_any(), &place)
                {
                    seen += 1;
                    if is_right(found, &there) {
                        right.insert(found.id);
                    }
                }
            })
            .await?;
        suspects.extend(settled.values().map(|found| found.id).filter(|id| !right.contains(id)));
        // A list is read page by page: an object that moves between pages may be seen twice.
        Ok(settled.len().saturating_sub(seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_lost_workspaces_are_lost_and_nearly_all_are_a_mistake() {
        for (missing, all) in [(0, 0), (1, 1), (10, 10), (11, 22), (5_000, 10_000)] {
            assert!(!is_another_cluster(missing, all), "{missing} of {all}");
        }
        for (missing, all) in [(11, 11), (11, 21), (10_000, 10_000)] {
            assert!(is_another_cluster(missing, all), "{missing} of {all}");
        }
    }
}
