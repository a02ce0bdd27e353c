//! Resumption of a tenant in the cluster.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;

use super::revoke::{failure, is_of, is_relabelled, with_rights};
use crate::{
    cluster::is_marked_suspended,
    tenant::{NamespaceRow, TenantRow, home_name},
    tenant_controller::{
        TenantController,
        error::ReconcileError,
        objects::{snapshot::Snapshot, withdraw::MAX_IN_FLIGHT},
    },
};

impl TenantController {
    /// Removes the labels of a tenant that is being resumed, that of the home first, and lets its
    /// members have ServiceAccounts again. Returns what failed, for people.
    ///
    /// # Errors
    /// The database failed, or a relabelled namespace could not be read.
    pub(in crate::tenant_controller) async fn resume_namespaces(
        &self,
        row: &TenantRow,
        rows: &[NamespaceRow],
        snapshot: &Snapshot,
    ) -> Result<Vec<String>, ReconcileError> {
        let home = home_name(&row.name);
        // A suspension reached those without a row that this version can read as well.
        let known: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let without_row = snapshot.namespaces().filter(|(name, live)| {
            !known.contains(name) && is_marked_suspended(live) && is_of(live, name, &row.name)
        });
        let without_row: Vec<String> = without_row.map(|(name, _)| name.to_owned()).collect();
        let held = self.tenants.held_by_others(row.id, &without_row).await?;
        let has_no_row = |name: &str| !known.contains(name) && !held.contains_key(name);
        let ours: BTreeMap<&str, &NamespaceRow> =
            with_rights(rows).map(|row| (row.name.as_str(), row)).collect();
        let is_ours = |name: &str, live: &Namespace| {
            let of_row = ours.get(name);
            (of_row.is_some() || name == home || has_no_row(name)) && is_of(live, name, &row.name)
                || of_row.is_some_and(|row| is_relabelled(row, live))
        };
        // A suspension reached those with the label of another tenant as well.
        let relabelled = self.unlabelled(row, (rows, usize::MAX), snapshot).await?.relabelled;
        let elsewhere = relabelled.iter().map(|(name, live)| (name.as_str(), live));
        let marked = snapshot
            .namespaces()
            .chain(elsewhere)
            .filter(|(name, live)| is_marked_suspended(live) && is_ours(name, live));
        let (homes, others): (Vec<_>, Vec<_>) = marked.partition(|(name, _)| *name == home);
        let mut failures = Vec::new();
        for (name, live) in homes {
            failures.extend(self.resume_namespace(name, live).await);
        }
        if failures.is_empty() {
            self.workspaces.allow_tokens_of_members(row.id).await?;
        }
        let requests: Vec<_> =
            others.into_iter().map(|(name, live)| self.resume_namespace(name, live)).collect();
        let results: Vec<Option<String>> =
            stream::iter(requests).buffer_unordered(MAX_IN_FLIGHT).collect().await;
        failures.extend(results.into_iter().flatten());
        Ok(failures)
    }

    async fn resume_namespace(&self, name: &str, live: &Namespace) -> Option<String> {
        let resumed = self.cluster.mark_suspended(name, live.metadata.uid.as_deref(), false).await;
        resumed.err().and_then(|error| failure(name, "label", &error))
    }
}
