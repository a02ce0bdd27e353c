//! Reasons to reconcile a tenant: events of the cluster, changes in the database, and time. Each
//! becomes the name of a tenant in the queue; what changed is read anew by the run.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::ResourceQuota, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::de::DeserializeOwned;
use tenant_shared::TENANT_LABEL;

use super::{TenantController, balance, resource_of};
use crate::{
    base::{
        clock::{Clock, ticks},
        error_chain,
    },
    cluster::{AccessReview, ClusterError, Compared, Watched},
    identity,
    tenant::{ApiGroup, TenantName},
};

/// Pause before a watch begins anew; it doubles with each failure.
const MIN_RETRY: Duration = Duration::from_secs(1);
/// Longest pause before a watch begins anew.
const MAX_RETRY: Duration = Duration::from_mins(1);
/// Interval at which the database is asked for changes of other replicas.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How far polls overlap, in milliseconds: transactions are committed after their changes are
/// stamped, and clocks of replicas differ.
const POLL_OVERLAP_MS: i64 = 30_000;
/// Pause before the amounts of a quota that is nearly exhausted are divided again.
const REBALANCE_INTERVAL: Duration = Duration::from_secs(1);

impl TenantController {
    /// Watches the Tenants of a group. While the API server does not serve the definition, or the
    /// broker may not read it, the watch is tried again at growing intervals.
    pub(super) async fn watch_tenants(self: Arc<Self>, group: ApiGroup) {
        let (resource, mut retry) = (resource_of(group), WatchRetry::of_tenants(group));
        loop {
            let mut known = KnownTenants::default();
            let visit = |event: Watched<ObjectMeta>| {
                retry.succeeded();
                match event {
                    Watched::Changed(object) => {
                        if known.is_new(&object) {
                            self.add(object.name.as_deref());
                        }
                    }
                    Watched::Deleted(object) => self.add(object.name.as_deref()),
                    Watched::Listed => self.resync.notify_one(),
                }
            };
            // Without the permission, every attempt would be an error in the log of the API server.
            let end: WatchEnd = match self.may_watch(group).await {
                Ok(true) => self.cluster.watch_custom(&resource, visit).await.into(),
                Ok(false) => WatchEnd::NotServed,
                Err(error) => error.into(),
            };
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

    /// Watches the metadata of the objects of a kind that carry the label of a tenant.
    pub(super) async fn watch_labelled<K>(self: Arc<Self>)
    where
        K: Compared + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let mut retry = WatchRetry::new(K::NAME);
        loop {
            let visit = |event| self.labelled_event(&mut retry, event);
            let error = self.cluster.watch_labelled::<K>(TENANT_LABEL, visit).await;
            retry.wait(error.into()).await;
        }
    }

    /// Watches the ResourceQuotas of tenants with their amounts. Most of their events are uses of
    /// the quota, which are no reason to reconcile.
    pub(super) async fn watch_quotas(self: Arc<Self>) {
        let mut retry = WatchRetry::new(ResourceQuota::NAME);
        loop {
            let visit = |event: Watched<ResourceQuota>| {
                retry.succeeded();
                match event {
                    Watched::Changed(quota) if was_changed(&quota) => {
                        self.add_labelled(&quota.metadata);
                    }
                    Watched::Changed(quota) if balance::is_nearly_exhausted(&quota) => {
                        if let Some(name) = tenant_of(&quota.metadata) {
                            self.queue.add_after(name, REBALANCE_INTERVAL);
                        }
                    }
                    Watched::Changed(_) => {}
                    Watched::Deleted(quota) => self.add_labelled(&quota.metadata),
                    Watched::Listed => self.resync.notify_one(),
                }
            };
            let error = self.cluster.watch_quotas(TENANT_LABEL, visit).await;
            retry.wait(error.into()).await;
        }
    }

    /// Adds all tenants to the queue at an interval, and when a watch may have missed events.
    pub(super) async fn resync_loop(self: Arc<Self>) {
        let mut ticks = ticks(self.resync_interval);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.resync.notified() => {}
            }
            self.queue.prune();
            match self.tenants.list().await {
                Ok(rows) => {
                    for row in rows {
                        self.queue.add(row.name);
                    }
                }
                Err(error) => {
                    tracing::error!(error = error_chain(&error), "listing the tenants failed");
                }
            }
            self.metrics.set_tenant_queue(self.queue.len());
        }
    }

    /// Adds the tenants whose status changed, and those with a member whose name or groups changed
    /// or who joined or left.
    pub(super) async fn poll_database(self: Arc<Self>) {
        let mut ticks = ticks(POLL_INTERVAL);
        let mut since = first_poll(&self.clock);
        loop {
            ticks.tick().await;
            let now = self.clock.now_ms();
            match self.changed_tenants(since).await {
                Ok(names) => {
                    for name in names {
                        self.queue.add(name);
                    }
                    since = now - POLL_OVERLAP_MS;
                }
                Err(error) => {
                    tracing::warn!(
                        error = error_chain(&error),
                        "cannot read which tenants changed; trying again"
                    );
                }
            }
        }
    }

    async fn changed_tenants(&self, since: i64) -> sqlx::Result<Vec<TenantName>> {
        let mut names = self.tenants.changed_since(since).await?;
        let users = identity::persons_changed_since(&self.db, since).await?;
        names.extend(self.tenants_of_members(&users, since).await?);
        Ok(names)
    }

    fn labelled_event(&self, retry: &mut WatchRetry, event: Watched<ObjectMeta>) {
        retry.succeeded();
        match event {
            Watched::Changed(object) | Watched::Deleted(object) => self.add_labelled(&object),
            Watched::Listed => self.resync.notify_one(),
        }
    }

    fn add_labelled(&self, object: &ObjectMeta) {
        if let Some(name) = tenant_of(object) {
            self.queue.add(name);
        }
    }

    fn add(&self, name: Option<&str>) {
        if let Some(name) = name.and_then(|name| name.parse().ok()) {
            self.queue.add(name);
        }
    }
}

/// The beginning of the first poll. All tenants are reconciled at the start anyway.
fn first_poll(clock: &Clock) -> i64 {
    clock.now_ms() - POLL_OVERLAP_MS
}

/// The tenant of an object, by its label. A label that is no name of a tenant is nobody's.
fn tenant_of(object: &ObjectMeta) -> Option<TenantName> {
    object.labels.as_ref()?.get(TENANT_LABEL)?.parse().ok()
}

/// Whether the specification of a quota was changed just now: the quota controller has not taken it
/// over to the status yet.
fn was_changed(quota: &ResourceQuota) -> bool {
    let specified = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
    let enforced = quota.status.as_ref().and_then(|status| status.hard.as_ref());
    specified != enforced
}

/// Identity, generation, and whether it is being deleted.
type TenantFacts = (Option<String>, Option<i64>, bool);

/// The Tenants of a watch, so that a change of the status, which the controller writes itself, is
/// told from one of the specification.
#[derive(Debug, Default)]
struct KnownTenants(BTreeMap<String, TenantFacts>);

impl KnownTenants {
    /// Whether this object or its specification is new.
    fn is_new(&mut self, object: &ObjectMeta) -> bool {
        let facts = (object.uid.clone(), object.generation, object.deletion_timestamp.is_some());
        let name = object.name.clone().unwrap_or_default();
        self.0.insert(name, facts.clone()) != Some(facts)
    }
}

/// Why a watch ended.
#[derive(Debug)]
enum WatchEnd {
    /// The definition does not exist, or the broker may not read its objects.
    NotServed,
    Failed(ClusterError),
}

impl From<ClusterError> for WatchEnd {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::NotFound(_) => Self::NotServed,
            error => Self::Failed(error),
        }
    }
}

/// The pauses and log lines of a watch that fails.
#[derive(Debug)]
struct WatchRetry {
    kind: &'static str,
    /// API group of the kind; empty for a kind of Kubernetes.
    group: &'static str,
    failures: u32,
}

impl WatchRetry {
    fn new(kind: &'static str) -> Self {
        Self { kind, group: "", failures: 0 }
    }

    fn of_tenants(group: ApiGroup) -> Self {
        Self { group: group.name(), ..Self::new("Tenant") }
    }

    fn succeeded(&mut self) {
        if self.failures > 0 {
            tracing::info!(kind = self.kind, group = self.group, "watch for tenants continues");
        }
        self.failures = 0;
    }

    /// Logs the first of several failures, and waits.
    async fn wait(&mut self, end: WatchEnd) {
        if self.failures == 0 {
            match end {
                WatchEnd::NotServed => tracing::info!(
                    kind = self.kind,
                    group = self.group,
                    "the API server does not serve this kind to the broker; tenant-broker install \
                     --apply makes the definition of Tenants"
                ),
                WatchEnd::Failed(error) => tracing::warn!(
                    kind = self.kind,
                    group = self.group,
                    error = error_chain(&error),
                    "watch for tenants failed; it is tried again"
                ),
            }
        }
        let pause = MIN_RETRY.saturating_mul(2_u32.saturating_pow(self.failures)).min(MAX_RETRY);
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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

    #[test]
    fn the_label_names_the_tenant() {
        let labelled = |value: &str| {
            let labels = [(TENANT_LABEL.to_owned(), value.to_owned())];
            ObjectMeta { labels: Some(labels.into()), ..ObjectMeta::default() }
        };
        let name = tenant_of(&labelled("solar")).map(|name| name.to_string());
        assert_eq!(name.as_deref(), Some("solar"));
        for value in ["", "tenant-solar", "Solar", "kube-system"] {
            assert_eq!(tenant_of(&labelled(value)), None, "{value}");
        }
        assert_eq!(tenant_of(&ObjectMeta::default()), None);
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
