//! Remains of tenants that are gone, which no run on a tenant finds: rows, memberships, and
//! bindings in namespaces with the label of a tenant that does not exist.
//!
//! The broker leaves such a binding only where it was stopped at the wrong moment. A thief of its
//! credential could make others.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};
use kube::api::ObjectMeta;
use tenant_shared::{FORMER_TENANT_LABEL, TENANT_LABEL, WORKSPACE_LABEL};

use super::identify::NamedObjects;
use crate::{
    base::{clock::ticks, error_chain, lease::acquire_lease},
    cluster::{DefinitionState, Object},
    tenant::{ApiGroup, Orphan, TenantName, TenantStatus},
    tenant_controller::{
        TenantController,
        error::ReconcileError,
        objects::withdraw::{Withdrawal, is_binding_of, title},
    },
};

/// Name of the lease that one replica holds during a round and until the next one.
const LEASE_NAME: &str = "tenants/cleanup";
/// TTL of the lease, in addition to the interval between rounds.
const LEASE_TTL: Duration = Duration::from_mins(1);
/// Age from which the row of an orphaned namespace is compared with the cluster: a request that was
/// in flight when the tenant was closed may create the namespace until then. Longer than
/// [`crate::tenant_controller::IN_FLIGHT_TIMEOUT`], because clocks of replicas differ.
const ORPHAN_GRACE_MS: i64 = 30_000;
/// Bindings that a round deletes at most. The next one deletes others.
const MAX_LEFTOVERS: usize = 1_000;

/// A namespace with the label of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LabelledNamespace {
    /// Whether it has the label of the tenant that it belonged to.
    is_marked_kept: bool,
    /// Whether it is also labelled as that of a personal workspace.
    is_workspace: bool,
    /// In milliseconds since 1970.
    created_at: i64,
}

/// The namespaces with the label of a tenant, by name.
type LabelledNamespaces = BTreeMap<String, LabelledNamespace>;

impl TenantController {
    /// Cleans up at the interval at which all tenants are reconciled, one replica at a time.
    pub(in crate::tenant_controller) async fn cleanup_loop(self: Arc<Self>) {
        let mut ticks = ticks(self.resync_interval);
        let ttl = self.resync_interval.saturating_add(LEASE_TTL).as_millis();
        let ttl = i64::try_from(ttl).unwrap_or(i64::MAX / 2);
        loop {
            ticks.tick().await;
            let (db, clock) = (&self.db, &self.clock);
            match acquire_lease(db, clock, LEASE_NAME, self.replica, ttl).await {
                Ok(true) => Box::pin(self.clean_up()).await,
                Ok(false) => {}
                Err(error) => log_failure("lease", &error.into()),
            }
        }
    }

    /// Does each step, whatever becomes of the others.
    async fn clean_up(&self) {
        if let Err(error) = self.tenants.purge().await {
            log_failure("rows of namespaces that are gone", &error.into());
        }
        if let Err(error) = self.tenants.purge_moves().await {
            log_failure("announcements of moves", &error.into());
        }
        if let Err(error) = Box::pin(self.end_memberships_of_closed()).await {
            log_failure("memberships in closed tenants", &error);
        }
        if let Err(error) = Box::pin(self.clean_up_namespaces()).await {
            log_failure("namespaces and bindings", &error);
        }
    }

    /// Ends memberships that outlived their tenant, because somebody joined while it was closed and
    /// the broker stopped then.
    async fn end_memberships_of_closed(&self) -> Result<(), ReconcileError> {
        for tenant in self.workspaces.tenants_with_members().await? {
            match self.tenants.by_id(tenant).await {
                Ok(Some(row)) if row.status == TenantStatus::Closed => {
                    Box::pin(self.end_memberships(&row)).await?;
                }
                // The list of tenants logs a row that this version cannot read.
                Ok(_) | Err(sqlx::Error::ColumnDecode { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn clean_up_namespaces(&self) -> Result<(), ReconcileError> {
        // Before the namespaces, so that one that is orphaned later is not taken for one that is
        // gone.
        let orphans = self.tenants.orphans().await?;
        let mut namespaces = LabelledNamespaces::new();
        self.cluster
            .list_metadata_of_tenants::<Namespace>(|metadata| {
                namespaces.extend(labelled(&metadata));
            })
            .await?;
        let now = self.clock.now_ms();
        for orphan in orphans.iter().filter(|orphan| is_released(orphan, &namespaces, now)) {
            if self.tenants.release_orphan(orphan).await? {
                tracing::info!(
                    tenant = orphan.tenant,
                    namespace = orphan.namespace,
                    "namespace of a closed tenant is gone, so its name is free"
                );
            }
        }
        for orphan in &orphans {
            let is_unmarked = |it: &LabelledNamespace| !it.is_marked_kept && !it.is_workspace;
            if namespaces.get(&orphan.namespace).is_some_and(is_unmarked) {
                self.mark_kept(&orphan.namespace, &orphan.tenant).await;
            }
        }
        Box::pin(self.delete_leftovers(&namespaces)).await
    }

    /// Deletes bindings with names that the broker gives, in namespaces of tenants that do not
    /// exist.
    async fn delete_leftovers(
        &self,
        namespaces: &LabelledNamespaces,
    ) -> Result<(), ReconcileError> {
        let open = self.tenants.open_names().await?;
        let mut leftovers: BTreeMap<TenantName, Vec<Object>> = BTreeMap::new();
        let mut count = 0;
        self.cluster
            .list_metadata_of_tenants::<RoleBinding>(|metadata| {
                let found = leftover(metadata, namespaces);
                if let Some((tenant, binding)) = found.filter(|(tenant, _)| !open.contains(tenant))
                    && count < MAX_LEFTOVERS
                {
                    count += 1;
                    leftovers.entry(tenant).or_default().push(binding);
                }
            })
            .await?;
        for (tenant, bindings) in leftovers {
            // After the list, because a tenant may be new, and its bindings are its own then.
            if self.may_exist(&tenant).await? {
                self.queue.add(tenant);
                continue;
            }
            tracing::warn!(
                tenant = %tenant,
                "bindings deleted in namespaces with the label of a tenant that does not exist"
            );
            let deletions = bindings.iter().map(Withdrawal::Delete).collect();
            for (object, error) in self.withdraw(deletions).await {
                log_failure(&title(object), &error.into());
            }
        }
        Ok(())
    }

    /// Whether there is a tenant of this name, or the API server does not say so for sure.
    async fn may_exist(&self, name: &TenantName) -> Result<bool, ReconcileError> {
        match self.tenants.by_name(name).await {
            Ok(None) => {}
            Ok(Some(_)) | Err(sqlx::Error::ColumnDecode { .. }) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
        let NamedObjects { candidates, unknown } = self.objects_of(name).await?;
        if !candidates.is_empty()
            || unknown.contains(&ApiGroup::TenantBroker)
            || self.may_be_in(&unknown).await?
        {
            return Ok(true);
        }
        // After the objects, because those of a definition go with it.
        for group in ApiGroup::ALL.into_iter().filter(|group| !unknown.contains(group)) {
            let definition = self.cluster.definition_state(&group.resource()).await?;
            if definition != DefinitionState::Served {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn log_failure(step: &str, error: &ReconcileError) {
    tracing::warn!(
        step,
        error = error_chain(error),
        "cleaning up after tenants failed; it is tried again"
    );
}

/// A namespace with the label of a tenant, by name.
fn labelled(metadata: &ObjectMeta) -> Option<(String, LabelledNamespace)> {
    let labels = metadata.labels.as_ref().filter(|labels| labels.contains_key(TENANT_LABEL))?;
    let created = metadata.creation_timestamp.as_ref();
    let namespace = LabelledNamespace {
        is_marked_kept: labels.contains_key(FORMER_TENANT_LABEL),
        is_workspace: labels.contains_key(WORKSPACE_LABEL),
        created_at: created.map_or(0, |created| created.0.as_millisecond()),
    };
    Some((metadata.name.clone()?, namespace))
}

/// Whether an orphaned namespace is gone, is no longer labelled as that of a tenant, or was made
/// again. The label of another tenant is not enough: an administrator has to move it.
fn is_released(orphan: &Orphan, namespaces: &LabelledNamespaces, now: i64) -> bool {
    let grace_end = orphan.orphaned_at.saturating_add(ORPHAN_GRACE_MS);
    now >= grace_end
        && namespaces
            .get(&orphan.namespace)
            .is_none_or(|namespace| namespace.created_at > grace_end)
}

/// A binding with a name that the broker gives and its tenant, if it is in a namespace of a tenant,
/// and not in one of a personal workspace.
fn leftover(metadata: ObjectMeta, namespaces: &LabelledNamespaces) -> Option<(TenantName, Object)> {
    let tenant = TenantName::of_object(&metadata)?;
    let namespace = namespaces.get(metadata.namespace.as_deref()?)?;
    if namespace.is_workspace {
        return None;
    }
    // Only the metadata is needed to delete it.
    let binding = RoleBinding { metadata, ..RoleBinding::default() };
    let binding = Object::RoleBinding(Box::new(binding));
    is_binding_of(&tenant, &binding).then_some((tenant, binding))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::{
        tenant::NamespaceStatus,
        tenant_controller::testing::Fixture,
        testing::{On, on_both_engines},
    };

    on_both_engines!(
        a_membership_that_outlived_its_tenant_is_ended,
        rows_of_namespaces_that_are_gone_are_purged,
    );

    const MADE_AT: i64 = 1_767_323_045_000;

    fn namespaces(labels: &[(&str, &[(&str, &str)])]) -> LabelledNamespaces {
        let metadata = |(name, labels): &(&str, &[(&str, &str)])| -> ObjectMeta {
            let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
            let created = "2026-01-02T03:04:05Z";
            let metadata = json!({"name": name, "labels": labels, "creationTimestamp": created});
            serde_json::from_value(metadata).unwrap()
        };
        labels.iter().filter_map(|it| labelled(&metadata(it))).collect()
    }

    fn orphan(namespace: &str, orphaned_at: i64) -> Orphan {
        Orphan {
            namespace: namespace.to_owned(),
            tenant_id: Uuid::nil(),
            tenant: "solar".to_owned(),
            orphaned_at,
        }
    }

    #[test]
    fn an_orphan_is_released_without_namespace_or_label_and_after_it_was_made_again() {
        let there = namespaces(&[
            ("solar-a", &[(TENANT_LABEL, "solar")]),
            ("solar-b", &[(TENANT_LABEL, "lunar")]),
            ("solar-c", &[("other", "label")]),
        ]);
        assert_eq!(there.len(), 2);
        for (name, orphaned_at, expected) in [
            ("solar-a", MADE_AT, false),
            ("solar-b", MADE_AT, false),
            ("solar-c", MADE_AT, true),
            ("solar-d", MADE_AT, true),
            // Made again after its tenant was closed.
            ("solar-a", MADE_AT - ORPHAN_GRACE_MS, false),
            ("solar-a", MADE_AT - ORPHAN_GRACE_MS - 1, true),
        ] {
            let now = orphaned_at + ORPHAN_GRACE_MS;
            let orphan = orphan(name, orphaned_at);
            assert_eq!(is_released(&orphan, &there, now), expected, "{orphan:?}");
            assert!(!is_released(&orphan, &there, now - 1), "it may be created still");
        }
    }

    #[test]
    fn only_bindings_that_the_broker_names_are_left_by_it() {
        let there = namespaces(&[
            ("ghost-a", &[(TENANT_LABEL, "ghost")]),
            ("person", &[(TENANT_LABEL, "ghost"), (WORKSPACE_LABEL, "x")]),
        ]);
        for (namespace, name, tenant, expected) in [
            ("ghost-a", "tenant-ghost-admin", Some("ghost"), true),
            ("ghost-a", "tenant-ghost-tenant-owner", Some("ghost"), true),
            ("ghost-a", "own", Some("ghost"), false),
            ("ghost-a", "tenant-solar-admin", Some("ghost"), false),
            ("ghost-a", "tenant-ghost-admin", Some("Ghost"), false),
            ("ghost-a", "tenant-ghost-admin", None, false),
            ("person", "tenant-ghost-admin", Some("ghost"), false),
            ("default", "tenant-ghost-admin", Some("ghost"), false),
        ] {
            let labels = tenant.map(|tenant| json!({TENANT_LABEL: tenant}));
            let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
            let found = leftover(serde_json::from_value(metadata).unwrap(), &there);
            assert_eq!(found.is_some(), expected, "{namespace}/{name} of {tenant:?}");
        }
    }

    async fn a_membership_that_outlived_its_tenant_is_ended(on: On) {
        let fixture = Fixture::new(on).await;
        let (solar, lunar) = (fixture.tenant("solar").await, fixture.tenant("lunar").await);
        for tenant in [&solar, &lunar] {
            fixture.member(tenant).await;
        }
        let controller = &fixture.controller;
        controller.tenants.close(solar.id).await.unwrap();
        controller.clean_up().await;
        assert!(controller.workspaces.members_of(solar.id).await.unwrap().is_empty());
        assert_eq!(controller.workspaces.members_of(lunar.id).await.unwrap().len(), 1);
    }

    async fn rows_of_namespaces_that_are_gone_are_purged(on: On) {
        const ROWS: &str = "SELECT COUNT(*) FROM tenant_namespaces";
        let fixture = Fixture::new(on).await;
        let (solar, tenants) = (fixture.tenant("solar").await, &fixture.controller.tenants);
        tenants.claim_namespace(solar.id, "solar-a", None, None).await.unwrap();
        let (creating, gone) = ([NamespaceStatus::Creating], NamespaceStatus::Gone);
        assert!(tenants.set_namespace_status(solar.id, "solar-a", &creating, gone).await.unwrap());
        fixture.controller.clean_up().await;
        assert_eq!(fixture.storage.number(ROWS).await, 1);
        fixture.storage.clock.advance(31 * 24 * 60 * 60 * 1000);
        fixture.controller.clean_up().await;
        assert_eq!(fixture.storage.number(ROWS).await, 0);
    }
}
