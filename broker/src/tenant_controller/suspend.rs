//! Suspension and resumption of a tenant in the cluster. The decision is in the row.
//!
//! The label of a namespace ends writes, and the deletion of its bindings ends reads, so both belong
//! together; bindings that owners made come after all namespaces, because they are of
//! ServiceAccounts that no member can use any more. Each step is tried whatever becomes of the
//! others.

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;

use super::{
    TenantController,
    error::ReconcileError,
    snapshot::{Snapshot, namespace_of},
    withdraw::{MAX_IN_FLIGHT, Withdrawal, is_binding_of},
};
use crate::{
    base::error_chain,
    cluster::{ClusterError, is_marked_suspended},
    tenant::{TenantRow, TenantStatus, home_name},
};

impl TenantController {
    /// Revokes all rights in a tenant that is being suspended, or that has regained some. Returns
    /// what failed, for people.
    ///
    /// # Errors
    /// The database failed.
    pub(super) async fn enforce_suspension(
        &self,
        row: &TenantRow,
        snapshot: &Snapshot,
    ) -> Result<Vec<String>, ReconcileError> {
        let namespaces: Vec<(&str, &Namespace)> = snapshot.namespaces().collect();
        let requests: Vec<_> = namespaces
            .iter()
            .map(|(name, live)| self.suspend_namespace(row, snapshot, name, live))
            .collect();
        let results: Vec<Vec<String>> =
            stream::iter(requests).buffer_unordered(MAX_IN_FLIGHT).collect().await;
        let mut failures: Vec<String> = results.into_iter().flatten().collect();
        if row.status == TenantStatus::Suspending {
            // A ServiceAccount that a slow provisioning makes is deleted by the next attempt.
            if let Err(error) = Box::pin(self.workspaces.revoke_tokens_of_members(row.id)).await {
                failures.push(format!("ServiceAccounts of members: {}", error_chain(&error)));
            }
        }
        let requests: Vec<_> =
            namespaces.iter().map(|(name, _)| self.delete_all_bindings(row, name)).collect();
        let results: Vec<Option<String>> =
            stream::iter(requests).buffer_unordered(MAX_IN_FLIGHT).collect().await;
        failures.extend(results.into_iter().flatten());
        for failure in &failures {
            tracing::error!(
                tenant = %row.name, error = failure, "a step of a tenant's suspension is open"
            );
        }
        Ok(failures)
    }

    /// Labels a namespace, and deletes the bindings that the broker made in it.
    async fn suspend_namespace(
        &self,
        row: &TenantRow,
        snapshot: &Snapshot,
        name: &str,
        live: &Namespace,
    ) -> Vec<String> {
        let mut failures = Vec::new();
        if !is_marked_suspended(live) {
            let uid = live.metadata.uid.as_deref();
            if let Err(error) = self.cluster.mark_suspended(name, uid, true).await {
                failures.extend(failure(name, "label", &error));
            }
        }
        let ours = snapshot
            .others([])
            .filter(|object| namespace_of(object) == name && is_binding_of(&row.name, object));
        let withdrawals: Vec<Withdrawal<'_>> = ours.map(Withdrawal::Delete).collect();
        let failed = self.withdraw(withdrawals).await;
        failures
            .extend(failed.iter().map(|(what, error)| format!("{what}: {}", error_chain(error))));
        failures
    }

    /// Deletes all bindings of a namespace, whoever made them. Of a suspended tenant first looks
    /// whether there are any.
    async fn delete_all_bindings(&self, row: &TenantRow, namespace: &str) -> Option<String> {
        let deleted = async {
            if row.status == TenantStatus::Suspended
                && !self.cluster.has_role_bindings(namespace).await?
            {
                return Ok(());
            }
            self.cluster.delete_role_bindings(namespace).await
        };
        deleted.await.err().and_then(|error| failure(namespace, "RoleBindings", &error))
    }

    /// Removes the labels of a tenant that is being resumed, that of the home first, and lets its
    /// members have ServiceAccounts again. Returns what failed, for people.
    ///
    /// # Errors
    /// The database failed.
    pub(super) async fn resume_namespaces(
        &self,
        row: &TenantRow,
        snapshot: &Snapshot,
    ) -> Result<Vec<String>, ReconcileError> {
        let home = home_name(&row.name);
        let marked = snapshot.namespaces().filter(|(_, live)| is_marked_suspended(live));
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

/// A step that failed; `None` if the namespace does not exist any more.
fn failure(namespace: &str, step: &str, error: &ClusterError) -> Option<String> {
    let is_gone = matches!(error, ClusterError::NotFound(_));
    (!is_gone).then(|| format!("{step} in {namespace}: {}", error_chain(error)))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_namespace_that_is_gone_needs_no_revocation() {
        let error = |code| {
            let status = Status::failure("no", "").with_code(code);
            ClusterError::from(kube::Error::Api(status.boxed()))
        };
        assert_eq!(failure("solar-a", "label", &error(404)), None);
        let failed = failure("solar-a", "label", &error(403)).unwrap();
        assert!(failed.starts_with("label in solar-a: the cluster refused"), "{failed}");
    }
}
