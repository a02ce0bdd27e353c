//! Claims of namespaces that somebody made at the API server with the label of the tenant.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use tenant_shared::FORMER_TENANT_LABEL;
use uuid::Uuid;

use super::{TenantNamespaces, has_label_of_a_move, has_labels_of_others};
use crate::{
    tenant::{
        Claim, NamespaceMove, NamespaceRow, NamespaceStatus, Tenant, TenantName, TenantRow,
        check_namespace_name, prefixes_of,
    },
    tenant_controller::{TenantController, error::ReconcileError},
};

/// Namespaces that one run claims or records, each in a transaction. Owners may create any number at
/// the API server, and rights that somebody lost are taken away after the claims of a run. Attempts
/// that change nothing do not count, because the next run would make them again, and never claim the
/// others.
pub(in crate::tenant_controller) const MAX_CLAIMS: usize = 200;

/// A namespace that exists with the label of the tenant and is not counted, with its row if it has one.
pub(in crate::tenant_controller) type Unclaimed<'a> =
    (String, Option<NamespaceRow>, Option<&'a Namespace>);

/// A namespace that its name lets a tenant claim, or that an administrator announced.
struct ClaimableNamespace<'a> {
    name: String,
    live: Option<&'a Namespace>,
    /// Whether it is recorded as one beyond the quota.
    is_recorded: bool,
    may_have: bool,
}

/// Effect of a claim on the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimEffect {
    /// A row was written, so the next run has other namespaces to claim.
    Recorded,
    /// No row was written.
    Nothing,
    /// No further namespace beyond the quota can be recorded, so a run for these would change
    /// nothing.
    Full,
}

impl TenantController {
    /// Claims namespaces, as far as names, other tenants and the quota allow it. In the `bound` ones the
    /// tenant has a RoleBinding of the broker, so its people have used their accounts already: the row
    /// was lost, for example by a restore.
    ///
    /// # Errors
    /// The database failed.
    pub(in crate::tenant_controller) async fn claim_all(
        &self,
        (row, tenant): (&TenantRow, &Tenant),
        to_claim: Vec<Unclaimed<'_>>,
        (moves, bound): (&BTreeMap<String, NamespaceMove>, &BTreeSet<String>),
        namespaces: &mut TenantNamespaces,
    ) -> Result<(), ReconcileError> {
        let open =
            if to_claim.is_empty() { BTreeSet::new() } else { self.tenants.open_names().await? };
        let (mut candidates, mut refused) = (Vec::new(), Vec::new());
        let knows_accounts = self.cache.knows_accounts();
        for (name, known, live) in to_claim {
            // Owners may have made any number of them.
            tokio::task::consume_budget().await;
            let is_recorded = known.is_some_and(|row| row.status == NamespaceStatus::OverQuota);
            // Whether other Tenants name its ServiceAccounts is not known yet.
            let is_bound = bound.contains(&name);
            if !knows_accounts && !is_bound && !moves.contains_key(&name) {
                namespaces.waits_for_tenants = true;
                namespaces.defer_claim(name, is_recorded);
                continue;
            }
            let may_have = self.may_have(tenant, &name, &open)
                && (is_bound || self.cache.check_accounts(&tenant.name, &name).is_ok());
            // One that a tenant left does not become that of a later tenant of the name.
            let is_former = live.is_some_and(|it| it.labels().contains_key(FORMER_TENANT_LABEL));
            let may_have = may_have && !is_former;
            if has_labels_of_others(live) || !may_have && !moves.contains_key(&name) {
                refused.push(name);
            } else {
                candidates.push(ClaimableNamespace { name, live, is_recorded, may_have });
            }
        }
        // A tenant that was made again cannot claim the namespaces of the earlier one.
        let unrecorded = candidates.iter().filter(|it| !it.is_recorded);
        let names: Vec<String> = unrecorded
            .filter(|it| !moves.contains_key(&it.name))
            .map(|it| it.name.clone())
            .collect();
        let held = self.tenants.held_by_others(row.id, &names).await?;
        let (mut claims, mut is_full) = (0, false);
        for ClaimableNamespace { name, live, is_recorded, may_have } in candidates {
            if held.contains_key(&name) {
                namespaces.conflicts.push(name);
                continue;
            }
            if is_full || is_recorded && !namespaces.over_quota.is_empty() {
                namespaces.over_quota.push(name);
                continue;
            }
            // The run would delete the bindings of those that wait for the next one.
            if claims >= MAX_CLAIMS && !bound.contains(&name) {
                namespaces.has_more_claims |= !is_recorded;
                namespaces.defer_claim(name, is_recorded);
                continue;
            }
            if let (Some(announced), Some(live)) = (moves.get(&name), live)
                && let Some(begun) = self.adopt_incoming((row, tenant), announced, live).await?
            {
                namespaces.incoming.insert(name.clone(), begun);
            }
            let may_claim = namespaces.incoming.contains_key(&name)
                || may_have && (is_recorded || !self.is_of_a_move(&name, live).await?);
            if !may_claim {
                refused.push(name);
                continue;
            }
            match self.claim(row, tenant, name, is_recorded, namespaces).await? {
                ClaimEffect::Recorded => claims += 1,
                ClaimEffect::Nothing => {}
                ClaimEffect::Full => is_full = true,
            }
        }
        self.queue_tenants(held.into_values()).await?;
        self.queue_holders(row, &refused[..refused.len().min(MAX_CLAIMS)]).await?;
        namespaces.conflicts.extend(refused);
        Ok(())
    }

    /// Whether a namespace with the label of a tenant may be its own, by its name and the names of the
    /// other tenants.
    fn may_have(&self, tenant: &Tenant, name: &str, open: &BTreeSet<TenantName>) -> bool {
        if check_namespace_name(tenant, name, &self.settings).is_err() {
            return false;
        }
        let owner = prefixes_of(name).into_iter().find(|prefix| open.contains(prefix));
        owner.is_none_or(|owner| owner == tenant.name)
    }

    /// Whether a namespace takes part in a move, or did. Only the move itself gives such a namespace
    /// to a tenant, or its labels alone would be enough.
    async fn is_of_a_move(
        &self,
        name: &str,
        live: Option<&Namespace>,
    ) -> Result<bool, ReconcileError> {
        Ok(live.is_some_and(has_label_of_a_move) || self.tenants.move_of(name).await?.is_some())
    }

    /// Adds the open tenants that have these namespaces to the queue, because they may not know that
    /// the label of a namespace changed.
    async fn queue_holders(
        &self,
        row: &TenantRow,
        namespaces: &[String],
    ) -> Result<(), ReconcileError> {
        let held = self.tenants.held_by_others(row.id, namespaces).await?;
        self.queue_tenants(held.into_values()).await
    }

    /// Adds those of these tenants that are open to the queue.
    async fn queue_tenants(
        &self,
        tenants: impl Iterator<Item = Uuid>,
    ) -> Result<(), ReconcileError> {
        let tenants: Vec<Uuid> = tenants.collect::<BTreeSet<_>>().into_iter().collect();
        for name in self.tenants.names_of(&tenants).await? {
            self.queue.add(name);
        }
        Ok(())
    }

    /// Claims a namespace, or records that it is beyond the quota.
    async fn claim(
        &self,
        row: &TenantRow,
        tenant: &Tenant,
        name: String,
        is_recorded: bool,
        namespaces: &mut TenantNamespaces,
    ) -> Result<ClaimEffect, ReconcileError> {
        let mut effect = ClaimEffect::Nothing;
        let quota = tenant.namespace_options.quota;
        match self.tenants.claim_namespace(row.id, &name, None, quota).await? {
            Claim::Created => {
                tracing::info!(tenant = %row.name, namespace = name, "namespace claimed");
                namespaces.allowed.insert(name, NamespaceStatus::Creating);
                effect = ClaimEffect::Recorded;
            }
            Claim::Exists(claimed) if claimed.status.counts() => {
                effect = ClaimEffect::Recorded;
                namespaces.allowed.insert(name, claimed.status);
            }
            Claim::Exists(_) | Claim::OtherTenant => {
                self.queue_holders(row, std::slice::from_ref(&name)).await?;
                namespaces.conflicts.push(name);
            }
            Claim::QuotaExceeded { used, quota } => {
                if !is_recorded {
                    let recorded = self.tenants.record_over_quota(row.id, &name).await?;
                    effect = if recorded { ClaimEffect::Recorded } else { ClaimEffect::Full };
                    tracing::warn!(
                        tenant = %row.name, namespace = name, used, quota,
                        "namespace beyond the quota of its tenant: nobody has rights in it"
                    );
                }
                namespaces.over_quota.push(name);
            }
        }
        Ok(effect)
    }
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;
    use serde_json::json;

    use super::*;
    use crate::{
        tenant_controller::testing::Fixture,
        testing::{On, on_both_engines},
    };

    on_both_engines!(a_namespace_whose_accounts_other_tenants_name_is_not_claimed);

    /// The Tenant `lunar`, which names a ServiceAccount of `solar-ci`.
    fn lunar() -> DynamicObject {
        let robot =
            json!({"kind": "ServiceAccount", "name": "system:serviceaccount:solar-ci:robot"});
        serde_json::from_value(json!({
            "apiVersion": "x/v1", "kind": "Tenant", "metadata": {"name": "lunar"},
            "spec": {"owners": [robot]},
        }))
        .unwrap()
    }

    async fn a_namespace_whose_accounts_other_tenants_name_is_not_claimed(on: On) {
        let fixture = Fixture::new(on).await;
        let row = fixture.tenant("solar").await;
        let owners = json!([{"kind": "User", "name": "alice@example.com"}]);
        let tenant = Tenant::parse("solar", &json!({"owners": owners})).unwrap();
        let live = Namespace::default();
        let claim = async |bound: &[&str]| {
            let bound = bound.iter().map(|name| (*name).to_owned()).collect();
            let to_claim = ["solar-a", "solar-ci"];
            let to_claim = to_claim.map(|name| (name.to_owned(), None, Some(&live))).into();
            let mut namespaces = TenantNamespaces::default();
            let moves = BTreeMap::new();
            let of = (&row, &tenant);
            let with = (&moves, &bound);
            fixture.controller.claim_all(of, to_claim, with, &mut namespaces).await.unwrap();
            namespaces
        };
        let waiting = claim(&[]).await;
        assert!(waiting.waits_for_tenants && waiting.allowed.is_empty(), "{waiting:?}");
        assert_eq!(waiting.unclaimed, ["solar-a", "solar-ci"]);
        assert!(fixture.controller.tenants.namespaces(row.id).await.unwrap().is_empty());

        fixture.list_tenants([lunar()]);
        let claimed = claim(&[]).await;
        assert_eq!(claimed.allowed.keys().collect::<Vec<_>>(), ["solar-a"]);
        assert_eq!(claimed.conflicts, ["solar-ci"]);
        assert!(!claimed.waits_for_tenants);

        // The tenant had it before, and the row was lost.
        let claimed = claim(&["solar-ci"]).await;
        assert!(claimed.allowed.contains_key("solar-ci"), "{claimed:?}");
    }
}
