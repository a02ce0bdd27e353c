//! Amounts that hold for all namespaces of a tenant together, divided between their ResourceQuotas.
//! The sum of what is granted is at most the limit at every moment: see
//! [`crate::tenant::lower_quotas`].
//!
//! The quota controller counts the objects of a namespace anew when its amounts change. It misses
//! objects that were admitted and are not in its copy yet, and admission then lets the namespace have
//! as many more. So amounts are changed only if the namespace used no quota for
//! [`QUOTA_IDLE_TIME`], which the version of the quota shows. Amounts of a namespace that uses its
//! quota without a pause are lowered even so, after [`MAX_WAITING_RUNS`] runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::{api::core::v1::ResourceQuota, apimachinery::pkg::api::resource::Quantity};
use kube::ResourceExt as _;
use tenant_shared::TENANT_LABEL;

use super::TenantNamespaces;
use crate::{
    cluster::{ClusterError, Object, nanos_of},
    tenant::{
        AllocationKind, ObservedQuota, QuotaChange, TenantName, limit_at_present, lower_quotas,
        raise_quotas,
    },
    tenant_controller::{
        IN_FLIGHT_TIMEOUT, TenantController, error::ReconcileError,
        objects::withdraw::MAX_IN_FLIGHT,
    },
};

/// How long a namespace has to have used no quota before its amounts are changed: longer than an
/// object takes from its admission to the quota controller.
const QUOTA_IDLE_TIME: Duration = Duration::from_millis(500);

/// Pause before a tenant's limits are divided again, which doubles with each run until it is
/// [`MAX_PAUSE`].
const MIN_PAUSE: Duration = Duration::from_millis(100);
/// See [`MIN_PAUSE`].
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Runs without a complete division after which amounts are lowered while they are used. Otherwise
/// a tenant that creates and deletes objects repeatedly would keep the unallocated amount.
const MAX_WAITING_RUNS: u32 = 5;
/// How long a run begins writes. The next run goes on, so that withdrawals do not wait for the quotas
/// of thousands of namespaces.
const WRITE_TIME: Duration = Duration::from_secs(5);
/// Attempts to lower the amounts of a quota in use.
const MAX_ATTEMPTS: u32 = 5;

/// A quota is nearly exhausted if less than this part of it is left.
const NEARLY_EXHAUSTED_PART: i128 = 10;

/// Limits for all namespaces, by the name of the ResourceQuota.
type Limits = BTreeMap<String, BTreeMap<String, Quantity>>;

/// Whether less than a tenth of a quota is left.
pub(in crate::tenant_controller) fn is_nearly_exhausted(quota: &ResourceQuota) -> bool {
    let Some(status) = &quota.status else { return false };
    let (mut hard, used) = (status.hard.iter().flatten(), status.used.as_ref());
    hard.any(|(resource, hard)| {
        let used = used.and_then(|used| used.get(resource)).and_then(nanos_of).unwrap_or(0);
        nanos_of(hard).is_some_and(|hard| {
            hard.saturating_sub(used).saturating_mul(NEARLY_EXHAUSTED_PART) < hard
        })
    })
}

/// Runs in a row that did not complete the division of a tenant's limits.
#[derive(Debug, Default)]
pub(in crate::tenant_controller) struct UnfinishedDivisions(Mutex<BTreeMap<TenantName, u32>>);

impl UnfinishedDivisions {
    /// Records a division. Returns the pause before the next one; `None` if it is complete.
    pub(in crate::tenant_controller) fn record(
        &self,
        tenant: &TenantName,
        is_open: bool,
    ) -> Option<Duration> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_open {
            open.remove(tenant);
            return None;
        }
        let runs = open.entry(tenant.clone()).or_default();
        *runs = runs.saturating_add(1);
        let pause = MIN_PAUSE.saturating_mul(1_u32.checked_shl(*runs - 1).unwrap_or(u32::MAX));
        Some(pause.min(MAX_PAUSE))
    }

    /// Whether quotas were in use for [`MAX_WAITING_RUNS`] runs, so that this one does not wait.
    fn is_overdue(&self, tenant: &TenantName) -> bool {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(tenant).is_some_and(|runs| *runs >= MAX_WAITING_RUNS)
    }
}

/// Result of a division.
#[derive(Debug, Default)]
pub(in crate::tenant_controller) struct Division<'a> {
    /// Whether a quota was used or changed meanwhile, or admission still compares with earlier
    /// amounts, so that the limits have to be divided again.
    pub(in crate::tenant_controller) is_open: bool,
    /// Namespaces without a quota that shows what they use. Until they have one, or are gone, the
    /// other namespaces together get no more than they have.
    pub(in crate::tenant_controller) without_quota: BTreeSet<&'a str>,
}

/// A limit for all namespaces of a tenant together, and the ResourceQuotas between which it is
/// divided.
#[derive(Debug)]
struct DividedQuota {
    /// Less than the Tenant's if a namespace has no quota.
    limit: BTreeMap<String, Quantity>,
    quotas: Vec<ResourceQuota>,
    /// Next writes.
    changes: Vec<QuotaChange>,
}

impl DividedQuota {
    /// Whether a quota to be changed may be used meanwhile.
    fn may_change_in_use(&self) -> bool {
        let is_changed = |quota: &ResourceQuota| {
            let namespace = quota.namespace();
            self.changes.iter().any(|change| namespace.as_deref() == Some(&*change.namespace))
        };
        self.quotas.iter().any(|quota| is_changed(quota) && may_be_used(quota))
    }
}

impl TenantController {
    /// Divides the limits of a tenant between its namespaces; those that are allowed get equal
    /// parts of what is free, and the others keep what they use. Quotas in namespaces of others do
    /// not count.
    ///
    /// # Errors
    /// A request failed.
    pub(in crate::tenant_controller) async fn divide_quotas<'a>(
        &self,
        tenant: &TenantName,
        limits: &Limits,
        namespaces: &'a TenantNamespaces,
    ) -> Result<Division<'a>, ReconcileError> {
        let mut division = Division::default();
        if limits.is_empty() {
            return Ok(division);
        }
        let is_shared = |quota: &ResourceQuota| limits.contains_key(&quota.name_any());
        let all: Vec<ResourceQuota> =
            self.cluster.list_selected(TENANT_LABEL, tenant.as_str(), is_shared).await?;
        let mut shared = Vec::with_capacity(limits.len());
        for (name, limit) in limits {
            let quotas: Vec<ResourceQuota> =
                all.iter().filter(|quota| quota.name_any() == *name).cloned().collect();
            let observed = observe(&quotas, namespaces);
            let without = without_quota(namespaces, &observed);
            let capped = (!without.is_empty()).then(|| limit_at_present(limit, &observed));
            division.without_quota.extend(without);
            let limit = capped.unwrap_or_else(|| limit.clone());
            shared.push(DividedQuota { changes: lower_quotas(&limit, &observed), limit, quotas });
        }
        // The quota controller may miss objects that are admitted while amounts change.
        let attempts = if self.unfinished_divisions.is_overdue(tenant) {
            MAX_ATTEMPTS
        } else {
            wait_until_quotas_idle(&shared).await;
            1
        };
        let until = Instant::now() + WRITE_TIME;
        for quota in &mut shared {
            division.is_open |= !self.write(quota, attempts, until).await?;
            let observed = observe(&quota.quotas, namespaces);
            let mut changeable =
                observed.iter().filter(|it| it.allocation != AllocationKind::Fixed);
            division.is_open |= !changeable.all(|it| it.is_enforced(&quota.limit));
            quota.changes = raise_quotas(&quota.limit, &observed);
        }
        wait_until_quotas_idle(&shared).await;
        for quota in &mut shared {
            match self.write(quota, 1, until + WRITE_TIME).await {
                Ok(written) => division.is_open |= !written,
                Err(error @ ClusterError::Unavailable(_)) => {
                    tokio::time::sleep(IN_FLIGHT_TIMEOUT).await;
                    return Err(error.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(division)
    }

    /// Writes the changes, and replaces the quotas by what the API server acknowledged. Returns false
    /// if it refused some at each attempt, because the quota was used or changed meanwhile, or if the
    /// time is over.
    async fn write(
        &self,
        shared: &mut DividedQuota,
        attempts: u32,
        until: Instant,
    ) -> Result<bool, ClusterError> {
        let mut changes: BTreeMap<String, QuotaChange> = std::mem::take(&mut shared.changes)
            .into_iter()
            .map(|change| (change.namespace.clone(), change))
            .collect();
        let writes: Vec<_> = shared
            .quotas
            .iter_mut()
            .filter_map(|quota| {
                let change = changes.remove(quota.namespace().as_deref()?)?;
                Some(async move {
                    if Instant::now() >= until {
                        return Ok(false);
                    }
                    self.write_amounts(quota, &change.hard, attempts).await
                })
            })
            .collect();
        let mut results: Vec<Result<bool, ClusterError>> =
            stream::iter(writes).buffer_unordered(MAX_IN_FLIGHT).collect().await;
        // The caller waits after this error, whatever else failed.
        results.sort_by_key(|result| !matches!(result, Err(ClusterError::Unavailable(_))));
        results.into_iter().try_fold(true, |are_done, is_done| Ok(is_done? && are_done))
    }

    async fn write_amounts(
        &self,
        quota: &mut ResourceQuota,
        hard: &BTreeMap<String, Quantity>,
        attempts: u32,
    ) -> Result<bool, ClusterError> {
        for attempt in 0..attempts {
            if attempt > 0 {
                let wanted = Object::ResourceQuota(Box::new(quota.clone()));
                match self.cluster.get_object(&wanted).await? {
                    Some(Object::ResourceQuota(live)) => *quota = *live,
                    _ => return Ok(false),
                }
            }
            match self.cluster.write_quota(quota, hard).await {
                Ok(written) => {
                    tracing::debug!(
                        namespace = written.namespace(),
                        object = written.name_any(),
                        "amounts of a quota written"
                    );
                    *quota = written;
                    return Ok(true);
                }
                Err(ClusterError::Conflict(_)) => {}
                Err(ClusterError::NotFound(_)) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// Waits for [`QUOTA_IDLE_TIME`] if one of the quotas to be changed may be used. All limits of a
/// tenant wait together, because a run holds a worker.
async fn wait_until_quotas_idle(shared: &[DividedQuota]) {
    if shared.iter().any(DividedQuota::may_change_in_use) {
        tokio::time::sleep(QUOTA_IDLE_TIME).await;
    }
}

/// Whether objects that a quota counts may be under way: it counts some, or allows some.
fn may_be_used(quota: &ResourceQuota) -> bool {
    let status = quota.status.iter();
    let mut amounts = status.flat_map(|status| status.hard.iter().chain(&status.used)).flatten();
    amounts.any(|(_, amount)| nanos_of(amount) != Some(0))
}

/// The quotas of one name in the namespaces of the tenant.
fn observe(quotas: &[ResourceQuota], namespaces: &TenantNamespaces) -> Vec<ObservedQuota> {
    quotas
        .iter()
        .filter_map(|quota| {
            let namespace = quota.namespace().unwrap_or_default();
            let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone());
            let enforced = quota.status.as_ref().and_then(|status| status.hard.clone());
            let used = quota.status.as_ref().and_then(|status| status.used.clone());
            Some(ObservedQuota {
                allocation: namespaces.allocation_of(&namespace)?,
                namespace,
                resource_version: quota.resource_version().unwrap_or_default(),
                hard: hard.unwrap_or_default(),
                enforced: enforced.unwrap_or_default(),
                used: used.unwrap_or_default(),
            })
        })
        .collect()
}

/// The namespaces that use a part of the limit and have no quota. The namespace controller deletes
/// the quota of a namespace before objects whose finalizers keep them.
fn without_quota<'a>(
    namespaces: &'a TenantNamespaces,
    observed: &[ObservedQuota],
) -> BTreeSet<&'a str> {
    let with: BTreeSet<&str> = observed.iter().map(|quota| quota.namespace.as_str()).collect();
    namespaces.divided().filter(|name| !with.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::tenant::NamespaceStatus;

    fn quota(namespace: &str, status: &Value) -> ResourceQuota {
        let metadata = json!({
            "name": "tenant-quota-0", "namespace": namespace, "resourceVersion": "7",
        });
        let spec = json!({"hard": {"pods": "10"}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status}))
            .unwrap()
    }

    #[test]
    fn a_quota_is_nearly_exhausted_when_less_than_a_tenth_is_left() {
        for (used, expected) in [("0", false), ("9", false), ("10", true), ("11", true)] {
            let status = json!({"hard": {"pods": "10"}, "used": {"pods": used}});
            assert_eq!(is_nearly_exhausted(&quota("solar-a", &status)), expected, "{used}");
        }
        for status in [json!({}), json!({"hard": {"pods": "0"}, "used": {"pods": "0"}})] {
            assert!(!is_nearly_exhausted(&quota("solar-a", &status)), "{status}");
        }
    }

    #[test]
    fn a_quota_that_allows_and_counts_nothing_is_not_used() {
        for (hard, used, expected) in [("0", "0", false), ("1", "0", true), ("0", "1", true)] {
            let status = json!({"hard": {"pods": hard}, "used": {"pods": used}});
            assert_eq!(may_be_used(&quota("solar-a", &status)), expected, "{hard} {used}");
        }
        assert!(!may_be_used(&quota("solar-a", &json!({}))));
    }

    #[test]
    fn an_open_division_is_repeated_with_growing_pauses_until_it_is_complete() {
        let (open, solar) = (UnfinishedDivisions::default(), "solar".parse().unwrap());
        let pauses: Vec<u128> =
            (0..9).map(|_| open.record(&solar, true).unwrap().as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert!(open.is_overdue(&solar));
        assert_eq!(open.record(&solar, false), None);
        assert!(!open.is_overdue(&solar));
        assert_eq!(open.record(&solar, true), Some(MIN_PAUSE));
    }

    #[test]
    fn a_quota_is_observed_with_its_version_and_use() {
        let status = json!({"hard": {"pods": "4"}, "used": {"pods": "3"}});
        let names = ["solar-a", "solar-over", "solar-away", "solar-let-go"];
        let quotas = names.map(|name| quota(name, &status));
        let namespaces = TenantNamespaces {
            allowed: [("solar-a".to_owned(), NamespaceStatus::Active)].into(),
            over_quota: vec!["solar-over".to_owned()],
            relabelled: vec!["solar-away".to_owned()],
            ..TenantNamespaces::default()
        };
        let observed = observe(&quotas, &namespaces);
        let amounts = |amount: &str| -> BTreeMap<String, Quantity> {
            [("pods".to_owned(), Quantity(amount.to_owned()))].into()
        };
        let expected = ObservedQuota {
            namespace: "solar-a".to_owned(),
            resource_version: "7".to_owned(),
            hard: amounts("10"),
            enforced: amounts("4"),
            used: amounts("3"),
            allocation: AllocationKind::Grows,
        };
        assert_eq!(observed[0], expected);
        let allocations: Vec<AllocationKind> =
            observed.iter().map(|quota| quota.allocation).collect();
        assert_eq!(
            allocations,
            [AllocationKind::Grows, AllocationKind::Kept, AllocationKind::Fixed]
        );
    }

    #[test]
    fn a_namespace_without_quota_that_may_use_some_is_found() {
        let namespaces = TenantNamespaces {
            allowed: [("solar-a".to_owned(), NamespaceStatus::Active)].into(),
            terminating: ["solar-b", "solar-c"].map(str::to_owned).into(),
            over_quota: vec!["solar-over".to_owned()],
            ..TenantNamespaces::default()
        };
        let quotas = ["solar-a", "solar-b"].map(|name| quota(name, &json!({})));
        let observed = observe(&quotas, &namespaces);
        assert_eq!(without_quota(&namespaces, &observed), BTreeSet::from(["solar-c"]));
    }
}
