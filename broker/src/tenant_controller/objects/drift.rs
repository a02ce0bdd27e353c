//! Drift of tenants: objects that others deleted or altered. The controller changes them back, and
//! this puts that on record in the audit trail.
//!
//! A change that follows from the Tenant, its members or the settings is no drift. What a run finds
//! is drift in a namespace in which the last run of this process on this generation of the Tenant
//! left everything as desired, whatever is the matter in others, and always for an object that the
//! broker cannot have made. Before the first run of a process the last status says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};
use kube::api::DynamicObject;
use tenant_shared::MEMBER_PREFIX;
use tokio::time::Instant;

use super::{
    apply::namespace_change,
    snapshot::{Snapshot, name_of, namespace_of},
    withdraw::{Withdrawal, title, withdrawals},
};
use crate::{
    audit::{self, Action},
    cluster::{Compared as _, Difference, Object},
    tenant::{Desired, TenantName, TenantRow, TenantStatus, home_name},
    tenant_controller::TenantController,
};

/// How long a difference of an object is not recorded again: somebody may alter it repeatedly.
const RECORD_INTERVAL: Duration = Duration::from_mins(1);
/// Differences that one run records at most. A row says how many are left out.
const MAX_RECORDED: usize = 50;
/// Differences of a tenant that are recorded per [`BUDGET_INTERVAL`] at most. Somebody could fill the
/// audit trail otherwise.
const MAX_RECORDED_OF_TENANT: usize = 200;
/// How long what was recorded counts.
const BUDGET_INTERVAL: Duration = Duration::from_hours(1);

/// An object that is not as desired, and how.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::tenant_controller) struct Drift {
    kind: &'static str,
    /// Kind, name and namespace, as failures have it.
    title: String,
    difference: Difference,
}

impl Drift {
    fn new(object: &Object, difference: Difference) -> Self {
        Self { kind: object.kind(), title: title(object), difference }
    }

    /// A namespace that lost the label of its tenant.
    pub(in crate::tenant_controller) fn released(namespace: &str) -> Self {
        let title = format!("{} {namespace}", Namespace::NAME);
        Self { kind: Namespace::NAME, title, difference: Difference::Foreign }
    }

    /// Whether it is a namespace that lost the label of its tenant. Nothing puts that back.
    fn is_released(&self) -> bool {
        self.kind == Namespace::NAME && self.difference == Difference::Foreign
    }

    /// Whether others made the object, or what is there instead of it.
    fn is_made_by_others(&self) -> bool {
        is_made_by_others(self.difference) || self.difference == Difference::Unexpected
    }

    /// Whether a failure is about the object. It begins with the title of its object and a colon.
    fn is_in(&self, failure: &str) -> bool {
        failure.strip_prefix(self.title.as_str()).is_some_and(|rest| rest.starts_with(": "))
    }

    /// Describes it for the audit trail.
    fn text(&self, tenant: &TenantName) -> String {
        let what = match self.difference {
            _ if self.is_released() => "has its label no longer, so it is released without rights",
            Difference::Unexpected => "is not desired",
            other => other.text(),
        };
        format!("{} of tenant {tenant} {what}", self.title)
    }
}

/// Whether a run changed an object back.
type IsRepaired = bool;

/// The drift that was recorded a moment ago, and the namespaces that runs left as desired.
#[derive(Debug, Default)]
pub(in crate::tenant_controller) struct DriftLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    recorded: BTreeMap<(Drift, IsRepaired), Instant>,
    budgets: BTreeMap<TenantName, Budget>,
    converged: BTreeMap<TenantName, ConvergedVersion>,
}

/// Version of a specification: uid and generation of the Tenant.
type Version = (Option<String>, Option<i64>);

/// The specification that the last run on a tenant brought into force.
#[derive(Clone, Debug)]
struct ConvergedVersion {
    version: Version,
    /// The namespaces, with the home, in which everything was as this version says.
    namespaces: BTreeSet<String>,
}

/// The number of rows about a tenant since a time.
#[derive(Clone, Copy, Debug)]
struct Budget {
    since: Instant,
    recorded: usize,
    /// Whether a row says that the rest is left out.
    is_exhausted: bool,
}

/// The drift that is put on record after a run.
#[derive(Debug, Default)]
struct Record {
    found: Vec<(Drift, IsRepaired)>,
    /// The number of those that have no row. A row says so, unless it is 0.
    left_out: usize,
}

impl DriftLog {
    /// Records in which namespaces of an active tenant a run left everything as desired.
    pub(in crate::tenant_controller) fn set_converged(
        &self,
        tenant: &TenantName,
        object: &DynamicObject,
        namespaces: BTreeSet<String>,
    ) {
        let converged = ConvergedVersion { version: version_of(object), namespaces };
        self.lock().converged.insert(tenant.clone(), converged);
    }

    /// Forgets what the runs on a tenant left: it is closed.
    pub(in crate::tenant_controller) fn forget(&self, tenant: &TenantName) {
        self.lock().converged.remove(tenant);
    }

    /// Whether a run left everything in a namespace as this version of the Tenant says; `None` if
    /// this process made no run yet.
    fn is_converged(
        &self,
        tenant: &TenantName,
        version: &Version,
        namespace: &str,
    ) -> Option<bool> {
        let state = self.lock();
        let converged = state.converged.get(tenant)?;
        Some(converged.version == *version && converged.namespaces.contains(namespace))
    }

    /// No code panics while it has the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides what of a tenant is put on record: not what was recorded a moment ago, what others made
    /// first, and no more than a run and the tenant may have.
    fn to_record(
        &self,
        tenant: &TenantName,
        mut found: Vec<(Drift, IsRepaired)>,
        now: Instant,
    ) -> Record {
        let mut state = self.lock();
        state.recorded.retain(|_, at| now.saturating_duration_since(*at) < RECORD_INTERVAL);
        state.budgets.retain(|_, it| now.saturating_duration_since(it.since) < BUDGET_INTERVAL);
        found.retain(|drift| !state.recorded.contains_key(drift));
        found.sort_by_key(|(drift, _)| !drift.is_made_by_others());
        let budget = state.budgets.get(tenant);
        let used = budget.map_or(0, |budget| budget.recorded);
        let most = MAX_RECORDED.min(MAX_RECORDED_OF_TENANT.saturating_sub(used));
        let is_on_record = budget.is_some_and(|budget| budget.is_exhausted);
        let left_out = if is_on_record { 0 } else { found.len().saturating_sub(most) };
        found.truncate(most);
        Record { found, left_out }
    }

    /// Remembers what was put on record.
    fn set_recorded(&self, tenant: &TenantName, record: &Record, now: Instant) {
        let mut state = self.lock();
        state.recorded.extend(record.found.iter().map(|drift| (drift.clone(), now)));
        let new = Budget { since: now, recorded: 0, is_exhausted: false };
        let budget = state.budgets.entry(tenant.clone()).or_insert(new);
        budget.recorded += record.found.len();
        budget.is_exhausted |= record.left_out > 0 && budget.recorded >= MAX_RECORDED_OF_TENANT;
    }
}

/// Finds drift. `is_converged` says of a namespace or home whether it had all of its objects.
pub(in crate::tenant_controller) fn drift_of(
    tenant: &TenantName,
    snapshot: &Snapshot,
    desired: &Desired,
    is_converged: impl Fn(&str) -> bool,
) -> Vec<Drift> {
    let desired_objects = desired.home.iter().chain(desired.namespaces.values().flatten());
    let altered = desired_objects.filter_map(|desired_object| {
        let live = snapshot.get(desired_object);
        let difference = difference(tenant, live, desired_object, desired)?;
        let is_drift = is_made_by_others(difference) || is_converged(namespace_of(desired_object));
        is_drift.then(|| Drift::new(desired_object, difference))
    });
    let all = withdrawals(tenant, snapshot, desired);
    let added = all.iter().filter_map(|withdrawal| match withdrawal {
        Withdrawal::Delete(object) => {
            let is_drift =
                !tenant.is_tenant_of(object.metadata()) || is_converged(namespace_of(object));
            is_drift.then(|| Drift::new(object, Difference::Unexpected))
        }
        Withdrawal::Narrow { .. } => None,
    });
    altered.chain(added).collect()
}

/// Whether others made the object that is there instead of a desired one.
fn is_made_by_others(difference: Difference) -> bool {
    matches!(difference, Difference::Foreign | Difference::Role | Difference::Replaced)
}

/// How an object differs by what others did. The broker itself divides the amounts of quotas for the
/// whole tenant, and members come and go.
fn difference(
    tenant: &TenantName,
    live: Option<&Object>,
    desired_object: &Object,
    desired: &Desired,
) -> Option<Difference> {
    let Some(live) = live else { return Some(Difference::Missing) };
    if let (Object::Namespace(live), Object::Namespace(desired_object)) = (live, desired_object) {
        if live.metadata.deletion_timestamp.is_some() {
            return Some(Difference::Terminating);
        }
        let (labels, annotations) = namespace_change(live, desired_object);
        let is_altered = !labels.is_empty() || !annotations.is_empty();
        return is_altered.then_some(Difference::Metadata);
    }
    match live.difference(desired_object)? {
        Difference::Terminating => None,
        Difference::Spec if desired.shared_quotas.contains_key(name_of(desired_object)) => None,
        Difference::Subjects => match (live, desired_object) {
            (Object::RoleBinding(live), Object::RoleBinding(desired_object)) => {
                let is_altered = others(tenant, live) != others(tenant, desired_object);
                is_altered.then_some(Difference::Subjects)
            }
            _ => None,
        },
        other => Some(other),
    }
}

/// The subjects of a binding that are no members.
fn others<'a>(
    tenant: &TenantName,
    binding: &'a RoleBinding,
) -> BTreeSet<(&'a str, Option<&'a str>, &'a str)> {
    let home = home_name(tenant);
    let all = binding.subjects.iter().flatten();
    let all = all.map(|it| (it.kind.as_str(), it.namespace.as_deref(), it.name.as_str()));
    all.filter(|(kind, namespace, name)| {
        let is_member = *kind == "ServiceAccount" && name.starts_with(MEMBER_PREFIX);
        !is_member || *namespace != Some(home.as_str())
    })
    .collect()
}

fn version_of(object: &DynamicObject) -> Version {
    (object.metadata.uid.clone(), object.metadata.generation)
}

/// Whether the last status says that all was as the present specification says.
fn was_ready(object: &DynamicObject) -> bool {
    let status = &object.data["status"];
    status["observedGeneration"].as_i64() == object.metadata.generation
        && status["state"] == "Active"
}

impl TenantController {
    /// Whether all objects of a namespace or home were there after the last run on this
    /// specification.
    pub(in crate::tenant_controller) fn was_converged(
        &self,
        row: &TenantRow,
        object: &DynamicObject,
        namespace: &str,
    ) -> bool {
        let converged = self.drift.is_converged(&row.name, &version_of(object), namespace);
        row.status == TenantStatus::Active && converged.unwrap_or_else(|| was_ready(object))
    }

    /// Records drift, as repaired if it is not among the failures and the object is not being
    /// deleted.
    ///
    /// # Errors
    /// The database failed; the repairs are in the log.
    pub(in crate::tenant_controller) async fn record_drift(
        &self,
        tenant: &TenantName,
        found: Vec<Drift>,
        failures: &[String],
    ) -> sqlx::Result<()> {
        let is_repaired = |drift: &Drift| {
            let has_failed = failures.iter().any(|failure| drift.is_in(failure));
            drift.difference != Difference::Terminating && !drift.is_released() && !has_failed
        };
        let found = found.into_iter().map(|drift| {
            let is_repaired = is_repaired(&drift);
            (drift, is_repaired)
        });
        let now = Instant::now();
        let record = self.drift.to_record(tenant, found.collect(), now);
        let Record { found, left_out } = &record;
        if found.is_empty() && *left_out == 0 {
            return Ok(());
        }
        let action = |is_repaired: IsRepaired| {
            if is_repaired { Action::DriftRepaired } else { Action::DriftFound }
        };
        let mut tx = self.db.begin().await?;
        let rows = found.iter().map(|(drift, is_repaired)| (drift.text(tenant), *is_repaired));
        let summary = (*left_out > 0).then(|| (left_out_text(tenant, *left_out), false));
        for (reason, is_repaired) in rows.chain(summary) {
            let success = audit::Event::success(action(is_repaired));
            let event = audit::Event { reason: Some(reason), ..success };
            audit::record(&mut tx, &self.clock, event).await?;
        }
        tx.commit().await?;
        self.drift.set_recorded(tenant, &record, now);
        if *left_out > 0 {
            self.metrics.action(action(false).as_str(), "success");
        }
        for (Drift { kind, difference, .. }, is_repaired) in found {
            self.metrics.action(action(*is_repaired).as_str(), "success");
            self.metrics.drift_found(kind, difference.as_str());
            if *is_repaired {
                self.metrics.drift_repaired(kind, difference.as_str());
            }
        }
        Ok(())
    }
}

/// Describes for the audit trail what has no row.
fn left_out_text(tenant: &TenantName, number: usize) -> String {
    format!(
        "{number} more objects of tenant {tenant} were altered; at most {MAX_RECORDED} are recorded at \
         once, and {MAX_RECORDED_OF_TENANT} an hour"
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use serde_json::{Value, json};
    use tenant_shared::TENANT_LABEL;

    use super::*;
    use crate::{
        tenant_controller::testing::Fixture,
        testing::{On, on_both_engines},
    };

    on_both_engines!(repaired_drift_is_recorded_once_a_minute, what_has_no_row_is_counted_in_one,);

    const GROUP: &str = "rbac.authorization.k8s.io";

    fn binding(name: &str, users: &[&str], label: Option<&str>) -> Object {
        let subject = |user: &&str| match user.strip_prefix('+') {
            Some(member) => {
                json!({"kind": "ServiceAccount", "namespace": "tenant-solar", "name": member})
            }
            None => json!({"kind": "User", "name": user, "apiGroup": GROUP}),
        };
        let subjects: Vec<Value> = users.iter().map(subject).collect();
        let labels = label.map(|tenant| json!({TENANT_LABEL: tenant}));
        let binding = json!({
            "metadata": {"name": name, "namespace": "solar-a", "labels": labels},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "view"},
            "subjects": subjects,
        });
        Object::RoleBinding(serde_json::from_value(binding).unwrap())
    }

    fn quota(name: &str, pods: &str) -> Object {
        let metadata = json!({"name": name, "namespace": "solar-a",
            "labels": {TENANT_LABEL: "solar", "app.kubernetes.io/managed-by": "tenant-broker"}});
        let quota = json!({"metadata": metadata, "spec": {"hard": {"pods": pods}}});
        Object::ResourceQuota(serde_json::from_value(quota).unwrap())
    }

    /// Names and differences of the drift of one namespace, in which a view of alice and three pods
    /// are desired. The first quota is for the whole tenant.
    fn found(live: Vec<Object>, converged: bool) -> Vec<(String, Difference)> {
        let solar = "solar".parse().unwrap();
        let desired_objects = vec![
            quota("tenant-quota-0", "0"),
            quota("tenant-quota-1", "3"),
            binding("tenant-solar-view", &["alice"], Some("solar")),
        ];
        let pods = BTreeMap::from([("pods".to_owned(), Quantity("9".to_owned()))]);
        let desired = Desired {
            home: Vec::new(),
            namespaces: BTreeMap::from([("solar-a".to_owned(), desired_objects)]),
            shared_quotas: BTreeMap::from([("tenant-quota-0".to_owned(), pods)]),
            conditions: Vec::new(),
        };
        let drift = drift_of(&solar, &Snapshot::new(live), &desired, |_| converged);
        let mut found: Vec<_> = drift.into_iter().map(|it| (it.title, it.difference)).collect();
        found.sort();
        found
    }

    #[test]
    fn what_others_changed_is_drift_once_a_namespace_had_all_objects() {
        let as_desired = || vec![quota("tenant-quota-0", "0"), quota("tenant-quota-1", "3")];
        let with = |binding: Object| as_desired().into_iter().chain([binding]).collect();
        let name = "tenant-solar-view";
        let ours = |users: &[&str]| binding(name, users, Some("solar"));
        let title = format!("RoleBinding {name} in solar-a");
        let one = |difference| vec![(title.clone(), difference)];
        for (live, expected) in [
            (with(ours(&["alice"])), vec![]),
            // A member came.
            (with(ours(&["alice", "+member-1"])), vec![]),
            (as_desired(), one(Difference::Missing)),
            (with(ours(&["alice", "mallory"])), one(Difference::Subjects)),
            (with(ours(&[])), one(Difference::Subjects)),
        ] {
            assert_eq!(found(live.clone(), true), expected, "{live:?}");
            assert!(found(live, false).is_empty(), "it may be new");
        }
        // Made by others for sure.
        let foreign = with(binding(name, &["alice"], None));
        assert_eq!(found(foreign, false), one(Difference::Foreign));
        let mut added = with(ours(&["alice"]));
        added.push(binding("tenant-solar-edit", &["mallory"], None));
        let title = "RoleBinding tenant-solar-edit in solar-a".to_owned();
        assert_eq!(found(added, false), [(title, Difference::Unexpected)]);
    }

    #[test]
    fn amounts_that_the_broker_divides_are_no_drift_and_others_are() {
        let view = binding("tenant-solar-view", &["alice"], Some("solar"));
        let live = vec![quota("tenant-quota-0", "7"), quota("tenant-quota-1", "99"), view];
        let title = "ResourceQuota tenant-quota-1 in solar-a".to_owned();
        assert_eq!(found(live, true), [(title, Difference::Spec)]);
    }

    #[test]
    fn a_status_of_another_generation_says_nothing() {
        let object = |generation: i64, status: Value| -> DynamicObject {
            let metadata = json!({"name": "solar", "generation": generation});
            let object = json!({"apiVersion": "x/v1", "kind": "Tenant", "metadata": metadata,
                "status": status});
            serde_json::from_value(object).unwrap()
        };
        let status = json!({"observedGeneration": 2, "state": "Active"});
        assert!(was_ready(&object(2, status.clone())));
        assert!(!was_ready(&object(3, status)));
        assert!(!was_ready(&object(2, json!({"observedGeneration": 2, "state": "Degraded"}))));
        assert!(!was_ready(&object(1, Value::Null)));
    }

    /// A failure in another namespace, even one that lasts, hides nothing.
    #[test]
    fn a_namespace_is_settled_whatever_is_the_matter_in_others() {
        let (log, solar) = (DriftLog::default(), "solar".parse().unwrap());
        let object = |generation: i64| -> DynamicObject {
            let metadata = json!({"name": "solar", "uid": "1", "generation": generation});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let is_converged = |generation, namespace| {
            log.is_converged(&solar, &version_of(&object(generation)), namespace)
        };
        assert_eq!(is_converged(1, "solar-a"), None);
        log.set_converged(&solar, &object(1), ["solar-a".to_owned()].into());
        assert_eq!(is_converged(1, "solar-a"), Some(true));
        assert_eq!(is_converged(1, "solar-b"), Some(false));
        assert_eq!(is_converged(2, "solar-a"), Some(false), "the change is no drift");
        log.set_converged(&solar, &object(2), BTreeSet::new());
        assert_eq!(is_converged(2, "solar-a"), Some(false));
        log.forget(&solar);
        assert_eq!(is_converged(2, "solar-a"), None);
    }

    fn missing(number: usize) -> Drift {
        Drift::new(&quota(&format!("tenant-quota-{number}"), "1"), Difference::Missing)
    }

    #[test]
    fn a_tenant_has_a_number_of_rows_an_hour_and_one_about_the_rest() {
        let (log, start) = (DriftLog::default(), Instant::now());
        let [solar, lunar] = ["solar", "lunar"].map(|name| name.parse::<TenantName>().unwrap());
        let record = |tenant: &TenantName, numbers: std::ops::Range<usize>, minutes: u64| {
            let now = start + Duration::from_mins(minutes);
            let found = numbers.map(|number| (missing(number), true)).collect();
            let record = log.to_record(tenant, found, now);
            log.set_recorded(tenant, &record, now);
            (record.found.len(), record.left_out)
        };
        assert_eq!(record(&solar, 0..60, 0), (50, 10));
        assert_eq!(record(&solar, 0..60, 0), (10, 0));
        assert_eq!(record(&solar, 60..100, 0), (40, 0));
        assert_eq!(record(&solar, 100..150, 0), (50, 0));
        assert_eq!(record(&solar, 150..220, 0), (50, 20));
        assert_eq!(record(&solar, 200..230, 0), (0, 0), "a row says so already");
        assert_eq!(record(&lunar, 300..310, 0), (10, 0));
        assert_eq!(record(&solar, 200..230, 60), (30, 0));
    }

    #[test]
    fn what_others_made_comes_first_and_counts_once_it_is_on_record() {
        let (log, now) = (DriftLog::default(), Instant::now());
        let solar = "solar".parse().unwrap();
        let added = Drift::new(&binding("tenant-solar-x", &[], None), Difference::Unexpected);
        let mut found: Vec<_> = (0..MAX_RECORDED).map(|number| (missing(number), true)).collect();
        found.push((added.clone(), true));
        for _ in 0..2 {
            // The transaction may fail.
            let record = log.to_record(&solar, found.clone(), now);
            assert_eq!((record.found.len(), record.left_out), (MAX_RECORDED, 1));
            assert_eq!(record.found[0].0, added);
        }
    }

    #[test]
    fn a_failure_is_about_the_object_of_the_whole_title() {
        let drift = missing(1);
        assert!(drift.is_in("ResourceQuota tenant-quota-1 in solar-a: forbidden"));
        assert!(!drift.is_in("ResourceQuota tenant-quota-1 in solar-a-b: forbidden"));
        assert!(!drift.is_in("amounts of quotas: conflict"));
    }

    async fn what_has_no_row_is_counted_in_one(on: On) {
        const ROWS: &str = "SELECT COUNT(*) FROM audit_logs WHERE action LIKE 'Drift%'";
        const LEFT_OUT: &str = "SELECT COUNT(*) FROM audit_logs WHERE action = 'DriftFound' \
                                AND reason LIKE '7 more objects of tenant solar%'";
        let fixture = Fixture::new(on).await;
        let found = (0..MAX_RECORDED + 7).map(missing).collect();
        let solar = "solar".parse().unwrap();
        fixture.controller.record_drift(&solar, found, &[]).await.unwrap();
        let (rows, left_out) =
            (fixture.storage.number(ROWS).await, fixture.storage.number(LEFT_OUT).await);
        assert_eq!((rows, left_out), (51, 1));
    }

    async fn repaired_drift_is_recorded_once_a_minute(on: On) {
        const REPAIRED: &str = "SELECT COUNT(*) FROM audit_logs WHERE action = 'DriftRepaired'";
        const FOUND: &str = "SELECT COUNT(*) FROM audit_logs WHERE action = 'DriftFound'";
        let fixture = Fixture::new(on).await;
        let solar = "solar".parse().unwrap();
        let drift = |name: &str| Drift::new(&quota(name, "1"), Difference::Missing);
        let found = || vec![drift("tenant-quota-0"), drift("tenant-quota-1")];
        let failures = [format!("{}: forbidden", drift("tenant-quota-1").title)];
        let (controller, storage) = (&fixture.controller, &fixture.storage);
        controller.record_drift(&solar, found(), &failures).await.unwrap();
        assert_eq!((storage.number(REPAIRED).await, storage.number(FOUND).await), (1, 1));
        for _ in 0..2 {
            controller.record_drift(&solar, found(), &[]).await.unwrap();
            assert_eq!((storage.number(REPAIRED).await, storage.number(FOUND).await), (2, 1));
        }
    }
}
