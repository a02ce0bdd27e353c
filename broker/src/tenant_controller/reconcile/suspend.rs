//! Suspension and resumption of a tenant in the cluster. The decision is in the row.
//!
//! A suspension needs the row and those of the namespaces only: neither the object, nor lists of what
//! others made, nor for the revocation the lease, because each step is idempotent. A replica that
//! has the lease records the end.
//!
//! The label of a namespace ends writes, and the deletion of its bindings ends reads, so both belong
//! together; bindings that owners made come after all namespaces, because they are of
//! ServiceAccounts that no member can use any more. Each step is tried whatever becomes of the
//! others.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::{
    StreamExt as _,
    stream::{self, FuturesUnordered},
};
use k8s_openapi::api::core::v1::Namespace;
use tenant_shared::{HOME_LABEL, TENANT_LABEL, TENANT_OWNER_ROLE, WORKSPACE_LABEL};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::{
    base::error_chain,
    cluster::{ClusterError, EMPTY_LIST_INTERVAL, is_marked_suspended},
    tenant::{
        ClusterRoleName, NamespaceRow, NamespaceStatus, TenantName, TenantRow, TenantStatus,
        home_name, role_binding_name,
    },
    tenant_controller::{
        TenantController,
        error::ReconcileError,
        namespaces::moves::{is_same_namespace, may_be_relabelled},
        objects::{snapshot::Snapshot, withdraw::MAX_IN_FLIGHT},
        queue::Run,
    },
};

/// Interval at which a run looks whether the tenant was suspended or resumed meanwhile.
const STATUS_INTERVAL: Duration = Duration::from_millis(200);

/// Namespaces whose bindings are deleted concurrently. Most of that time is the pause between two
/// lists that have to be empty.
const MAX_WAITING: usize = 32;

/// How long after its decision most namespaces of a suspension have no label yet. Later attempts first
/// look what is done, so that each of them goes on where the time of the last one was over.
const FIRST_ATTEMPT: Duration = Duration::from_secs(10);

/// Value of [`HOME_LABEL`].
const HOME: &str = "true";

/// A suspension that a run has enforced.
#[derive(Debug)]
pub(in crate::tenant_controller) struct Enforced {
    /// The tenant.
    pub(in crate::tenant_controller) tenant: Uuid,
    /// Whether the lease was held. Without it the rights are revoked, and that is not recorded.
    pub(in crate::tenant_controller) held_lease: bool,
    /// Texts of failures.
    pub(in crate::tenant_controller) failures: Vec<String>,
}

impl Enforced {
    /// The result of a run that ends after this one.
    pub(in crate::tenant_controller) fn end(&self, otherwise: Run) -> Run {
        if self.failures.is_empty() { otherwise } else { Run::Failed }
    }
}

/// The label of a suspended namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SuspendedLabel {
    Written,
    WasThere,
    /// The namespace does not exist, or is not the tenant's.
    NotOurs,
}

/// A namespace in which a suspension has begun.
#[derive(Debug)]
struct NamespaceRevocation {
    name: String,
    /// Whether there may be bindings.
    is_open: bool,
    /// Names of the broker's bindings that were not tried, because the Tenant does not give their roles.
    untried: Vec<String>,
    failures: Vec<String>,
}

/// Whether nobody may have rights in a tenant of this status.
pub(in crate::tenant_controller) fn is_suspension(status: TenantStatus) -> bool {
    matches!(status, TenantStatus::Suspending | TenantStatus::Suspended)
}

impl TenantController {
    /// Revokes all rights in the tenant of a name, if it is being suspended or is suspended; `None`
    /// if it is not. If another replica has the lease, that one may be dead or busy, so the rights
    /// are revoked without it.
    ///
    /// # Errors
    /// The database failed.
    pub(in crate::tenant_controller) async fn enforce(
        &self,
        name: &TenantName,
    ) -> Result<Option<Enforced>, ReconcileError> {
        let suspended = |row: &TenantRow| is_suspension(row.status);
        let Some(row) = self.tenants.by_name(name).await?.filter(suspended) else {
            return Ok(None);
        };
        let Some(lease) = self.lease(&row).await? else {
            let failures = Box::pin(self.revoke_without_lease(&row)).await?;
            return Ok(Some(Enforced { tenant: row.id, held_lease: false, failures }));
        };
        let result = Box::pin(self.enforce_with_lease(row.id)).await;
        self.release(lease).await;
        result
    }

    async fn enforce_with_lease(&self, id: Uuid) -> Result<Option<Enforced>, ReconcileError> {
        // Read again, because another replica may have changed it before the lease was held.
        let suspended = |row: &TenantRow| is_suspension(row.status);
        let Some(mut row) = self.tenants.by_id(id).await?.filter(suspended) else {
            return Ok(None);
        };
        let failures = Box::pin(self.revoke_rights(&row)).await;
        if failures.is_empty() {
            let (from, to) = (TenantStatus::Suspending, TenantStatus::Suspended);
            self.advance(&mut row, from, to).await?;
        }
        Ok(Some(Enforced { tenant: row.id, held_lease: true, failures }))
    }

    /// Revokes the rights unless the suspension was recorded as done. Ends when it is, because the
    /// tenant may be resumed from then on.
    async fn revoke_without_lease(&self, row: &TenantRow) -> Result<Vec<String>, ReconcileError> {
        if row.status != TenantStatus::Suspending {
            return Ok(Vec::new());
        }
        tokio::select! {
            failures = Box::pin(self.revoke_rights(row)) => Ok(failures),
            () = self.wait_until_status(&row.name, |status| status != TenantStatus::Suspending) => {
                Ok(Vec::new())
            }
        }
    }

    /// Waits until the status of an open tenant satisfies a condition. While the database fails, the
    /// status counts as unchanged.
    pub(in crate::tenant_controller) async fn wait_until_status(
        &self,
        name: &TenantName,
        holds: fn(TenantStatus) -> bool,
    ) {
        loop {
            tokio::time::sleep(STATUS_INTERVAL).await;
            if let Ok(Some(row)) = self.tenants.by_name(name).await
                && holds(row.status)
            {
                return;
            }
        }
    }

    /// Sets the status of a row whose suspension or resumption is complete. Does nothing if it has
    /// another status than `from`.
    ///
    /// # Errors
    /// The database failed.
    pub(in crate::tenant_controller) async fn advance(
        &self,
        row: &mut TenantRow,
        from: TenantStatus,
        to: TenantStatus,
    ) -> Result<(), ReconcileError> {
        if row.status == from && self.tenants.advance(row.id, from, to).await? {
            tracing::info!(
                tenant = %row.name, was = from.as_str(), status = to.as_str(),
                "status of a tenant changed"
            );
            row.status = to;
        }
        Ok(())
    }

    /// Revokes all rights in a tenant that is being suspended, or that has regained some. Home and
    /// members need no rows of namespaces, so they wait for none. Namespaces beyond the quota come
    /// last, because there may be any number of them, and nobody has a right in them that the broker
    /// gave. Returns what failed, for people.
    async fn revoke_rights(&self, row: &TenantRow) -> Vec<String> {
        let home = home_name(&row.name);
        let members = self.begin_in_home(row, &home);
        let namespaces = self.begin_in_namespaces(row);
        let ((begun, failure), namespaces) = tokio::join!(Box::pin(members), Box::pin(namespaces));
        let mut failures: Vec<String> = failure.into_iter().collect();
        let (rows, mut all) = namespaces.unwrap_or_else(|error| {
            failures.push(format!("namespaces of the tenant: {}", error_chain(&error)));
            (Vec::new(), Vec::new())
        });
        all.push(begun);
        let mut open = Vec::new();
        for mut begun in all {
            failures.append(&mut begun.failures);
            open.extend(begun.is_open.then_some(begun));
        }
        let requests: Vec<_> =
            open.iter().map(|begun| self.delete_all_bindings(row, begun)).collect();
        let results: Vec<Vec<String>> =
            stream::iter(requests).buffer_unordered(MAX_WAITING).collect().await;
        failures.extend(results.into_iter().flatten());
        let requests: Vec<_> = with_rights(&rows)
            .filter(|namespace| !namespace.status.counts())
            .map(|namespace| self.suspend_over_quota(row, namespace))
            .collect();
        let results: Vec<Vec<String>> =
            stream::iter(requests).buffer_unordered(MAX_WAITING).collect().await;
        failures.extend(results.into_iter().flatten());
        for failure in &failures {
            tracing::error!(
                tenant = %row.name, error = failure, "a step of a tenant's suspension is open"
            );
        }
        failures
    }

    /// Begins in all namespaces that are counted. Their labels are written before the first binding is
    /// deleted, because a label ends all writes in a namespace. Permits are given in the order in which
    /// they are asked for, so one namespace that takes long delays no other. Returns the rows as well.
    async fn begin_in_namespaces(
        &self,
        row: &TenantRow,
    ) -> sqlx::Result<(Vec<NamespaceRow>, Vec<NamespaceRevocation>)> {
        let rows = self.tenants.namespaces(row.id).await?;
        let permits = Semaphore::new(MAX_IN_FLIGHT);
        let requests: FuturesUnordered<_> = with_rights(&rows)
            .filter(|namespace| namespace.status.counts())
            .map(|namespace| self.begin_in(row, &namespace.name, Some(namespace), &permits))
            .collect();
        let begun = requests.collect().await;
        Ok((rows, begun))
    }

    /// Labels a namespace beyond the quota, and deletes its bindings. An earlier attempt may have
    /// done so in many of them, so one that has the label and no binding costs two reads.
    async fn suspend_over_quota(&self, row: &TenantRow, namespace: &NamespaceRow) -> Vec<String> {
        let name = &namespace.name;
        let is_done = async {
            let live = self.cluster.namespace(name).await?;
            let is_marked = live.as_ref().is_some_and(is_marked_suspended);
            Ok::<_, ClusterError>(is_marked && !self.cluster.has_role_bindings(name).await?)
        };
        if is_done.await.is_ok_and(|is_done| is_done) {
            return Vec::new();
        }
        let permits = Semaphore::new(MAX_IN_FLIGHT);
        let begun = self.begin_in(row, name, Some(namespace), &permits).await;
        let others =
            if begun.is_open { self.delete_all_bindings(row, &begun).await } else { Vec::new() };
        begun.failures.into_iter().chain(others).collect()
    }

    /// The home has its label before the members lose their ServiceAccounts, so that nobody gets
    /// another one.
    async fn begin_in_home(
        &self,
        row: &TenantRow,
        home: &str,
    ) -> (NamespaceRevocation, Option<String>) {
        let begun = self.begin_in(row, home, None, &Semaphore::new(MAX_IN_FLIGHT)).await;
        (begun, Box::pin(self.revoke_members(row)).await)
    }

    /// Labels a namespace, and deletes the bindings that the broker makes in it, by their names. Those
    /// whose roles the Tenant does not give, as far as this process knows it, most likely do not exist and
    /// are left for later. Each request needs a permit.
    async fn begin_in(
        &self,
        row: &TenantRow,
        name: &str,
        namespace: Option<&NamespaceRow>,
        permits: &Semaphore,
    ) -> NamespaceRevocation {
        let mut failures = Vec::new();
        let permit = permits.acquire().await;
        let labelled = self.label(row, name, namespace).await;
        drop(permit);
        let is_open = match labelled {
            Ok(SuspendedLabel::NotOurs) => false,
            Ok(SuspendedLabel::WasThere) if row.status == TenantStatus::Suspending => {
                self.may_have_bindings(name, permits).await
            }
            Ok(_) => true,
            // The names of the bindings are nobody else's.
            Err(error) => {
                failures.extend(failure(name, "label", &error));
                !matches!(error, ClusterError::NotFound(_))
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
                    let _permit = permits.acquire().await;
                    self.delete_broker_binding(name, &binding).await
                })
                .collect();
            let results: Vec<Option<String>> = requests.collect().await;
            failures.extend(results.into_iter().flatten());
        }
        NamespaceRevocation { name: name.to_owned(), is_open, untried, failures }
    }

    /// Whether a namespace has RoleBindings, by two lists: another API server that does not know the
    /// label yet may accept one meanwhile.
    async fn may_have_bindings(&self, namespace: &str, permits: &Semaphore) -> bool {
        for pause in [Duration::ZERO, EMPTY_LIST_INTERVAL] {
            tokio::time::sleep(pause).await;
            let _permit = permits.acquire().await;
            if self.cluster.has_role_bindings(namespace).await.unwrap_or(true) {
                return true;
            }
        }
        false
    }

    async fn delete_broker_binding(&self, namespace: &str, name: &str) -> Option<String> {
        let error = self.cluster.delete_role_binding(namespace, name, None).await.err()?;
        failure(namespace, &format!("RoleBinding {name}"), &error)
    }

    /// Labels a namespace as suspended, unless it has the label.
    async fn label(
        &self,
        row: &TenantRow,
        name: &str,
        namespace: Option<&NamespaceRow>,
    ) -> Result<SuspendedLabel, ClusterError> {
        // Until the label is there, people write.
        if row.status == TenantStatus::Suspending && is_first_attempt(row, self.clock.now_ms()) {
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

    async fn revoke_members(&self, row: &TenantRow) -> Option<String> {
        if row.status != TenantStatus::Suspending {
            return None;
        }
        // A ServiceAccount that a slow provisioning makes is deleted by the next attempt.
        let revoked = Box::pin(self.workspaces.revoke_tokens_of_members(row.id)).await;
        revoked.err().map(|error| format!("ServiceAccounts of members: {}", error_chain(&error)))
    }

    /// Deletes all bindings of a namespace, whoever made them: those of the broker that were not tried,
    /// and those of a list, which others can make long. Of a suspended tenant first looks whether there
    /// are any. Returns what failed, for people.
    async fn delete_all_bindings(
        &self,
        row: &TenantRow,
        begun: &NamespaceRevocation,
    ) -> Vec<String> {
        let (namespace, mut failures) = (begun.name.as_str(), Vec::new());
        for name in &begun.untried {
            failures.extend(self.delete_broker_binding(namespace, name).await);
        }
        let deleted = async {
            if row.status == TenantStatus::Suspended
                && !self.cluster.has_role_bindings(namespace).await?
            {
                return Ok(0);
            }
            self.cluster.delete_role_bindings(namespace).await
        };
        match deleted.await {
            Ok(0) => {}
            Ok(bindings) => tracing::info!(
                tenant = %row.name,
                namespace,
                bindings,
                "other RoleBindings in a suspended tenant deleted; a resumption does not restore them"
            ),
            Err(error) => failures.extend(failure(namespace, "RoleBindings", &error)),
        }
        failures
    }

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
        let ours: BTreeMap<&str, &NamespaceRow> =
            with_rights(rows).map(|row| (row.name.as_str(), row)).collect();
        let is_ours = |name: &str, live: &Namespace| {
            let of_row = ours.get(name);
            (of_row.is_some() || name == home) && is_of(live, name, &row.name)
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

/// Whether a suspension was decided a moment ago. One of the future was decided by a replica with
/// another clock, and may be old.
fn is_first_attempt(row: &TenantRow, now: i64) -> bool {
    let age = u64::try_from(now.saturating_sub(row.status_changed_at));
    age.is_ok_and(|age| Duration::from_millis(age) < FIRST_ATTEMPT)
}

/// The namespaces that a tenant has, in which somebody may have rights.
fn with_rights(rows: &[NamespaceRow]) -> impl Iterator<Item = &NamespaceRow> {
    use NamespaceStatus::{Gone, Orphaned};
    rows.iter().filter(|row| !matches!(row.status, Gone | Orphaned))
}

/// Whether this is the namespace of a row with the label of another tenant. Its bindings count,
/// because only a move gives it away, and a suspended tenant gives nothing.
fn is_relabelled(row: &NamespaceRow, live: &Namespace) -> bool {
    may_be_relabelled(row) && is_same_namespace(row, live)
}

/// Whether a namespace is the home of a tenant, or one of its namespaces. One of that name may have
/// been made by others meanwhile, or be that of a personal workspace.
fn is_of(live: &Namespace, name: &str, tenant: &TenantName) -> bool {
    let label = |label: &str| live.metadata.labels.as_ref().and_then(|labels| labels.get(label));
    let has_home = label(HOME_LABEL).is_some_and(|value| value == HOME);
    tenant.is_tenant_of(&live.metadata)
        && label(WORKSPACE_LABEL).is_none()
        && has_home == (name == home_name(tenant))
}

/// A step that failed; `None` if the namespace does not exist any more.
fn failure(namespace: &str, step: &str, error: &ClusterError) -> Option<String> {
    let is_gone = matches!(error, ClusterError::NotFound(_));
    (!is_gone).then(|| format!("{step} in {namespace}: {}", error_chain(error)))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::{Value, json};

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

    #[test]
    fn an_open_step_makes_the_run_a_failed_one() {
        let enforced = |failures| Enforced { tenant: Uuid::nil(), held_lease: true, failures };
        assert_eq!(enforced(Vec::new()).end(Run::Done), Run::Done);
        assert_eq!(enforced(vec!["label in solar-a".to_owned()]).end(Run::Done), Run::Failed);
    }
}
