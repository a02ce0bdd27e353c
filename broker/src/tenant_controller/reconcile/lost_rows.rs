//! Namespaces of a suspended tenant that have no row which this version can read: a restore lost it, or a
//! newer version wrote it.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};
use kube::ResourceExt as _;
use tenant_shared::{FORMER_TENANT_LABEL, TENANT_LABEL};

use super::{
    revocation_attempt::RevocationAttempt,
    revoke::{SuspendedLabel, failure, is_of, not_found},
};
use crate::{
    base::error_chain,
    cluster::{ClusterError, is_marked_suspended},
    tenant::{NamespaceStatus, TenantName, TenantRow, home_name, prefixes_of, role_binding_name},
    tenant_controller::{
        TenantController,
        namespaces::has_label_of_a_move,
        objects::{snapshot::MAX_OTHERS, withdraw::MAX_IN_FLIGHT},
    },
};

/// Namespaces with the labels of a tenant.
type NamespacesByName<'a> = BTreeMap<&'a str, &'a Namespace>;

/// Namespaces and bindings of a tenant that is suspended, as lists show them.
#[derive(Debug, Default)]
pub(super) struct ListedAccess {
    /// Namespaces of the tenant whose rows were not read: they have new ones, or this version cannot read
    /// theirs.
    pub(super) recovered: BTreeSet<String>,
    /// Other namespaces of the tenant, which get no row: those with the label of a move, and those without
    /// a RoleBinding of the broker whose names are not the tenant's. An administrator may have marked them.
    own_without_row: BTreeSet<String>,
    /// Namespaces with the label of the tenant and a RoleBinding of the broker, that another tenant has or
    /// that an earlier tenant of the name left.
    of_other_tenants: BTreeSet<String>,
    /// The broker's RoleBindings, by namespace and name.
    bindings: Vec<(String, String)>,
    /// What failed, for people.
    pub(super) failures: Vec<String>,
}

impl TenantController {
    /// Lists the broker's bindings of a tenant, and finds the namespaces without a row. Those that a
    /// restore lost get a row, because once their bindings are deleted only a row says that they are the
    /// tenant's. `known` are the namespaces with rows that were read, `unreadable` those with other rows,
    /// `live` those with the labels of the tenant, unless that list failed.
    pub(super) async fn list_access(
        &self,
        row: &TenantRow,
        (known, unreadable): (&BTreeSet<&str>, &BTreeSet<String>),
        live: Option<&[Namespace]>,
    ) -> ListedAccess {
        let home = home_name(&row.name);
        let unknown: NamespacesByName<'_> = live
            .into_iter()
            .flatten()
            .filter_map(|live| Some((live.metadata.name.as_deref()?, live)))
            .filter(|(name, _)| *name != home && !known.contains(name))
            .collect();
        let mut listed = ListedAccess::default();
        match self.broker_bindings_of(row, &unknown, &mut listed.failures).await {
            Ok(bindings) => listed.bindings = bindings,
            // What is bound is not known, so no row is written.
            Err(error) => {
                let failure = format!("RoleBindings of the tenant: {}", error_chain(&error));
                listed.failures.push(failure);
                return listed;
            }
        }
        let rows = (known.len() + unreadable.len(), unreadable);
        if let Err(error) = self.recover_rows(row, rows, &unknown, &mut listed).await {
            listed.failures.push(format!("rows of namespaces: {}", error_chain(&error)));
            listed.recovered.clear();
            listed.own_without_row.clear();
            listed.of_other_tenants.clear();
            listed.bindings.retain(|(namespace, _)| !unknown.contains_key(namespace.as_str()));
        }
        if live.is_none() {
            listed
                .bindings
                .retain(|(namespace, _)| *namespace == home || known.contains(namespace.as_str()));
        }
        listed
    }

    /// The broker's bindings with the label of a tenant. If there are many others, only those in the
    /// namespaces without a row are read, by their names; in the others they are deleted by name.
    async fn broker_bindings_of(
        &self,
        row: &TenantRow,
        unknown: &NamespacesByName<'_>,
        failures: &mut Vec<String>,
    ) -> Result<Vec<(String, String)>, ClusterError> {
        let is_ours = |binding: &RoleBinding| is_broker_binding(&row.name, binding);
        let listed = self
            .cluster
            .role_bindings_within(TENANT_LABEL, row.name.as_str(), MAX_OTHERS, is_ours)
            .await?;
        let bindings = if let Some(bindings) = listed {
            bindings
        } else {
            failures.push(format!(
                "more than {MAX_OTHERS} RoleBindings that the broker did not make have the label \
                 {TENANT_LABEL}={}, so others may be hidden; remove the label from them",
                row.name
            ));
            let keys = unknown.keys().flat_map(|namespace| {
                let names = self.broker_bindings(&row.name, namespace).into_iter();
                names.map(|name| ((*namespace).to_owned(), name))
            });
            let keys: Vec<_> = keys.collect();
            self.cluster.role_bindings_named(&keys).await?
        };
        let key =
            |binding: RoleBinding| Some((binding.metadata.namespace?, binding.metadata.name?));
        Ok(bindings.into_iter().filter_map(key).collect())
    }

    /// Finds the namespaces that have a binding of the broker, the label of a suspended one, as an earlier
    /// attempt leaves it, or an unreadable row. Only the broker and administrators may write these. Those
    /// that no tenant has get a row, if there is a binding or the name is the tenant's. It is counted if both
    /// are true; a run claims the others as far as their name, their accounts and the quota allow it. `rows`
    /// is the number of the tenant's rows.
    async fn recover_rows(
        &self,
        row: &TenantRow,
        (rows, unreadable): (usize, &BTreeSet<String>),
        unknown: &NamespacesByName<'_>,
        listed: &mut ListedAccess,
    ) -> sqlx::Result<()> {
        let bound: BTreeSet<&str> = listed.bindings.iter().map(|(it, _)| it.as_str()).collect();
        let candidates: Vec<(&str, &Namespace)> = unknown
            .iter()
            .map(|(name, live)| (*name, *live))
            .filter(|(name, live)| {
                bound.contains(name) || is_marked_suspended(live) || unreadable.contains(*name)
            })
            .collect();
        if candidates.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = candidates.iter().map(|(name, _)| (*name).to_owned()).collect();
        let held = self.tenants.held_by_others(row.id, &names).await?;
        let open = self.tenants.open_names().await?;
        let (mut creating, mut over_quota) = (Vec::new(), Vec::new());
        for (name, live) in candidates {
            let (is_bound, name) = (bound.contains(name), name.to_owned());
            let is_former = live.labels().contains_key(FORMER_TENANT_LABEL);
            let owner = prefixes_of(&name).into_iter().find(|prefix| open.contains(prefix));
            if unreadable.contains(&name) {
                listed.recovered.insert(name);
            } else if held.contains_key(&name) || is_former {
                if is_bound {
                    listed.of_other_tenants.insert(name);
                }
            } else {
                let is_by_name = owner.is_some_and(|owner| owner == row.name);
                if is_bound && is_by_name {
                    creating.push(name);
                } else if has_label_of_a_move(live) || !is_bound && !is_by_name {
                    listed.own_without_row.insert(name);
                } else {
                    over_quota.push(name);
                }
            }
        }
        let statuses = [NamespaceStatus::Creating, NamespaceStatus::OverQuota];
        for (names, status) in [creating, over_quota].into_iter().zip(statuses) {
            let rows = rows + listed.recovered.len();
            self.tenants.recover_namespaces(row.id, &names, status, rows).await?;
            listed.recovered.extend(names);
        }
        let found =
            listed.recovered.len() + listed.own_without_row.len() + listed.of_other_tenants.len();
        if found > 0 {
            tracing::warn!(
                tenant = %row.name, namespaces = found,
                "a suspension found namespaces of a tenant without rows, as after a restore"
            );
        }
        Ok(())
    }

    /// Revokes the rights in namespaces that get no row, and deletes the broker's bindings of the lists
    /// outside the `queued` namespaces. Returns what failed.
    pub(super) async fn revoke_outside(
        &self,
        row: &TenantRow,
        listed: &ListedAccess,
        queued: &BTreeSet<&str>,
        attempt: &RevocationAttempt,
    ) -> Vec<String> {
        let has_no_row = |name: &str| {
            listed.own_without_row.contains(name) || listed.of_other_tenants.contains(name)
        };
        let (kept, left): (Vec<_>, Vec<_>) = listed
            .bindings
            .iter()
            .filter(|(namespace, _)| !queued.contains(namespace.as_str()))
            .partition(|(namespace, _)| has_no_row(namespace));
        // In all namespaces, before deletions may hang in some of them.
        let empty = kept.into_iter().map(|(namespace, name)| self.empty_binding(namespace, name));
        let delete =
            left.into_iter().map(|(namespace, name)| self.delete_broker_binding(namespace, name));
        let (empty, delete): (Vec<_>, Vec<_>) = (empty.collect(), delete.collect());
        let (emptied, deleted): (Vec<Option<String>>, Vec<Option<String>>) = tokio::join!(
            stream::iter(empty).buffer_unordered(MAX_IN_FLIGHT).collect(),
            stream::iter(delete).buffer_unordered(MAX_IN_FLIGHT).collect()
        );
        let without_row = listed.own_without_row.iter().chain(&listed.of_other_tenants);
        let mut namespaces: Vec<&str> = without_row.map(String::as_str).collect();
        self.revocations.sort_by_attempts(row, &mut namespaces);
        let revocations: Vec<_> = namespaces
            .into_iter()
            .map(|name| self.revoke_without_row(row, name, listed, attempt))
            .collect();
        let revoked: Vec<Vec<String>> =
            stream::iter(revocations).buffer_unordered(MAX_IN_FLIGHT).collect().await;
        let bindings = emptied.into_iter().chain(deleted).flatten();
        bindings.chain(revoked.into_iter().flatten()).collect()
    }

    /// Removes the subjects of a binding of the broker. Returns what failed.
    async fn empty_binding(&self, namespace: &str, name: &str) -> Option<String> {
        let error = self.cluster.empty_role_binding(namespace, name).await.err()?;
        failure(namespace, &format!("RoleBinding {name}"), &error)
    }

    /// Revokes the rights in one namespace that gets no row. The broker's bindings, which are empty, alone
    /// say that it is the tenant's, so they are deleted once those of owners are. If a read does not show the
    /// namespace as the tenant's, both stay until the next list.
    async fn revoke_without_row(
        &self,
        row: &TenantRow,
        namespace: &str,
        listed: &ListedAccess,
        attempt: &RevocationAttempt,
    ) -> Vec<String> {
        self.revocations.count_attempt(row, namespace);
        let here = listed.bindings.iter().filter(|(it, _)| it == namespace);
        let of_broker: BTreeSet<&str> = here.map(|(_, name)| name.as_str()).collect();
        let (mut failures, mut is_open) = (Vec::new(), false);
        // Another tenant of the namespace may not be suspended, so it gets no label.
        let (step, is_ours) = if listed.own_without_row.contains(namespace) {
            let labelled = self.label(row, namespace, None).await;
            ("label", labelled.map(|labelled| labelled != SuspendedLabel::NotOurs))
        } else {
            let live = self.cluster.namespace(namespace).await;
            let is_ours = |live: &Namespace| is_of(live, namespace, &row.name);
            ("read", live.map(|live| live.as_ref().is_some_and(is_ours)))
        };
        let is_ours = match is_ours {
            Ok(true) => true,
            // A proxy may have answered, or an API server that was behind. If it is true, the next list
            // does not show the namespace either.
            Ok(false) | Err(ClusterError::NotFound(_)) => {
                is_open = true;
                failures.push(not_found(step, namespace));
                false
            }
            Err(error) => {
                is_open = true;
                failures.extend(failure(namespace, step, &error));
                // It is the tenant's as far as the list knows.
                listed.own_without_row.contains(namespace)
            }
        };
        if is_ours {
            let record = self.record_of_deletions(row, namespace, &attempt.recorded);
            let others = self.cluster.delete_role_bindings_except(namespace, &of_broker, record);
            if let Err(error) = others.await {
                is_open = true;
                failures.extend(failure(namespace, "RoleBindings", &error));
            }
        }
        if !is_open {
            for name in of_broker {
                failures.extend(self.delete_broker_binding(namespace, name).await);
            }
        }
        failures
    }
}

/// Whether the broker gives a RoleBinding of its role such a name. The API server lets it delete only
/// these in namespaces that no tenant has.
fn is_broker_binding(tenant: &TenantName, binding: &RoleBinding) -> bool {
    binding.name_any() == role_binding_name(tenant, &binding.role_ref.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_binding_of_the_broker_has_the_name_of_its_role() {
        let solar = "solar".parse().unwrap();
        let is_ours = |name: &str, role: &str| {
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": role});
            let binding = json!({"metadata": {"name": name}, "roleRef": role});
            is_broker_binding(&solar, &serde_json::from_value(binding).unwrap())
        };
        assert!(is_ours("tenant-solar-admin", "admin"));
        assert!(!is_ours("tenant-solar-admin", "view"));
        assert!(!is_ours("tenant-lunar-admin", "admin"));
        assert!(!is_ours("app", "admin"));
    }
}
