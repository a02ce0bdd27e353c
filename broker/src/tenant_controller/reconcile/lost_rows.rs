//! Namespaces of a suspended tenant whose rows were lost, for example by a restore.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};
use kube::ResourceExt as _;
use tenant_shared::TENANT_LABEL;

use super::revoke::is_of;
use crate::{
    base::error_chain,
    cluster::{ClusterError, is_marked_suspended},
    tenant::{NamespaceStatus, TenantRow, home_name},
    tenant_controller::{
        TenantController,
        namespaces::has_label_of_a_move,
        objects::{
            snapshot::{MAX_OTHERS, is_binding_name},
            withdraw::MAX_IN_FLIGHT,
        },
    },
};

/// Namespaces by name.
type Live<'a> = BTreeMap<&'a str, &'a Namespace>;

/// Namespace and name of a RoleBinding.
type BindingKey = (String, String);

impl TenantController {
    /// Writes the rows of namespaces that lost them, and then deletes the broker's bindings that a list
    /// shows. The rows come first, because later only a row says that such a namespace is the tenant's.
    /// `known` are the namespaces with rows, `listed` those with the label of the tenant, unless that list
    /// failed. Returns the names of the namespaces with new rows, and what failed, for people.
    pub(super) async fn revoke_listed(
        &self,
        row: &TenantRow,
        known: &BTreeSet<&str>,
        listed: Option<&[Namespace]>,
    ) -> (BTreeSet<String>, Vec<String>) {
        let home = home_name(&row.name);
        let unknown: Live<'_> = listed
            .into_iter()
            .flatten()
            .filter_map(|live| Some((live.metadata.name.as_deref()?, live)))
            .filter(|(name, live)| {
                *name != home && !known.contains(name) && is_of(live, name, &row.name)
            })
            .collect();
        let mut failures = Vec::new();
        let mut bindings = match self.broker_bindings_of(row, &unknown).await {
            Ok(bindings) => bindings,
            Err(error) => {
                failures.push(format!("RoleBindings of the tenant: {}", error_chain(&error)));
                Vec::new()
            }
        };
        let recovered = match self.recover_rows(row, known.len(), &unknown, &bindings).await {
            Ok(recovered) => recovered,
            Err(error) => {
                failures.push(format!("rows of namespaces: {}", error_chain(&error)));
                bindings.retain(|(namespace, _)| !unknown.contains_key(namespace.as_str()));
                BTreeSet::new()
            }
        };
        if listed.is_none() {
            bindings
                .retain(|(namespace, _)| *namespace == home || known.contains(namespace.as_str()));
        }
        let requests: Vec<_> = bindings
            .iter()
            .map(|(namespace, name)| self.delete_broker_binding(namespace, name))
            .collect();
        let results: Vec<Option<String>> =
            stream::iter(requests).buffer_unordered(MAX_IN_FLIGHT).collect().await;
        failures.extend(results.into_iter().flatten());
        (recovered, failures)
    }

    /// The broker's bindings with the label of a tenant. If there are many others, only those in the
    /// namespaces without a row are read, by their names; in the others they are deleted by name.
    async fn broker_bindings_of(
        &self,
        row: &TenantRow,
        unknown: &Live<'_>,
    ) -> Result<Vec<BindingKey>, ClusterError> {
        let is_ours = |binding: &RoleBinding| is_binding_name(&row.name, &binding.name_any());
        let listed = self
            .cluster
            .role_bindings_within(TENANT_LABEL, row.name.as_str(), MAX_OTHERS, is_ours)
            .await?;
        let bindings = if let Some(bindings) = listed {
            bindings
        } else {
            let keys = unknown.keys().flat_map(|namespace| {
                let names = self.broker_bindings(&row.name, namespace).into_iter();
                names.map(|name| ((*namespace).to_owned(), name))
            });
            self.cluster.role_bindings_named(keys).await?
        };
        let key =
            |binding: RoleBinding| Some((binding.metadata.namespace?, binding.metadata.name?));
        Ok(bindings.into_iter().filter_map(key).collect())
    }

    /// Writes the rows of the namespaces that have a binding of the broker, or the label of a suspended
    /// one, as an earlier attempt leaves it. Only the broker and administrators may write either. Those
    /// that another tenant has are left out. Without a binding a namespace is counted only if a run
    /// claims it. `known` is the number of rows. Returns the names of these namespaces.
    async fn recover_rows(
        &self,
        row: &TenantRow,
        known: usize,
        unknown: &Live<'_>,
        bindings: &[BindingKey],
    ) -> sqlx::Result<BTreeSet<String>> {
        let bound: BTreeSet<&str> =
            bindings.iter().map(|(namespace, _)| namespace.as_str()).collect();
        let (with_binding, with_label): (Vec<_>, Vec<_>) = unknown
            .iter()
            .filter(|(name, live)| {
                bound.contains(*name) || is_marked_suspended(live) && !has_label_of_a_move(live)
            })
            .map(|(name, _)| (*name).to_owned())
            .partition(|name| bound.contains(name.as_str()));
        let (creating, over_quota) = (NamespaceStatus::Creating, NamespaceStatus::OverQuota);
        let mut recovered = BTreeSet::new();
        for (mut names, status) in [(with_binding, creating), (with_label, over_quota)] {
            let held = self.tenants.held_by_others(row.id, &names).await?;
            names.retain(|name| !held.contains_key(name));
            let rows = known + recovered.len();
            self.tenants.recover_namespaces(row.id, &names, status, rows).await?;
            recovered.extend(names);
        }
        if !recovered.is_empty() {
            tracing::warn!(
                tenant = %row.name, namespaces = recovered.len(),
                "a suspension found namespaces of a tenant without rows, as after a restore"
            );
        }
        Ok(recovered)
    }
}
