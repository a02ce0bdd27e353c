//! Moves of namespaces into tenants, as an administrator announced them.
//!
//! A move needs an announcement in the database and the labels of the new tenant on the namespace,
//! which only administrators of the cluster can write: neither the broker's credential nor a request
//! to the broker moves a namespace alone. The order keeps the rights of two tenants apart, and the
//! namespace is never without limits:
//!
//! 1. The tenant that has the namespace, under its own lease, deletes all RoleBindings and gives the
//!    row away. Its limits stay.
//! 2. The new tenant, under its lease, makes its limits, those with the same name in place. Once
//!    they are enforced and no binding from before is left, it gives rights.
//! 3. Limits of the earlier tenant that are left over are deleted last.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};
use kube::ResourceExt as _;
use tenant_shared::{TENANT_LABEL, TENANT_UID_LABEL, WORKSPACE_LABEL};

use super::{Unlabelled, has_labels_of_others, is_terminating, recorded_deletions::DeletionStage};
use crate::{
    audit::{self, Action},
    base::error_chain,
    cluster::{
        BindingsDescription, ClusterError, CustomObject, Object, grants_to_other_namespaces,
    },
    tenant::{
        MoveState, NamespaceMove, NamespaceRow, NamespaceStatus, Tenant, TenantName, TenantRow,
        TenantStatus, is_limits_name,
    },
    tenant_controller::{
        TenantController,
        error::ReconcileError,
        objects::{
            Granted,
            snapshot::{Snapshot, name_of},
            withdraw::{MAX_IN_FLIGHT, title},
        },
    },
};

/// A namespace that was created by this much after its row changed is another one of that name, in
/// milliseconds. Clocks of the API server and the broker differ.
const RECREATION_TOLERANCE_MS: i64 = 30_000;

impl TenantController {
    /// The namespaces of a tenant that exist without its label. Asks the API server about `max` of
    /// those that are not in the snapshot, other ones in each run.
    ///
    /// # Errors
    /// A request failed.
    pub(in crate::tenant_controller) async fn unlabelled(
        &self,
        row: &TenantRow,
        (rows, max): (&[NamespaceRow], usize),
        snapshot: &Snapshot,
    ) -> Result<Unlabelled, ReconcileError> {
        let present: BTreeSet<&str> = snapshot.namespaces().map(|(name, _)| name).collect();
        let mut absent: Vec<_> = rows
            .iter()
            .filter(|row| may_be_relabelled(row) && !present.contains(row.name.as_str()))
            .collect();
        let unchecked = if absent.len() > max {
            // Those with the label of another tenant stay absent, and must not keep runs from the others.
            let [.., low, last] = self.clock.random_id().into_bytes();
            let first = usize::from(u16::from_be_bytes([low, last])) % absent.len();
            absent.rotate_left(first);
            absent.split_off(max).into_iter().map(|row| row.name.clone()).collect()
        } else {
            BTreeSet::new()
        };
        let requests: Vec<_> = absent
            .into_iter()
            .map(|row| async move {
                let live = self.cluster.namespace(&row.name).await?;
                Ok(live.map(|live| (row, live)))
            })
            .collect();
        let found: Vec<Result<_, ClusterError>> =
            stream::iter(requests).buffer_unordered(MAX_IN_FLIGHT).collect().await;
        let (mut relabelled, mut released) = (BTreeMap::new(), BTreeSet::new());
        for found in found {
            let Some((row, live)) = found? else { continue };
            if is_same_namespace(row, &live) {
                relabelled.insert(row.name.clone(), live);
            } else if is_released(row, &live) {
                released.insert(row.name.clone());
            }
        }
        if !released.is_empty() {
            let namespaces = released.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            tracing::warn!(
                tenant = %row.name, namespace = namespaces,
                "namespaces of a tenant have its label no longer, so they are released"
            );
        }
        if !relabelled.is_empty() {
            let namespaces = relabelled.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            tracing::debug!(
                tenant = %row.name, namespace = namespaces,
                "namespaces of a tenant have the label of another one"
            );
        }
        Ok(Unlabelled { unchecked, relabelled, released })
    }

    /// Gives relabelled namespaces to the tenants that administrators announced. Returns what
    /// failed, for people.
    ///
    /// # Errors
    /// The database failed.
    pub(in crate::tenant_controller) async fn transfer_released(
        &self,
        row: &TenantRow,
        relabelled: &BTreeMap<String, Namespace>,
    ) -> Result<Vec<String>, ReconcileError> {
        let mut failures = Vec::new();
        // A suspended tenant keeps its namespaces, or a move would end the suspension of people.
        if row.status != TenantStatus::Active {
            return Ok(failures);
        }
        for (name, live) in relabelled {
            let announced = self.tenants.move_of(name).await?;
            let Some(announced) = announced.filter(|it| it.from_tenant == Some(row.id)) else {
                continue;
            };
            let Some(to) = self.tenants.by_id(announced.to_tenant).await? else { continue };
            if !self.may_begin(&announced, &to, live) {
                continue;
            }
            let handed_over = Box::pin(self.transfer_one(row, &announced, &to)).await;
            if let Err(failure) = handed_over {
                failures.push(format!("the move of {name} to tenant {}: {failure}", to.name));
            }
        }
        Ok(failures)
    }

    /// Gives one namespace to another tenant, if it has room for it. Returns what failed, for people.
    async fn transfer_one(
        &self,
        row: &TenantRow,
        announced: &NamespaceMove,
        to: &TenantRow,
    ) -> Result<(), String> {
        let name = &announced.namespace;
        let quota = self.quota_of(to).await?;
        let used = self.tenants.counted_namespaces(to.id).await;
        let used = used.map_err(|error| error_chain(&error))?;
        if let Some(quota) =
            quota.filter(|quota| usize::try_from(*quota).is_ok_and(|it| used >= it))
        {
            return Err(format!("exceeded namespace quota: the tenant has {used} of {quota}"));
        }
        let is_announced = self.is_still_announced(announced, to).await;
        if !is_announced.map_err(|error| error_chain(&error))? {
            return Ok(());
        }
        let described = self.cluster.describe_bindings(name, |_| true).await;
        let (found, _) = described.map_err(|error| error_chain(&error))?;
        let text = format!(
            "tenant {}: namespace {name} (uid {}) is about to go to tenant {}; RoleBindings that \
             will be deleted: {found}",
            row.name, announced.namespace_uid, to.name,
        );
        let recorded = self.record_deletion(announced, DeletionStage::Planned, &found, text).await;
        recorded.map_err(|error| error_chain(&error))?;
        let mut deleted = BindingsDescription::default();
        let all = self.cluster.delete_role_bindings_where(name, |_| true, &mut deleted).await;
        let begun = match all {
            Ok(()) => self.begin_move(announced, (Some(row), to), quota, &deleted).await,
            Err(error) => Err(error.into()),
        };
        if !matches!(begun, Ok(true)) {
            let text = format!(
                "tenant {}: namespace {name} (uid {}) did not go to tenant {} yet; RoleBindings \
                 deleted: {deleted}",
                row.name, announced.namespace_uid, to.name,
            );
            self.record_deleted(announced, &deleted, text).await;
        }
        begun.map(drop).map_err(|error| error_chain(&error))
    }

    /// The namespace quota of a tenant, as its Tenant says now.
    async fn quota_of(&self, tenant: &TenantRow) -> Result<Option<u32>, String> {
        let found = self.cluster.get_custom(&tenant.group.resource(), tenant.name.as_str()).await;
        match found.map_err(|error| error_chain(&error))? {
            CustomObject::Found(object) if tenant.is_row_of(&object.metadata) => {
                Tenant::parse(tenant.name.as_str(), &object.data["spec"])
                    .map(|tenant| tenant.namespace_options.quota)
                    .map_err(|_| "the Tenant breaks rules of its definition".to_owned())
            }
            _ => Err("the Tenant cannot be read".to_owned()),
        }
    }

    /// Whether a move may still begin, with the namespace and the announcement read again.
    async fn is_still_announced(
        &self,
        announced: &NamespaceMove,
        to: &TenantRow,
    ) -> Result<bool, ReconcileError> {
        let live = self.cluster.namespace(&announced.namespace).await?;
        let may_begin = live.is_some_and(|live| self.may_begin(announced, to, &live));
        let now = self.tenants.move_of(&announced.namespace).await?;
        Ok(may_begin && now.as_ref() == Some(announced))
    }

    /// Takes the row of a namespace that no open tenant has. Returns the move if it has begun.
    ///
    /// # Errors
    /// The database failed.
    pub(in crate::tenant_controller) async fn adopt_incoming(
        &self,
        (row, tenant): (&TenantRow, &Tenant),
        announced: &NamespaceMove,
        live: &Namespace,
    ) -> Result<Option<NamespaceMove>, ReconcileError> {
        if !self.may_begin(announced, row, live) {
            return Ok(None);
        }
        let former = match announced.from_tenant {
            Some(former) => self.tenants.by_id(former).await?,
            None => None,
        };
        // An open one gives the namespace away itself, after its rights have ended.
        if former.as_ref().is_some_and(|former| former.status != TenantStatus::Closed) {
            return Ok(None);
        }
        let (tenants, quota) = ((former.as_ref(), row), tenant.namespace_options.quota);
        let none = BindingsDescription::default();
        let has_begun = self.begin_move(announced, tenants, quota, &none).await?;
        Ok(has_begun.then(|| NamespaceMove { state: MoveState::Received, ..announced.clone() }))
    }

    /// Whether an administrator labelled the namespace for this announcement.
    fn may_begin(&self, announced: &NamespaceMove, to: &TenantRow, live: &Namespace) -> bool {
        announced.state == MoveState::Announced
            && announced.to_tenant == to.id
            && announced.expires_at > self.clock.now_ms()
            && to.status == TenantStatus::Active
            && is_confirmed(announced, to, live)
            // A Tenant may name its accounts since the plan was made.
            && self.cache.check_accounts(&to.name, &announced.namespace).is_ok()
    }

    /// Gives the row away. Returns false if the namespace, the announcement or a tenant changed
    /// meanwhile, or if the new tenant has no room.
    async fn begin_move(
        &self,
        announced: &NamespaceMove,
        (from, to): (Option<&TenantRow>, &TenantRow),
        quota: Option<u32>,
        deleted: &BindingsDescription,
    ) -> Result<bool, ReconcileError> {
        if !self.is_still_announced(announced, to).await? {
            return Ok(false);
        }
        let events = moved_events(announced, from, to, deleted);
        if let Err(refusal) = self.tenants.receive_namespace(announced, quota, events).await? {
            tracing::warn!(
                tenant = %to.name, namespace = announced.namespace, error = %refusal,
                "an announced move of a namespace was not carried out"
            );
            return Ok(false);
        }
        tracing::info!(
            tenant = %to.name,
            namespace = announced.namespace,
            from_tenant = from.map(|from| from.name.to_string()),
            "namespace moved to another tenant"
        );
        self.metrics.action(Action::NamespaceMoved.as_str(), "success");
        self.queue.add(to.name.clone());
        Ok(true)
    }

    /// The moves into a tenant that have begun. Those of namespaces that are gone are ended.
    ///
    /// # Errors
    /// A request failed.
    pub(in crate::tenant_controller) async fn incoming_moves(
        &self,
        moves: &BTreeMap<String, NamespaceMove>,
        snapshot: &Snapshot,
    ) -> Result<BTreeMap<String, NamespaceMove>, ReconcileError> {
        let live: BTreeMap<&str, &Namespace> = snapshot.namespaces().collect();
        let mut incoming = BTreeMap::new();
        let begun = moves.iter().filter(|(_, it)| it.state != MoveState::Announced);
        for (name, begun) in begun {
            let is_it = |live: &Namespace| live.metadata.uid.as_ref() == Some(&begun.namespace_uid);
            if live.get(name.as_str()).is_some_and(|live| is_it(live)) {
                incoming.insert(name.clone(), begun.clone());
            } else if !self.cluster.namespace(name).await?.is_some_and(|live| is_it(&live)) {
                self.tenants.finish_move(begun).await?;
            }
        }
        Ok(incoming)
    }

    /// Deletes the bindings from before, once the limits of the new tenant hold. Nobody has rights
    /// of the new tenant until then.
    pub(in crate::tenant_controller) async fn delete_earlier_bindings(
        &self,
        received: &NamespaceMove,
        desired: &[Object],
        granted: &mut Granted,
    ) {
        let namespace = &received.namespace;
        let quotas: BTreeSet<&str> = desired
            .iter()
            .filter(|object| matches!(object, Object::ResourceQuota(_)))
            .map(name_of)
            .collect();
        match self.cluster.are_quotas_enforced(namespace, &quotas).await {
            Ok(true) => {}
            Ok(false) => {
                granted.waits = true;
                return;
            }
            Err(error) => return granted.failures.push(failure(namespace, &error)),
        }
        // Pods of an earlier tenant go on, and would keep what their accounts may do.
        let was_tenants = received.from_tenant.is_some();
        let is_to_be_deleted =
            |binding: &RoleBinding| was_tenants || grants_to_other_namespaces(binding);
        let found = match self.cluster.describe_bindings(namespace, is_to_be_deleted).await {
            Ok((found, _)) => found,
            Err(error) => return granted.failures.push(failure(namespace, &error)),
        };
        let text = format!(
            "namespace {namespace}: RoleBindings from before that will be deleted: {found}"
        );
        let recorded = self.record_deletion(received, DeletionStage::Planned, &found, text).await;
        if let Err(error) = recorded {
            return granted
                .failures
                .push(format!("the move of {namespace}: {}", error_chain(&error)));
        }
        let mut deleted = BindingsDescription::default();
        let all = self
            .cluster
            .delete_role_bindings_where(namespace, is_to_be_deleted, &mut deleted)
            .await;
        let text = format!("namespace {namespace}: RoleBindings from before deleted: {deleted}");
        if let Err(error) = all {
            self.record_deleted(received, &deleted, text).await;
            return granted.failures.push(failure(namespace, &error));
        }
        let event = (!deleted.is_empty()).then(|| audit::Event {
            user_id: Some(received.requested_by),
            reason: Some(text),
            ..audit::Event::success(Action::NamespaceMoved)
        });
        if let Err(error) = self.tenants.record_cleared(received, event).await {
            granted.failures.push(format!("the move of {namespace}: {}", error_chain(&error)));
        }
    }

    /// Deletes what is left of the limits from before, and ends the move.
    ///
    /// # Errors
    /// A request failed.
    pub(in crate::tenant_controller) async fn end_move(
        &self,
        tenant: &TenantName,
        complete: &NamespaceMove,
    ) -> Result<(), ReconcileError> {
        let namespace = &complete.namespace;
        let left = self
            .cluster
            .limits_of_other_tenants(namespace, tenant.as_str(), is_limits_name)
            .await?;
        for object in &left {
            tracing::info!(
                tenant = %tenant, object = title(object),
                "limits of the tenant that had a namespace deleted"
            );
            self.cluster.delete_object(object).await?;
        }
        self.tenants.finish_move(complete).await?;
        Ok(())
    }
}

/// Whether the namespace of a row may exist with the label of another tenant. The broker makes one
/// whose creation was not finished.
pub(in crate::tenant_controller) fn may_be_relabelled(row: &NamespaceRow) -> bool {
    use NamespaceStatus::{Active, Creating, OverQuota, Terminating};
    match row.status {
        Creating => row.made_by.is_none() || row.was_seen(),
        Active | OverQuota | Terminating => true,
        NamespaceStatus::Gone | NamespaceStatus::Orphaned => false,
    }
}

/// Whether a namespace without the label of its tenant is that of the row. Without the label of any
/// tenant it was released, and one that is much newer than the row was made again.
pub(in crate::tenant_controller) fn is_same_namespace(
    row: &NamespaceRow,
    live: &Namespace,
) -> bool {
    let labels = live.labels();
    labels.contains_key(TENANT_LABEL)
        && !labels.contains_key(WORKSPACE_LABEL)
        && is_of_row(row, live)
}

/// Whether a namespace is that of a row, and somebody removed the label of its tenant.
fn is_released(row: &NamespaceRow, live: &Namespace) -> bool {
    let labels = live.labels();
    let is_managed = labels.contains_key(TENANT_LABEL) || labels.contains_key(WORKSPACE_LABEL);
    !is_managed && !is_terminating(live) && is_of_row(row, live)
}

/// Whether a namespace was made before its row changed last, so is not another one of the name. A
/// namespace never leaves the phase `Terminating`, so one in another phase was made after it.
fn is_of_row(row: &NamespaceRow, live: &Namespace) -> bool {
    if row.status == NamespaceStatus::Terminating && !is_terminating(live) {
        return false;
    }
    let created = live.metadata.creation_timestamp.as_ref();
    let created = created.map_or(0, |created| created.0.as_millisecond());
    created <= row.change_at.saturating_add(RECREATION_TOLERANCE_MS)
}

/// Whether the namespace is the announced one, and has the labels of the new tenant.
fn is_confirmed(announced: &NamespaceMove, to: &TenantRow, live: &Namespace) -> bool {
    live.metadata.uid.as_ref() == Some(&announced.namespace_uid)
        && live.metadata.deletion_timestamp.is_none()
        && !has_labels_of_others(Some(live))
        && to.name.is_tenant_of(&live.metadata)
        && live.labels().get(TENANT_UID_LABEL) == Some(&to.object_uid)
}

fn failure(namespace: &str, error: &ClusterError) -> String {
    format!("bindings from before in {namespace}: {}", error_chain(error))
}

/// The audit rows of a move: one for each tenant.
fn moved_events(
    moved: &NamespaceMove,
    from: Option<&TenantRow>,
    to: &TenantRow,
    deleted: &BindingsDescription,
) -> Vec<audit::Event> {
    let event = |reason: String| audit::Event {
        user_id: Some(moved.requested_by),
        reason: Some(reason),
        ..audit::Event::success(Action::NamespaceMoved)
    };
    let (namespace, uid, to) = (&moved.namespace, &moved.namespace_uid, &to.name);
    let was = from.map_or_else(|| "no tenant".to_owned(), |from| format!("tenant {}", from.name));
    let mut events =
        vec![event(format!("tenant {to}: namespace {namespace} (uid {uid}) received from {was}"))];
    if let Some(from) = from {
        events.push(event(format!(
            "tenant {}: namespace {namespace} (uid {uid}) went to tenant {to}; RoleBindings \
             deleted: {deleted}",
            from.name,
        )));
    }
    events
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::tenant_controller::testing::announced_move;

    fn namespace(metadata: &Value) -> Namespace {
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn lunar() -> TenantRow {
        let row = TenantRow::for_tests("lunar", TenantStatus::Active);
        TenantRow { object_uid: "t-1".to_owned(), ..row }
    }

    #[test]
    fn both_labels_and_the_uid_of_the_namespace_confirm_a_move() {
        let labels = json!({TENANT_LABEL: "lunar", TENANT_UID_LABEL: "t-1"});
        let confirmed =
            |metadata: Value| is_confirmed(&announced_move(), &lunar(), &namespace(&metadata));
        assert!(confirmed(json!({"uid": "n-1", "labels": labels})));
        for metadata in [
            json!({"uid": "n-2", "labels": labels}),
            json!({"uid": "n-1", "labels": {TENANT_LABEL: "lunar"}}),
            json!({"uid": "n-1", "labels": {TENANT_LABEL: "lunar", TENANT_UID_LABEL: "t-2"}}),
            json!({"uid": "n-1", "labels": {TENANT_LABEL: "solar", TENANT_UID_LABEL: "t-1"}}),
            json!({"uid": "n-1", "labels": labels, "deletionTimestamp": "2026-01-02T03:04:05Z"}),
            json!({"uid": "n-1", "labels": {
                TENANT_LABEL: "lunar", TENANT_UID_LABEL: "t-1", WORKSPACE_LABEL: "x",
            }}),
        ] {
            assert!(!confirmed(metadata.clone()), "{metadata}");
        }
    }

    #[test]
    fn a_namespace_with_the_label_of_another_tenant_stays_in_its_row() {
        let row = NamespaceRow {
            name: "solar-a".to_owned(),
            tenant_id: Uuid::nil(),
            status: NamespaceStatus::Active,
            made_by: None,
            created_at: 1_767_323_045_000,
            change_at: 1_767_323_045_000,
        };
        let is_same = |labels: Value, created: &str| {
            let live = namespace(&json!({"labels": labels, "creationTimestamp": created}));
            is_same_namespace(&row, &live)
        };
        let lunar = json!({TENANT_LABEL: "lunar"});
        let (then, later) = ("2026-01-02T03:04:05Z", "2026-01-02T03:04:36Z");
        assert!(is_same(lunar.clone(), then));
        assert!(!is_same(lunar, later), "it was deleted and made again");
        assert!(!is_same(json!({}), then), "an administrator let it go");
        let released = |labels: Value, created: &str| {
            is_released(&row, &namespace(&json!({"labels": labels, "creationTimestamp": created})))
        };
        assert!(released(json!({"a": "b"}), then));
        assert!(!released(json!({"a": "b"}), later), "it was deleted and made again");
        for label in [TENANT_LABEL, WORKSPACE_LABEL] {
            assert!(!released(json!({label: "lunar"}), then), "{label}");
        }
        assert!(!is_same(json!({TENANT_LABEL: "lunar", WORKSPACE_LABEL: "x"}), then));
    }

    /// Otherwise who takes the name at once would keep the place in the quota of the former tenant.
    #[test]
    fn a_namespace_that_takes_the_name_of_a_deleted_one_is_not_that_of_the_row() {
        let row = NamespaceRow {
            name: "solar-a".to_owned(),
            tenant_id: Uuid::nil(),
            status: NamespaceStatus::Terminating,
            made_by: None,
            created_at: 1_767_323_045_000,
            change_at: 1_767_323_045_000,
        };
        let created = "2026-01-02T03:04:05Z";
        let labels = json!({TENANT_LABEL: "lunar"});
        let live = json!({"labels": labels, "creationTimestamp": created});
        assert!(!is_same_namespace(&row, &namespace(&live)));
        assert!(!is_released(&row, &namespace(&json!({"creationTimestamp": created}))));
        let mut terminating = namespace(&live);
        let deleted: Namespace =
            serde_json::from_value(json!({"metadata": {"deletionTimestamp": created}})).unwrap();
        terminating.metadata.deletion_timestamp = deleted.metadata.deletion_timestamp;
        assert!(is_same_namespace(&row, &terminating));
    }

    #[test]
    fn audit_rows_name_both_tenants_and_the_subjects() {
        let solar = TenantRow { name: "solar".parse().unwrap(), ..lunar() };
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": "own"},
            "roleRef": {"apiGroup": "", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "bob"}],
        }))
        .unwrap();
        let deleted = BindingsDescription::of([&binding]);
        let events = moved_events(&announced_move(), Some(&solar), &lunar(), &deleted);
        let reasons: Vec<&str> = events.iter().filter_map(|it| it.reason.as_deref()).collect();
        assert_eq!(
            reasons,
            [
                "tenant lunar: namespace solar-a (uid n-1) received from tenant solar",
                "tenant solar: namespace solar-a (uid n-1) went to tenant lunar; RoleBindings \
                 deleted: \"own\" (ClusterRole \"view\": User \"bob\")",
            ]
        );
    }
}
