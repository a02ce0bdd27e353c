//! Revocation of the rights in all namespaces of a tenant that is suspended.
//!
//! A run may end before all namespaces are done. The first attempt ends the most rights as early as
//! possible. Later ones read with a few lists what is left, end it namespace by namespace, and begin
//! with those that were tried least often, so that each goes on where the last one was over.

use std::collections::BTreeSet;

use futures_util::{
    StreamExt as _,
    stream::{self, FuturesUnordered},
};
use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};
use kube::ResourceExt as _;
use tenant_shared::TENANT_LABEL;
use tokio::sync::Semaphore;

use super::{
    revocation_progress::NamespaceToRevoke,
    revoke::{NamespaceRevocation, SuspendedLabel, failure, is_first_attempt, is_of, with_rights},
};
use crate::{
    base::error_chain,
    cluster::is_marked_suspended,
    tenant::{TenantRow, drop_unmanaged_metadata, home_name},
    tenant_controller::{
        TenantController,
        objects::{
            snapshot::{MAX_OTHERS, is_binding_name},
            withdraw::MAX_IN_FLIGHT,
        },
    },
};

/// Namespaces whose bindings are deleted concurrently. Most of that time is the pause between two
/// lists that have to be empty.
const MAX_WAITING: usize = 32;

impl TenantController {
    /// Revokes the rights in all namespaces of a tenant. Those beyond the quota come last, because there
    /// may be any number of them, and nobody has a right in them that the broker gave. Returns what
    /// failed, for people.
    ///
    /// # Errors
    /// The rows of the namespaces could not be read.
    pub(super) async fn revoke_in_namespaces(&self, row: &TenantRow) -> sqlx::Result<Vec<String>> {
        let rows = self.tenants.namespaces(row.id).await?;
        let (counted, beyond): (Vec<_>, Vec<_>) =
            with_rights(&rows).map(|it| (it.name.as_str(), Some(it))).partition(
                |(_, namespace)| namespace.is_some_and(|namespace| namespace.status.counts()),
            );
        let permits = Semaphore::new(MAX_IN_FLIGHT);
        let is_new = self.revocations.start_attempt(row);
        let is_first = is_new && is_first_attempt(row, self.clock.now_ms());
        let (labelled, mut failures) = if is_first {
            (BTreeSet::new(), self.revoke_in_all(row, &counted, &permits).await)
        } else {
            self.label_all(row, &counted, &permits).await
        };
        let known: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let (listed, failed) = self.delete_listed_bindings(row, &known).await?;
        failures.extend(failed);
        // An earlier attempt labelled some, and deleted their bindings.
        let earlier = labelled.iter().filter(|name| !known.contains(name.as_str()));
        let unknown: BTreeSet<&str> = listed.iter().chain(earlier).map(String::as_str).collect();
        failures.extend(self.revoke_in_unknown(row, unknown, &permits).await);
        let counted = if is_first { Vec::new() } else { counted };
        for namespaces in [counted, beyond] {
            failures.extend(self.revoke_in_each(row, namespaces, &labelled, &permits).await);
        }
        Ok(failures)
    }

    /// The first attempt. All labels are written before the first binding is deleted, because a label
    /// ends all writes in a namespace, and the broker's bindings are deleted before lists are read, which
    /// others can make long. Permits are given in the order in which they are asked for, so one namespace
    /// that takes long delays no other.
    async fn revoke_in_all(
        &self,
        row: &TenantRow,
        namespaces: &[NamespaceToRevoke<'_>],
        permits: &Semaphore,
    ) -> Vec<String> {
        let requests: FuturesUnordered<_> = namespaces
            .iter()
            .map(|namespace| self.begin_in(row, *namespace, false, permits))
            .collect();
        let begun: Vec<NamespaceRevocation> = requests.collect().await;
        collect_failures(begun.into_iter().map(|begun| self.complete_in(row, begun))).await
    }

    /// A later attempt: writes the labels that are missing by a list, however many namespaces have theirs.
    /// Returns the names of those that have it, also of those without a row, and what failed.
    async fn label_all(
        &self,
        row: &TenantRow,
        namespaces: &[NamespaceToRevoke<'_>],
        permits: &Semaphore,
    ) -> (BTreeSet<String>, Vec<String>) {
        let (label, home) = (row.name.as_str(), home_name(&row.name));
        let listed =
            self.cluster.namespaces_with_label(TENANT_LABEL, label, drop_unmanaged_metadata);
        // Without the list each namespace is read.
        let listed = listed.await.unwrap_or_default();
        let has_label = |live: &Namespace| {
            let name = live.name_any();
            is_marked_suspended(live) && is_of(live, &name, &row.name) && name != home
        };
        let labelled: BTreeSet<String> =
            listed.iter().filter(|live| has_label(live)).map(kube::ResourceExt::name_any).collect();
        let missing = namespaces.iter().filter(|(name, _)| !labelled.contains(*name));
        let requests: FuturesUnordered<_> = missing
            .map(|(name, namespace)| async move {
                let _permit = permits.acquire().await;
                match self.label(row, name, *namespace).await {
                    Ok(SuspendedLabel::Written) => self.revocations.reopen(row, name),
                    Ok(_) => {}
                    Err(error) => return failure(name, "label", &error),
                }
                None
            })
            .collect();
        let failures: Vec<Option<String>> = requests.collect().await;
        (labelled, failures.into_iter().flatten().collect())
    }

    /// Deletes the broker's bindings that a list shows. A namespace that has one is the tenant's, also if
    /// its row was lost, for example by a restore, unless another tenant has a row of it. Returns the names
    /// of those without a row, whose bindings are still there, and what failed.
    ///
    /// # Errors
    /// The rows of other tenants could not be read.
    async fn delete_listed_bindings(
        &self,
        row: &TenantRow,
        known: &BTreeSet<&str>,
    ) -> sqlx::Result<(BTreeSet<String>, Vec<String>)> {
        let is_ours = |binding: &RoleBinding| is_binding_name(&row.name, &binding.name_any());
        let listed = self
            .cluster
            .role_bindings_within(TENANT_LABEL, row.name.as_str(), MAX_OTHERS, is_ours)
            .await;
        let listed = match listed {
            Ok(listed) => listed.unwrap_or_default(),
            Err(error) => {
                let failed = format!("RoleBindings of the tenant: {}", error_chain(&error));
                return Ok((BTreeSet::new(), vec![failed]));
            }
        };
        let keys: Vec<(String, String)> = listed
            .into_iter()
            .filter_map(|binding| Some((binding.metadata.namespace?, binding.metadata.name?)))
            .collect();
        let home = home_name(&row.name);
        let namespaces = keys.iter().map(|(namespace, _)| namespace);
        let unknown = namespaces.filter(|it| **it != home && !known.contains(it.as_str()));
        let unknown: Vec<String> = unknown.cloned().collect();
        let held = self.tenants.held_by_others(row.id, &unknown).await?;
        let unknown: BTreeSet<String> =
            unknown.into_iter().filter(|name| !held.contains_key(name)).collect();
        let requests: Vec<_> = keys
            .iter()
            .filter(|(namespace, _)| !unknown.contains(namespace))
            .map(|(namespace, name)| self.delete_broker_binding(namespace, name))
            .collect();
        let results: Vec<Option<String>> =
            stream::iter(requests).buffer_unordered(MAX_IN_FLIGHT).collect().await;
        Ok((unknown, results.into_iter().flatten().collect()))
    }

    /// Revokes the rights in namespaces without a row. They have the label before their bindings are
    /// deleted, because it or a binding of the broker alone says that they are the tenant's.
    async fn revoke_in_unknown(
        &self,
        row: &TenantRow,
        namespaces: BTreeSet<&str>,
        permits: &Semaphore,
    ) -> Vec<String> {
        let requests = namespaces.into_iter().map(|name| async move {
            match self.label(row, name, None).await {
                Ok(SuspendedLabel::NotOurs) => return Vec::new(),
                Ok(SuspendedLabel::Written | SuspendedLabel::WasThere) => {}
                Err(error) => return failure(name, "label", &error).into_iter().collect(),
            }
            let begun = self.begin_in(row, (name, None), true, permits).await;
            self.finish_in(row, begun).await
        });
        collect_failures(requests).await
    }

    /// Revokes the rights in one namespace after the other, some at once, so that each attempt ends what
    /// it begins. Those that this process has ended already are left out.
    async fn revoke_in_each(
        &self,
        row: &TenantRow,
        namespaces: Vec<NamespaceToRevoke<'_>>,
        labelled: &BTreeSet<String>,
        permits: &Semaphore,
    ) -> Vec<String> {
        let open = self.revocations.open(row, namespaces);
        let requests = open.into_iter().map(|namespace| async move {
            let is_labelled = labelled.contains(namespace.0);
            self.revocations.count_attempt(row, namespace.0);
            let begun = self.begin_in(row, namespace, is_labelled, permits).await;
            self.complete_in(row, begun).await
        });
        collect_failures(requests).await
    }

    /// Like [`Self::finish_in`]; records that the namespace is done if it has the label and nothing
    /// failed.
    async fn complete_in(&self, row: &TenantRow, begun: NamespaceRevocation) -> Vec<String> {
        let (name, is_labelled) = (begun.name.clone(), begun.is_labelled);
        let failures = self.finish_in(row, begun).await;
        if is_labelled && failures.is_empty() {
            self.revocations.complete(row, &name);
        }
        failures
    }
}

/// Runs the revocations in namespaces, [`MAX_WAITING`] at once. Returns what failed.
async fn collect_failures<F>(requests: impl Iterator<Item = F>) -> Vec<String>
where
    F: Future<Output = Vec<String>>,
{
    let requests: Vec<F> = requests.collect();
    let results: Vec<Vec<String>> =
        stream::iter(requests).buffer_unordered(MAX_WAITING).collect().await;
    results.into_iter().flatten().collect()
}
