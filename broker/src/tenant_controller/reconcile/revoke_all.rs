//! Revocation of the rights in all namespaces of a tenant that is suspended.
//!
//! A run may end before all namespaces are done. The first attempt ends the most rights as early as
//! possible. Later ones leave out what is done, and begin with the namespaces that were tried least often,
//! so that each goes on where the last one was over. Meanwhile a few lists find the namespaces without a
//! row, and spare the reads of those that have the label.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, FuturesUnordered},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use tenant_shared::TENANT_LABEL;
use tokio::sync::Semaphore;

use super::{
    revocation_attempt::RevocationAttempt,
    revocation_progress::NamespaceToRevoke,
    revoke::{
        NamespaceRevocation, SuspendedLabel, failure, is_first_attempt, is_of, not_found,
        with_rights,
    },
};
use crate::{
    base::error_chain,
    cluster::{ClusterError, is_marked_suspended},
    tenant::{NamespaceRows, TenantRow, drop_unmanaged_metadata, home_name},
    tenant_controller::TenantController,
};

/// Namespaces whose bindings are deleted concurrently. Most of that time is the pause between two
/// lists that have to be empty.
const MAX_WAITING: usize = 32;

/// How long the first attempt waits for the deletions of the broker's bindings before it goes on with the
/// other bindings and the lists, because some of them may hang.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The same, if no request ends meanwhile.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(2);

impl TenantController {
    /// Revokes the rights in all namespaces of a tenant. Those beyond the quota have a queue of their own,
    /// because there may be any number of them, and in most of them nobody has a right that the broker
    /// gave. Returns what failed, for people.
    ///
    /// # Errors
    /// The rows of the namespaces could not be read.
    pub(super) async fn revoke_in_namespaces(&self, row: &TenantRow) -> sqlx::Result<Vec<String>> {
        let rows = self.tenants.namespace_rows(row.id).await?;
        let attempt = RevocationAttempt::new();
        let is_new = self.revocations.start_attempt(row);
        let is_first = is_new && is_first_attempt(row, self.clock.now_ms());
        let (counted, beyond) = by_quota(&rows);
        let (first, later) = if is_first { (counted, Vec::new()) } else { (Vec::new(), counted) };
        let (begun, slow) = self.begin_in_all(row, &first, &attempt).await;
        let later = self.revocations.open(row, later);
        let beyond = self.revocations.open(row, beyond);
        let has_begun: BTreeSet<&str> = begun.iter().map(|begun| begun.name.as_str()).collect();
        let names = first.iter().map(|(name, _)| *name);
        let slow_names: BTreeSet<&str> = names.filter(|name| !has_begun.contains(name)).collect();
        let in_progress: BTreeSet<&str> =
            later.iter().chain(&beyond).map(|(name, _)| *name).chain(slow_names.clone()).collect();
        // At once, because lists that others made long, and deletions that hang in one namespace, must not
        // keep the rights in others.
        // All are polled while some wait for lists, because a future that is not polled keeps its permit.
        let completions = Semaphore::new(MAX_WAITING);
        let in_slow = slow
            .map(|begun| async {
                let _permit = completions.acquire().await;
                self.complete_in(row, begun, &attempt).await
            })
            .buffer_unordered(usize::MAX)
            .collect::<Vec<_>>();
        let begun = begun.into_iter().map(|begun| self.complete_in(row, begun, &attempt));
        let (in_begun, in_slow, in_later, in_beyond, by_lists) = tokio::join!(
            collect_failures(begun),
            in_slow.boxed(),
            self.revoke_in_each(row, later, &attempt),
            self.revoke_in_each(row, beyond, &attempt),
            self.revoke_by_lists(row, &rows, (&in_progress, &slow_names), &attempt).boxed()
        );
        let in_slow = in_slow.into_iter().flatten();
        let in_rows = in_begun.into_iter().chain(in_slow).chain(in_later).chain(in_beyond);
        let mut failures: Vec<String> = in_rows.chain(by_lists).collect();
        let left_out = attempt.take_wrongly_left_out();
        let row_of = |name: &str| rows.rows.iter().find(|row| row.name == name);
        let left_out = left_out.iter().map(|name| (name.as_str(), row_of(name))).collect();
        failures.extend(self.revoke_in_each(row, left_out, &attempt).await);
        let reopened = self.revocations.reopen_with_new_bindings(row);
        let reopened = reopened.iter().map(|name| (name.as_str(), row_of(name))).collect();
        failures.extend(self.revoke_in_each(row, reopened, &attempt).await);
        let left_out = attempt.take_wrongly_left_out().into_iter();
        failures.extend(left_out.map(|name| not_found("read", &name)));
        Ok(failures)
    }

    /// Labels the namespaces of a list that have no label, and revokes the rights in those without a row and
    /// outside the namespaces of the tenant. Also in one with a row that has no label although an attempt
    /// began with it, unless its rights are revoked at the same time (`in_progress`). Those of the first
    /// attempt (`slow`) wait for their labels already. Returns what failed.
    async fn revoke_by_lists(
        &self,
        row: &TenantRow,
        rows: &NamespaceRows,
        (in_progress, slow): (&BTreeSet<&str>, &BTreeSet<&str>),
        attempt: &RevocationAttempt,
    ) -> Vec<String> {
        let mut failures = Vec::new();
        let listed = match self.list_own_namespaces(row).await {
            Ok(listed) => Some(listed),
            Err(error) => {
                failures.push(format!("namespaces of the tenant: {}", error_chain(&error)));
                None
            }
        };
        let live = listed.as_deref().unwrap_or_default();
        let labelled: BTreeMap<String, bool> =
            live.iter().map(|live| (live.name_any(), is_marked_suspended(live))).collect();
        let unlabelled: BTreeSet<&str> = live
            .iter()
            .filter(|live| !is_marked_suspended(live))
            .filter_map(|live| live.metadata.name.as_deref())
            .collect();
        attempt.set_listed(labelled);
        let (counted, _) = by_quota(rows);
        let is_unlabelled = |(name, _): &NamespaceToRevoke<'_>| unlabelled.contains(name);
        let rows_without_label: Vec<_> =
            counted.into_iter().filter(|it| is_unlabelled(it) && !slow.contains(it.0)).collect();
        failures.extend(self.label_all(row, &rows_without_label, attempt).await);
        let home = home_name(&row.name);
        if unlabelled.contains(home.as_str()) {
            failures.extend(self.label_all(row, &[(&home, None)], attempt).await);
        }
        let known = rows.rows.iter().map(|row| row.name.as_str()).collect();
        let mut access = self.list_access(row, (&known, &rows.unreadable), listed.as_deref()).await;
        failures.append(&mut access.failures);
        let recovered: Vec<NamespaceToRevoke<'_>> =
            access.recovered.iter().map(|name| (name.as_str(), None)).collect();
        let recovered_without_label: Vec<_> =
            recovered.iter().copied().filter(is_unlabelled).collect();
        failures.extend(self.label_all(row, &recovered_without_label, attempt).await);
        let others = rows_without_label.into_iter().filter(|(name, _)| !in_progress.contains(name));
        let queue = self.revocations.open(row, others.chain(recovered).collect());
        // In one that is not the tenant's any more nothing is done.
        let own: BTreeSet<&str> =
            live.iter().filter_map(|live| live.metadata.name.as_deref()).collect();
        let in_progress = in_progress.iter().map(|name| (*name, None)).collect();
        let in_progress = self.revocations.open(row, in_progress);
        let names = queue.iter().chain(&in_progress).map(|(name, _)| *name);
        let queued = names.filter(|name| own.contains(name)).collect();
        let (in_queue, outside) = tokio::join!(
            self.revoke_in_each(row, queue, attempt),
            self.revoke_outside(row, &access, &queued, attempt)
        );
        failures.extend(in_queue.into_iter().chain(outside));
        failures
    }

    /// The namespaces with the labels of a tenant, with its home.
    async fn list_own_namespaces(&self, row: &TenantRow) -> Result<Vec<Namespace>, ClusterError> {
        let label = row.name.as_str();
        let mut listed = self
            .cluster
            .namespaces_with_label(TENANT_LABEL, label, drop_unmanaged_metadata)
            .await?;
        listed.retain(|live| is_of(live, &live.name_any(), &row.name));
        Ok(listed)
    }

    /// Begins the first attempt. All labels are written before the first binding is deleted, because a
    /// label ends all writes in a namespace, and the broker's bindings are deleted before lists are read,
    /// which others can make long. Permits are given in the order in which they are asked for, so one
    /// namespace that takes long delays no other. Returns the namespaces that have begun, and the others if
    /// that takes too long.
    async fn begin_in_all<'a>(
        &'a self,
        row: &'a TenantRow,
        namespaces: &[NamespaceToRevoke<'a>],
        attempt: &'a RevocationAttempt,
    ) -> (Vec<NamespaceRevocation>, FuturesUnordered<BoxFuture<'a, NamespaceRevocation>>) {
        let mut requests: FuturesUnordered<_> = namespaces
            .iter()
            .map(|namespace| self.begin_in(row, *namespace, attempt).boxed())
            .collect();
        let mut begun = Vec::new();
        let collect = async {
            loop {
                let responses = attempt.responses();
                match tokio::time::timeout(PROGRESS_TIMEOUT, requests.next()).await {
                    Ok(Some(namespace)) => begun.push(namespace),
                    Ok(None) => break,
                    Err(_) if attempt.responses() == responses => break,
                    // The labels of all namespaces come before the first deletion.
                    Err(_) => {}
                }
            }
        };
        // What has not ended goes on later.
        let _ = tokio::time::timeout(BEGIN_TIMEOUT, collect).await;
        (begun, requests)
    }

    /// Labels namespaces, however many others wait for the end of their rights. Returns what failed.
    async fn label_all(
        &self,
        row: &TenantRow,
        namespaces: &[NamespaceToRevoke<'_>],
        attempt: &RevocationAttempt,
    ) -> Vec<String> {
        let requests: FuturesUnordered<_> = namespaces
            .iter()
            .map(|(name, namespace)| async move {
                match attempt.in_flight(self.label(row, name, *namespace)).await {
                    Ok(SuspendedLabel::Written) => self.revocations.reopen(row, name),
                    Ok(SuspendedLabel::WasThere) => {}
                    Ok(SuspendedLabel::NotOurs) | Err(ClusterError::NotFound(_)) => {
                        attempt.leave_out(name);
                    }
                    Err(error) => return failure(name, "label", &error),
                }
                None
            })
            .collect();
        let failures: Vec<Option<String>> = requests.collect().await;
        failures.into_iter().flatten().collect()
    }

    /// Revokes the rights in one namespace after the other, some at once, so that each attempt ends what
    /// it begins.
    async fn revoke_in_each(
        &self,
        row: &TenantRow,
        namespaces: Vec<NamespaceToRevoke<'_>>,
        attempt: &RevocationAttempt,
    ) -> Vec<String> {
        let requests = namespaces.into_iter().map(|namespace| async move {
            self.revocations.count_attempt(row, namespace.0);
            let begun = self.begin_in(row, namespace, attempt).await;
            self.complete_in(row, begun, attempt).await
        });
        collect_failures(requests).await
    }

    /// Like [`Self::finish_in`]; records that the namespace is done if it has the label and nothing
    /// failed.
    async fn complete_in(
        &self,
        row: &TenantRow,
        begun: NamespaceRevocation,
        attempt: &RevocationAttempt,
    ) -> Vec<String> {
        let (name, is_labelled) = (begun.name.clone(), begun.is_labelled);
        let failures = self.finish_in(row, begun, attempt).await;
        if is_labelled && failures.is_empty() {
            self.revocations.complete(row, &name);
        }
        failures
    }
}

/// The namespaces in which somebody may have rights: those that count against the quota, and those beyond.
fn by_quota(rows: &NamespaceRows) -> (Vec<NamespaceToRevoke<'_>>, Vec<NamespaceToRevoke<'_>>) {
    let named = with_rights(&rows.rows).map(|it| (it.name.as_str(), Some(it)));
    named.partition(|(_, row)| row.is_some_and(|row| row.status.counts()))
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
