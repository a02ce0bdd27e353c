//! Revocation of the rights in one namespace of a tenant that is suspended.
//!
//! The label of a namespace ends writes, and the deletion of its bindings ends reads, so both belong
//! together; bindings that owners made come after those of the broker, because they are of
//! ServiceAccounts that no member can use any more.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{self, BoxFuture},
    stream::FuturesUnordered,
};
use k8s_openapi::api::core::v1::Namespace;
use tenant_shared::{HOME_LABEL, TENANT_LABEL, TENANT_OWNER_ROLE, WORKSPACE_LABEL};

use super::{
    revocation_attempt::{DeletionRecord, RevocationAttempt},
    revocation_progress::NamespaceToRevoke,
};
use crate::{
    base::error_chain,
    cluster::{ClusterError, EMPTY_LIST_INTERVAL, is_marked_suspended},
    tenant::{
        ClusterRoleName, NamespaceRow, NamespaceStatus, TenantName, TenantRow, TenantStatus,
        home_name, role_binding_name,
    },
    tenant_controller::{
        TenantController,
        namespaces::moves::{is_same_namespace, may_be_relabelled},
        objects::snapshot::is_binding_name,
    },
};

/// How long after its decision most namespaces of a suspension have no label yet. Later attempts look in
/// each namespace what is done, so that each of them goes on where the time of the last one was over.
const FIRST_ATTEMPT: Duration = Duration::from_secs(10);

/// How long a deletion of RoleBindings waits until their names are on record. Only the first ones of an
/// attempt wait for a database that fails, because it must not keep rights.
const RECORD_TIMEOUT: Duration = Duration::from_secs(1);

/// Value of [`HOME_LABEL`].
const HOME: &str = "true";

/// The label of a suspended namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SuspendedLabel {
    Written,
    WasThere,
    /// The namespace does not exist, or is not the tenant's.
    NotOurs,
}

/// A namespace in which a suspension has begun.
#[derive(Debug)]
pub(super) struct NamespaceRevocation {
    pub(super) name: String,
    /// Whether it has the label.
    pub(super) is_labelled: bool,
    /// Whether there may be bindings.
    is_open: bool,
    /// Names of the broker's bindings that were not tried, because the Tenant does not give their roles.
    untried: Vec<String>,
    failures: Vec<String>,
}

impl TenantController {
    /// Labels a namespace, and deletes the bindings that the broker makes in it, by their names. Those
    /// whose roles the Tenant does not give, as far as this process knows it, most likely do not exist and
    /// are left for later. Each request needs a permit.
    pub(super) async fn begin_in(
        &self,
        row: &TenantRow,
        (name, namespace): NamespaceToRevoke<'_>,
        attempt: &RevocationAttempt,
    ) -> NamespaceRevocation {
        let label = async {
            if attempt.is_labelled(name) {
                Ok(SuspendedLabel::WasThere)
            } else {
                self.label(row, name, namespace).await
            }
        };
        let labelled = attempt.in_flight(label).await;
        self.begin_labelled(row, name, labelled, attempt).await
    }

    /// Like [`Self::begin_in`], after the request for the label had this result.
    pub(super) async fn begin_labelled(
        &self,
        row: &TenantRow,
        name: &str,
        labelled: Result<SuspendedLabel, ClusterError>,
        attempt: &RevocationAttempt,
    ) -> NamespaceRevocation {
        let mut failures = Vec::new();
        let is_labelled =
            matches!(labelled, Ok(SuspendedLabel::Written | SuspendedLabel::WasThere));
        let is_open = match labelled {
            Ok(SuspendedLabel::NotOurs) => {
                attempt.leave_out(name);
                false
            }
            Ok(SuspendedLabel::WasThere) if row.status == TenantStatus::Suspending => {
                self.may_have_bindings(name, attempt).await
            }
            Ok(_) => true,
            // The names of the bindings are nobody else's.
            Err(error) => {
                let is_gone = matches!(error, ClusterError::NotFound(_));
                if is_gone {
                    attempt.leave_out(name);
                }
                failures.extend(failure(name, "label", &error));
                !is_gone
            }
        };
        let mut untried = Vec::new();
        if is_open && row.status == TenantStatus::Suspending {
            let given = self.cache.tenant(&row.name);
            let given = given.as_ref().map(|cached| cached.tenant.binding_names());
            let (names, others) = self
                .broker_bindings(&row.name, name)
                .into_iter()
                .partition::<Vec<_>, _>(|name| given.as_ref().is_none_or(|it| it.contains(name)));
            untried = others;
            let requests: FuturesUnordered<_> = names
                .into_iter()
                .map(|binding| async move {
                    let deletion = async {
                        self.revocations.count_attempt(row, name);
                        self.delete_broker_binding(name, &binding).await
                    };
                    attempt.in_flight(deletion).await
                })
                .collect();
            let results: Vec<Option<String>> = requests.collect().await;
            failures.extend(results.into_iter().flatten());
        }
        NamespaceRevocation { name: name.to_owned(), is_labelled, is_open, untried, failures }
    }

    /// Whether a namespace has RoleBindings, by two lists: another API server that does not know the
    /// label yet may accept one meanwhile.
    async fn may_have_bindings(&self, namespace: &str, attempt: &RevocationAttempt) -> bool {
        for pause in [Duration::ZERO, EMPTY_LIST_INTERVAL] {
            tokio::time::sleep(pause).await;
            let list = self.cluster.has_role_bindings(namespace);
            if attempt.in_flight(list).await.unwrap_or(true) {
                return true;
            }
        }
        false
    }

    pub(super) async fn delete_broker_binding(
        &self,
        namespace: &str,
        name: &str,
    ) -> Option<String> {
        let error = self.cluster.delete_role_binding(namespace, name, None).await.err()?;
        failure(namespace, &format!("RoleBinding {name}"), &error)
    }

    /// Labels a namespace as suspended, unless it has the label.
    pub(super) async fn label(
        &self,
        row: &TenantRow,
        name: &str,
        namespace: Option<&NamespaceRow>,
    ) -> Result<SuspendedLabel, ClusterError> {
        // Until the label is there, people write.
        if is_first_attempt(row, self.clock.now_ms()) {
            let home = (name == home_name(&row.name)).then_some(HOME);
            let labels = [
                (TENANT_LABEL, Some(row.name.as_str())),
                (HOME_LABEL, home),
                (WORKSPACE_LABEL, None),
            ];
            if self.cluster.mark_suspended_if_labelled(name, &labels).await? {
                return Ok(SuspendedLabel::Written);
            }
        }
        let live = self.cluster.namespace(name).await?;
        let is_ours = |live: &Namespace| {
            is_of(live, name, &row.name) || namespace.is_some_and(|row| is_relabelled(row, live))
        };
        let Some(live) = live.filter(is_ours) else {
            return Ok(SuspendedLabel::NotOurs);
        };
        if is_marked_suspended(&live) {
            return Ok(SuspendedLabel::WasThere);
        }
        self.cluster.mark_suspended(name, live.metadata.uid.as_deref(), true).await?;
        Ok(SuspendedLabel::Written)
    }

    /// Names of the RoleBindings that the broker makes in a namespace of a tenant or in its home. A
    /// role that the settings no longer have is left to lists.
    pub(in crate::tenant_controller) fn broker_bindings(
        &self,
        tenant: &TenantName,
        namespace: &str,
    ) -> Vec<String> {
        if namespace == home_name(tenant) {
            return vec![role_binding_name(tenant, TENANT_OWNER_ROLE)];
        }
        let roles: BTreeSet<&str> =
            self.settings.cluster_roles.iter().map(ClusterRoleName::as_str).collect();
        roles.into_iter().map(|role| role_binding_name(tenant, role)).collect()
    }

    /// Deletes all other bindings of a namespace, whoever made them: those of the broker that were not
    /// tried, and those of a list, which others can make long. Of a suspended tenant first looks whether
    /// there are any. Returns what failed in the namespace, for people.
    pub(super) async fn finish_in(
        &self,
        row: &TenantRow,
        begun: NamespaceRevocation,
        attempt: &RevocationAttempt,
    ) -> Vec<String> {
        let NamespaceRevocation { name, is_open, untried, mut failures, .. } = begun;
        let namespace = name.as_str();
        if !is_open {
            return failures;
        }
        for name in &untried {
            failures.extend(self.delete_broker_binding(namespace, name).await);
        }
        let is_deleted = async {
            if row.status == TenantStatus::Suspended
                && !self.cluster.has_role_bindings(namespace).await?
            {
                return Ok(());
            }
            let record = self.record_of_deletions(row, namespace, &attempt.recorded);
            self.cluster.delete_role_bindings_except(namespace, &BTreeSet::new(), record).await
        };
        if let Err(error) = is_deleted.await {
            failures.extend(failure(namespace, "RoleBindings", &error));
        }
        failures
    }

    /// Records the names of RoleBindings that a suspension is about to delete in a namespace, so that a
    /// resumption names those that the broker did not make. A suspended tenant is resumed only when all
    /// are deleted.
    pub(super) fn record_of_deletions(
        &self,
        row: &TenantRow,
        namespace: &str,
        recorded: &Arc<DeletionRecord>,
    ) -> impl Fn(Vec<String>) -> BoxFuture<'static, ()> + Send + Sync + use<> {
        let (tenants, id, tenant) = (self.tenants.clone(), row.id, row.name.clone());
        let (namespace, recorded) = (namespace.to_owned(), Arc::clone(recorded));
        move |mut names| {
            names.retain(|name| !is_binding_name(&tenant, name));
            if names.is_empty() {
                return future::ready(()).boxed();
            }
            let (tenants, tenant, namespace) = (tenants.clone(), tenant.clone(), namespace.clone());
            let recorded = Arc::clone(&recorded);
            async move {
                tracing::info!(
                    %tenant, namespace, bindings = names.len(),
                    "deleting other RoleBindings in a suspended tenant; a resumption does not restore them"
                );
                if !recorded.goes_on() {
                    return;
                }
                let record = tenants.record_deleted_bindings(id, &namespace, &names);
                let error = match tokio::time::timeout(RECORD_TIMEOUT, record).await {
                    Ok(Ok(true)) => return,
                    Ok(Ok(false)) => return recorded.end(),
                    Ok(Err(error)) => error_chain(&error),
                    Err(_) => format!("not done in {RECORD_TIMEOUT:?}"),
                };
                recorded.failed();
                tracing::warn!(
                    %tenant, namespace, error,
                    "the RoleBindings that a suspension deletes were not recorded"
                );
            }
            .boxed()
        }
    }
}

/// Whether a suspension was decided a moment ago. One of the future was decided by a replica with
/// another clock, and may be old.
pub(super) fn is_first_attempt(row: &TenantRow, now: i64) -> bool {
    let age = u64::try_from(now.saturating_sub(row.status_changed_at));
    row.status == TenantStatus::Suspending
        && age.is_ok_and(|age| Duration::from_millis(age) < FIRST_ATTEMPT)
}

/// The namespaces that a tenant has, in which somebody may have rights.
pub(super) fn with_rights(rows: &[NamespaceRow]) -> impl Iterator<Item = &NamespaceRow> {
    use NamespaceStatus::{Gone, Orphaned};
    rows.iter().filter(|row| !matches!(row.status, Gone | Orphaned))
}

/// Whether this is the namespace of a row with the label of another tenant. Its bindings count,
/// because only a move gives it away, and a suspended tenant gives nothing.
pub(super) fn is_relabelled(row: &NamespaceRow, live: &Namespace) -> bool {
    may_be_relabelled(row) && is_same_namespace(row, live)
}

/// Whether a namespace is the home of a tenant, or one of its namespaces. One of that name may have
/// been made by others meanwhile, or be that of a personal workspace.
pub(super) fn is_of(live: &Namespace, name: &str, tenant: &TenantName) -> bool {
    let label = |label: &str| live.metadata.labels.as_ref().and_then(|labels| labels.get(label));
    let has_home = label(HOME_LABEL).is_some_and(|value| value == HOME);
    tenant.is_tenant_of(&live.metadata)
        && label(WORKSPACE_LABEL).is_none()
        && has_home == (name == home_name(tenant))
}

/// A step that failed; `None` if the namespace does not exist any more.
pub(super) fn failure(namespace: &str, step: &str, error: &ClusterError) -> Option<String> {
    let is_gone = matches!(error, ClusterError::NotFound(_));
    (!is_gone).then(|| format!("{step} in {namespace}: {}", error_chain(error)))
}

/// A step that did not find a namespace of the tenant although a list shows it.
pub(super) fn not_found(step: &str, namespace: &str) -> String {
    format!("{step} in {namespace}: not found as a namespace of the tenant, but a list shows it")
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::{Value, json};
    use uuid::Uuid;

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

    #[test]
    fn only_namespaces_with_the_labels_of_the_tenant_are_suspended() {
        let solar = "solar".parse().unwrap();
        let is_ours = |name: &str, labels: Value| {
            let metadata = json!({"name": name, "labels": labels});
            let live = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            is_of(&live, name, &solar)
        };
        let home = json!({TENANT_LABEL: "solar", HOME_LABEL: "true"});
        assert!(is_ours("tenant-solar", home.clone()));
        assert!(is_ours("solar-a", json!({TENANT_LABEL: "solar"})));
        for (name, labels) in [
            ("solar-a", home),
            ("solar-a", json!({})),
            ("solar-a", json!({TENANT_LABEL: "lunar"})),
            ("solar-a", json!({TENANT_LABEL: "solar", WORKSPACE_LABEL: "x"})),
            ("tenant-solar", json!({TENANT_LABEL: "solar"})),
            ("tenant-solar", json!({HOME_LABEL: "true"})),
        ] {
            assert!(!is_ours(name, labels.clone()), "{name} {labels}");
        }
    }

    #[test]
    fn namespaces_with_the_label_of_another_tenant_are_suspended_too() {
        let row = |status| NamespaceRow {
            name: "solar-a".to_owned(),
            tenant_id: Uuid::nil(),
            status,
            made_by: Some(Uuid::nil()),
            created_at: 1_767_323_045_000,
            change_at: 1_767_323_045_000,
        };
        let is_ours = |status, labels: Value, created: &str| {
            let metadata = json!({"labels": labels, "creationTimestamp": created});
            let live = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            is_relabelled(&row(status), &live)
        };
        let (then, later) = ("2026-01-02T03:04:05Z", "2026-01-02T03:04:36Z");
        let (active, lunar) = (NamespaceStatus::Active, json!({TENANT_LABEL: "lunar"}));
        assert!(is_ours(active, lunar.clone(), then));
        assert!(is_ours(NamespaceStatus::OverQuota, lunar.clone(), then));
        assert!(!is_ours(active, lunar.clone(), later), "it was made again");
        assert!(!is_ours(active, json!({}), then), "an administrator let it go");
        assert!(!is_ours(active, json!({TENANT_LABEL: "lunar", WORKSPACE_LABEL: "x"}), then));
        assert!(!is_ours(NamespaceStatus::Creating, lunar.clone(), then), "it was never seen");
        assert!(!is_ours(NamespaceStatus::Gone, lunar, then));
    }

    #[test]
    fn namespaces_that_are_gone_are_left_out() {
        let rows: Vec<NamespaceRow> = NamespaceStatus::ALL
            .map(|status| NamespaceRow {
                name: format!("solar-{}", status.as_str()),
                tenant_id: Uuid::nil(),
                status,
                made_by: None,
                created_at: 0,
                change_at: 0,
            })
            .into();
        let names: Vec<&str> = with_rights(&rows).map(|row| row.name.as_str()).collect();
        let expected = ["solar-creating", "solar-active", "solar-over_quota", "solar-terminating"];
        assert_eq!(names, expected);
    }
}
