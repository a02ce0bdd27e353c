//! Reasons to reconcile a tenant: events of the cluster, and time. Each becomes the name of a tenant
//! in the queue; what changed is read anew by the run. The events also keep the cache of Tenants up
//! to date.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::{Arc, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::{
        core::v1::{Namespace, ResourceQuota},
        rbac::v1::RoleBinding,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::api::DynamicObject;
use serde::de::DeserializeOwned;
use tenant_shared::{TENANT_LABEL, WORKSPACE_LABEL};

use super::watch_retry::{WatchEnd, WatchRetry};
use crate::{
    base::{clock::ticks, error_chain},
    cluster::{AccessReview, ClusterError, Compared, WatchEvent},
    tenant::{
        ApiGroup, ConditionType, NamespaceReflector, TenantName, TenantReflector, tenant_of_home,
    },
    tenant_controller::{TenantController, namespaces::divide_quotas},
};

/// Pause before the amounts of a quota that is nearly exhausted are divided again.
const DIVISION_INTERVAL: Duration = Duration::from_secs(1);

impl TenantController {
    /// Watches the Tenants of a group. While the API server does not serve the definition, or the
    /// broker may not read it, the watch is tried again at growing intervals.
    pub(in crate::tenant_controller) async fn watch_tenants(self: Arc<Self>, group: ApiGroup) {
        let (resource, mut retry) = (group.resource(), WatchRetry::of_tenants(group));
        let mut reflector = TenantReflector::new(self.cache.clone(), group);
        loop {
            let mut known = KnownTenants::default();
            let on_event = |event: WatchEvent<DynamicObject>| {
                reflector.apply_event(&event);
                match event {
                    WatchEvent::Init => {}
                    WatchEvent::Apply(object) => {
                        if known.is_new(&object.metadata) {
                            self.add(&object.metadata);
                        }
                    }
                    WatchEvent::Delete(object) => self.add(&object.metadata),
                    WatchEvent::InitDone => self.listed(&mut retry),
                }
            };
            // Without the permission, every attempt would be an error in the log of the API server.
            let end: WatchEnd = match self.may_watch(group).await {
                Ok(true) => self.cluster.watch_custom(&resource, on_event).await.into(),
                Ok(false) => WatchEnd::NotServed,
                Err(error) => error.into(),
            };
            match end {
                WatchEnd::NotServed => {
                    let was_synced = self.cache.is_synced();
                    reflector.not_served();
                    // Claims of namespaces wait for that.
                    if !was_synced && self.cache.is_synced() {
                        self.resync.notify_one();
                    }
                }
                WatchEnd::Failed(_) => reflector.interrupted(),
            }
            retry.wait(end).await;
        }
    }

    async fn may_watch(&self, group: ApiGroup) -> Result<bool, ClusterError> {
        let review = AccessReview {
            verb: "watch",
            group: group.name(),
            resource: "tenants",
            ..AccessReview::default()
        };
        self.cluster.is_allowed(review).await
    }

    /// Watches the metadata of the namespaces that carry the label of a tenant.
    pub(in crate::tenant_controller) async fn watch_namespaces(self: Arc<Self>) {
        let mut reflector = NamespaceReflector::new(self.cache.clone());
        let mut retry = WatchRetry::new(Namespace::NAME);
        loop {
            let on_event = |event: WatchEvent<ObjectMeta>| {
                // The label may have been that of another tenant until now.
                if let WatchEvent::Apply(object) | WatchEvent::Delete(object) = &event
                    && let Some(name) = &object.name
                    && let Some(tenant) = self.cache.tenant_of_namespace(name)
                {
                    self.queue.add(tenant);
                }
                reflector.apply_event(&event);
                self.labelled_event(&mut retry, &event);
            };
            let error = self.cluster.watch_labelled::<Namespace>(TENANT_LABEL, on_event).await;
            reflector.interrupted();
            retry.wait(error.into()).await;
        }
    }

    /// Watches the metadata of the objects of a kind that carry the label of a tenant.
    pub(in crate::tenant_controller) async fn watch_labelled<K>(self: Arc<Self>)
    where
        K: Compared + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let mut retry = WatchRetry::new(K::NAME);
        loop {
            let on_event = |event: WatchEvent<ObjectMeta>| self.labelled_event(&mut retry, &event);
            let error = self.cluster.watch_labelled::<K>(TENANT_LABEL, on_event).await;
            retry.wait(error.into()).await;
        }
    }

    /// Watches the metadata of all RoleBindings but those of personal workspaces: one that others
    /// made in a namespace of a tenant need not have its label.
    pub(in crate::tenant_controller) async fn watch_bindings(self: Arc<Self>) {
        let mut retry = WatchRetry::new(RoleBinding::NAME);
        loop {
            let on_event = |event: WatchEvent<ObjectMeta>| {
                let is_tenants = |namespace: &str| self.is_of_tenant(namespace);
                if let Some(namespace) = self.foreign_bindings.apply_event(&event, is_tenants) {
                    self.add_tenant_of_namespace(namespace);
                }
                if let WatchEvent::Apply(binding) = &event {
                    self.add_suspended_tenant_of(binding);
                }
                self.labelled_event(&mut retry, &event);
            };
            let selector = format!("!{WORKSPACE_LABEL}");
            let error = self.cluster.watch_labelled::<RoleBinding>(&selector, on_event).await;
            retry.wait(error.into()).await;
        }
    }

    /// Watches the ResourceQuotas of tenants with their amounts. Most of their events are uses of
    /// the quota, which are no reason to reconcile unless the status says that a limit is exceeded.
    pub(in crate::tenant_controller) async fn watch_quotas(self: Arc<Self>) {
        let mut retry = WatchRetry::new(ResourceQuota::NAME);
        loop {
            let on_event = |event: WatchEvent<ResourceQuota>| match event {
                WatchEvent::Apply(quota) if was_changed(&quota) => {
                    self.add_labelled(&quota.metadata, Duration::ZERO);
                }
                WatchEvent::Apply(quota)
                    if divide_quotas::is_nearly_exhausted(&quota)
                        || self.is_limit_exceeded(&quota) =>
                {
                    self.add_labelled(&quota.metadata, DIVISION_INTERVAL);
                }
                WatchEvent::Apply(_) | WatchEvent::Init => {}
                WatchEvent::Delete(quota) => self.add_labelled(&quota.metadata, Duration::ZERO),
                WatchEvent::InitDone => self.listed(&mut retry),
            };
            let error = self.cluster.watch_quotas(TENANT_LABEL, on_event).await;
            retry.wait(error.into()).await;
        }
    }

    /// Adds all tenants to the queue at an interval, and when a watch may have missed events.
    pub(in crate::tenant_controller) async fn resync_loop(self: Arc<Self>) {
        let mut ticks = ticks(self.resync_interval);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.resync.notified() => {}
            }
            self.queue.prune();
            match self.tenants.list().await {
                Ok(rows) => {
                    let names: BTreeSet<TenantName> =
                        rows.into_iter().map(|row| row.name).collect();
                    for name in &names {
                        self.queue.add(name.clone());
                    }
                    *self.open_tenants.write().unwrap_or_else(PoisonError::into_inner) = names;
                }
                Err(error) => {
                    tracing::error!(error = error_chain(&error), "listing the tenants failed");
                }
            }
            // Also those whose rows this version cannot read: their bindings stay in force.
            match self.tenants.open_names().await {
                Ok(names) => self.cache.release_accounts(&names),
                Err(error) => {
                    tracing::error!(error = error_chain(&error), "listing the tenants failed");
                }
            }
            self.metrics.set_tenant_queue(self.queue.len());
        }
    }

    fn labelled_event(&self, retry: &mut WatchRetry, event: &WatchEvent<ObjectMeta>) {
        match event {
            WatchEvent::Init => {}
            WatchEvent::Apply(object) | WatchEvent::Delete(object) => {
                self.add_labelled(object, Duration::ZERO);
            }
            WatchEvent::InitDone => self.listed(retry),
        }
    }

    /// The objects that a watch missed may be those of any tenant.
    fn listed(&self, retry: &mut WatchRetry) {
        retry.listed();
        self.resync.notify_one();
    }

    /// Adds the tenant of an object with the label of a tenant. Whoever makes objects may write any
    /// label, so the object counts for the tenant of its namespace, and unknown names would fill the
    /// queue. A tenant that is not known yet is added by the event of its Tenant or by the resync
    /// after the first list, and that of a namespace which is not known yet by the event of the
    /// namespace. A namespace that a request of this process is creating adds its tenant when the
    /// request ends.
    fn add_labelled(&self, object: &ObjectMeta, pause: Duration) {
        let namespace = object.namespace.as_ref().or(object.name.as_ref());
        if namespace.is_some_and(|namespace| self.creations.contains(namespace)) {
            return;
        }
        let Some(labelled) = TenantName::of_object(object) else { return };
        let tenant = match &object.namespace {
            Some(namespace) => self.cache.tenant_of_namespace(namespace),
            None => Some(labelled),
        };
        if let Some(name) = tenant.filter(|name| self.is_known(name)) {
            self.queue.add_after(name, pause);
        }
    }

    /// Adds the tenant of a namespace or home, if it is known. A namespace that is not known yet is
    /// a reason of its own later.
    fn add_tenant_of_namespace(&self, namespace: &str) {
        let tenant = self.cache.tenant_of_namespace(namespace);
        if let Some(tenant) = tenant.filter(|tenant| self.is_known(tenant)) {
            self.queue.add(tenant);
        }
    }

    /// Adds the tenant of a RoleBinding if it is suspended. The API server may have admitted the
    /// RoleBinding before the namespace had its label.
    fn add_suspended_tenant_of(&self, binding: &ObjectMeta) {
        let Some(namespace) = binding.namespace.as_deref() else { return };
        self.revocations.binding_appeared(namespace);
        let tenant = self.cache.tenant_of_namespace(namespace);
        let suspended = self.suspended.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(tenant) = tenant.filter(|tenant| suspended.contains(tenant)) {
            self.queue.add(tenant);
        }
    }

    /// Whether a namespace is one of a tenant, as far as this process knows, or has the name of a home.
    fn is_of_tenant(&self, namespace: &str) -> bool {
        tenant_of_home(namespace).is_some() || self.cache.tenant_of_namespace(namespace).is_some()
    }

    /// Whether the status of the tenant of a quota says that more is used than a limit allows, which
    /// ends when less is used.
    fn is_limit_exceeded(&self, quota: &ResourceQuota) -> bool {
        let namespace = quota.metadata.namespace.as_deref();
        let tenant = namespace.and_then(|namespace| self.cache.tenant_of_namespace(namespace));
        let cached = tenant.and_then(|tenant| self.cache.tenant(&tenant));
        let kind = ConditionType::ResourceQuotaExceeded.as_str();
        cached.is_some_and(|cached| cached.conditions.iter().any(|it| it.kind == kind))
    }

    /// Whether there is an object of this name, or was an open row at the last resync.
    fn is_known(&self, name: &TenantName) -> bool {
        self.cache.has_object(name)
            || self.open_tenants.read().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    /// Adds the tenant of a Tenant.
    fn add(&self, object: &ObjectMeta) {
        if let Some(name) = object.name.as_deref().and_then(|name| name.parse().ok()) {
            self.queue.add(name);
        }
    }
}

/// Whether the specification of a quota was changed just now: the quota controller has not taken it
/// over to the status yet.
fn was_changed(quota: &ResourceQuota) -> bool {
    let specified = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
    let enforced = quota.status.as_ref().and_then(|status| status.hard.as_ref());
    specified != enforced
}

/// Identity, generation, and whether it is being deleted.
type TenantVersion = (Option<String>, Option<i64>, bool);

/// The Tenants of a watch, so that a change of the status, which the controller writes itself, is
/// told from one of the specification.
#[derive(Debug, Default)]
struct KnownTenants(BTreeMap<String, TenantVersion>);

impl KnownTenants {
    /// Whether this object or its specification is new.
    fn is_new(&mut self, object: &ObjectMeta) -> bool {
        let version = (object.uid.clone(), object.generation, object.deletion_timestamp.is_some());
        let name = object.name.clone().unwrap_or_default();
        self.0.insert(name, version.clone()) != Some(version)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{On, Storage};

    fn tenant(uid: &str, generation: i64) -> ObjectMeta {
        ObjectMeta {
            name: Some("solar".to_owned()),
            uid: Some(uid.to_owned()),
            generation: Some(generation),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_status_is_no_reason_to_reconcile_and_a_specification_is() {
        let mut known = KnownTenants::default();
        for (object, is_new) in [
            (tenant("1", 1), true),
            (tenant("1", 1), false),
            (tenant("1", 2), true),
            (tenant("2", 2), true),
            (tenant("2", 2), false),
        ] {
            assert_eq!(known.is_new(&object), is_new, "{object:?}");
        }
        let deleted_at = serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap();
        let deleted = ObjectMeta { deletion_timestamp: Some(deleted_at), ..tenant("2", 2) };
        assert!(known.is_new(&deleted));
    }

    /// Anybody who makes objects may write the label.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn only_labels_of_known_tenants_cause_a_run() {
        let storage = Storage::new(On::Sqlite).await;
        let controller = TenantController::for_tests(&storage).await;
        let mut retry = WatchRetry::new("RoleBinding");
        let mut visit_all = || {
            for name in ["lunar", "solar", "x1", "x2"] {
                let labels = [(TENANT_LABEL.to_owned(), name.to_owned())];
                let object = ObjectMeta { labels: Some(labels.into()), ..ObjectMeta::default() };
                controller.labelled_event(&mut retry, &WatchEvent::Apply(object));
            }
            controller.queue.len()
        };
        assert_eq!(visit_all(), 0);
        // One object that breaks rules, and one open row.
        let object = json!({"apiVersion": "x/v1", "kind": "Tenant", "metadata": {"name": "solar"}});
        let object = serde_json::from_value(object).unwrap();
        let group = ApiGroup::TenantBroker;
        TenantReflector::new(controller.cache.clone(), group)
            .apply_event(&WatchEvent::Apply(object));
        *controller.open_tenants.write().unwrap() = ["lunar".parse().unwrap()].into();
        assert_eq!(visit_all(), 2);
    }

    /// An owner would keep the runs of others busy.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_binding_causes_a_run_of_the_tenant_of_its_namespace_whatever_its_label() {
        let storage = Storage::new(On::Sqlite).await;
        let controller = TenantController::for_tests(&storage).await;
        *controller.open_tenants.write().unwrap() =
            ["lunar", "solar"].map(|name| name.parse().unwrap()).into();
        let metadata = |namespace: Option<&str>, name: &str, tenant: &str| -> ObjectMeta {
            let labels = json!({TENANT_LABEL: tenant});
            let metadata = json!({"namespace": namespace, "name": name, "labels": labels});
            serde_json::from_value(metadata).unwrap()
        };
        let namespace = metadata(None, "solar-a", "solar");
        NamespaceReflector::new(controller.cache.clone())
            .apply_event(&WatchEvent::Apply(namespace));
        let mut retry = WatchRetry::new("RoleBinding");
        let mut queued_after = |namespace, tenant| {
            let binding = metadata(Some(namespace), "view", tenant);
            controller.labelled_event(&mut retry, &WatchEvent::Apply(binding));
            controller.queue.len()
        };
        assert_eq!(queued_after("elsewhere", "lunar"), 0);
        assert_eq!(queued_after("solar-a", "lunar"), 1);
        // It is in the queue already, so that was not the other tenant.
        assert_eq!(queued_after("solar-a", "solar"), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn use_is_a_reason_to_reconcile_while_the_status_says_that_a_limit_is_exceeded() {
        let storage = Storage::new(On::Sqlite).await;
        let controller = TenantController::for_tests(&storage).await;
        let namespace = json!({"name": "solar-a", "labels": {TENANT_LABEL: "solar"}});
        let namespace = serde_json::from_value(namespace).unwrap();
        NamespaceReflector::new(controller.cache.clone())
            .apply_event(&WatchEvent::Apply(namespace));
        let quota = |namespace: &str| -> ResourceQuota {
            let metadata = json!({"name": "tenant-quota-0", "namespace": namespace});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let mut reflector = TenantReflector::new(controller.cache.clone(), ApiGroup::TenantBroker);
        let kinds = [("QuotaPending", false), ("ResourceQuotaExceeded", true), ("Ready", false)];
        for (kind, expected) in kinds {
            let condition = json!({"type": kind, "status": "True", "message": "x"});
            let object = json!({
                "apiVersion": "x/v1", "kind": "Tenant", "metadata": {"name": "solar"},
                "spec": {"owners": [{"kind": "User", "name": "alice"}]},
                "status": {"conditions": [condition]},
            });
            reflector.apply_event(&WatchEvent::Apply(serde_json::from_value(object).unwrap()));
            assert_eq!(controller.is_limit_exceeded(&quota("solar-a")), expected, "{kind}");
            assert!(!controller.is_limit_exceeded(&quota("lunar-a")), "{kind}");
        }
    }

    #[test]
    fn a_quota_was_changed_until_its_status_has_the_amounts() {
        let quota = |status| -> ResourceQuota {
            let spec = json!({"hard": {"pods": "2"}});
            serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).unwrap()
        };
        assert!(was_changed(&quota(json!({}))));
        assert!(was_changed(&quota(json!({"hard": {"pods": "1"}}))));
        let used = json!({"hard": {"pods": "2"}, "used": {"pods": "1"}});
        assert!(!was_changed(&quota(used)));
    }
}
