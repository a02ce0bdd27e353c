//! One tenant, whose lease is held: the order of reads and changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use kube::api::DynamicObject;
use uuid::Uuid;

use super::{
    identify::{RACE_INTERVAL, UNKNOWN_INTERVAL},
    suspend::{Enforced, is_suspension},
};
use crate::{
    base::error_chain,
    cluster::{CustomObject, HomeState},
    tenant::{
        Condition, Desired, Inputs, NamespaceRow, NamespaceRows, NamespaceStatus, Tenant,
        TenantRow, TenantStatus, desired_state, home_name,
    },
    tenant_controller::{
        IN_FLIGHT_TIMEOUT, TenantController,
        error::ReconcileError,
        namespaces::{
            MAX_STATUS_CHANGES, TenantNamespaces, Unlabelled, divide_quotas::Division, quota_use,
        },
        objects::{
            Granted,
            drift::{Drift, drift_of},
            snapshot::{Snapshot, namespace_of},
            withdraw::{MAX_IN_FLIGHT, title, withdrawals},
        },
        queue::Run,
    },
};

/// Pause before a tenant is reconciled again whose new quotas are not enforced yet.
const ENFORCEMENT_INTERVAL: Duration = Duration::from_millis(250);
/// Pause after the first run that found a limit below what is used.
const EXCEEDED_INTERVAL: Duration = Duration::from_secs(2);
/// Time for the ServiceAccounts of the members of a resumed tenant. The sweep makes the others.
const ACCOUNTS_TIMEOUT: Duration = Duration::from_secs(10);
/// Failures that the status names.
const MAX_FAILURES: usize = 20;

/// Follows the failure to take away a binding in a namespace without the label of a tenant.
const RELEASED_ADVICE: &str = "; the namespace has no label of the tenant any more, so delete the \
                             RoleBinding, or put the label tenant-broker.io/tenant back";

/// Findings and results of a run.
#[derive(Debug, Default)]
struct RunReport {
    namespaces: TenantNamespaces,
    conditions: Vec<Condition>,
    /// The failures, in words for people.
    failures: Vec<String>,
    /// Whether a failure leaves the tenant in its resumption: the home is not complete, or a namespace
    /// may still have the label of a suspended one. A failure in one namespace must not keep the people
    /// of the others from their rights.
    is_resumption_open: bool,
    /// The earliest reason for another run.
    again: Option<Duration>,
    /// The namespaces, with the home, in which everything is as desired.
    converged: BTreeSet<String>,
}

impl RunReport {
    fn again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |earlier| earlier.min(after)));
    }

    fn run(&self) -> Run {
        match self.again {
            _ if !self.failures.is_empty() => Run::Failed,
            Some(after) => Run::Again(after),
            None => Run::Done,
        }
    }
}

impl TenantController {
    /// Brings the objects of an open tenant to the desired state, and writes its status. Ends early
    /// if the tenant is suspended meanwhile. A suspension was enforced before. `None` if the object
    /// of the row does not exist any more.
    ///
    /// # Errors
    /// The cluster or the database failed before anything was changed, or the status could not be
    /// written. Failures of single objects are in the status.
    pub(in crate::tenant_controller) async fn converge(
        &self,
        id: Uuid,
        enforced: Option<&Enforced>,
    ) -> Result<Option<Run>, ReconcileError> {
        // Read again, because another replica may have changed it before the lease was held.
        let Some(row) = self.tenants.by_id(id).await? else { return Ok(Some(Run::Done)) };
        if row.status == TenantStatus::Closed {
            return Ok(Some(Run::Again(RACE_INTERVAL)));
        }
        let name = row.name.clone();
        if is_suspension(row.status) {
            let Some(enforced) = enforced.filter(|enforced| enforced.tenant == row.id) else {
                return Ok(Some(Run::Again(Duration::ZERO)));
            };
            let failures = enforced.failures.clone();
            return Box::pin(self.converge_row(row, failures)).await;
        }
        tokio::select! {
            result = Box::pin(self.converge_row(row, Vec::new())) => result,
            () = self.wait_until_status(&name, is_suspension) => Ok(Some(Run::Again(Duration::ZERO))),
        }
    }

    async fn converge_row(
        &self,
        mut row: TenantRow,
        failures: Vec<String>,
    ) -> Result<Option<Run>, ReconcileError> {
        let resource = row.group.resource();
        let object = async {
            let object = self.cluster.get_custom(&resource, row.name.as_str()).await;
            object.map_err(ReconcileError::from)
        };
        let live = async {
            // The rows have to be older than the snapshot.
            let rows = self.tenants.namespace_rows(row.id).await?;
            let snapshot = self.snapshot(&row.name).await?;
            Ok::<_, ReconcileError>((rows, snapshot))
        };
        let (object, (rows, mut snapshot)) = tokio::try_join!(object, live)?;
        let object = match object {
            CustomObject::Found(object) if row.is_row_of(&object.metadata) => object,
            CustomObject::Found(_) | CustomObject::Missing => return Ok(None),
            CustomObject::Unknown => return Ok(Some(Run::Again(UNKNOWN_INTERVAL))),
        };
        let NamespaceRows { rows, unreadable } = rows;
        let mut outcome = RunReport { failures, ..RunReport::default() };
        if row.status == TenantStatus::Resuming {
            let resumed = Box::pin(self.resume_namespaces(&row, &rows, &snapshot)).await?;
            outcome.is_resumption_open = !resumed.is_empty();
            outcome.failures.extend(resumed);
            snapshot = self.snapshot(&row.name).await?;
        }
        if self.keep_suspended(&row, &snapshot).await? {
            return Ok(Some(Run::Again(Duration::ZERO)));
        }
        outcome.namespaces.unreadable = snapshot.leave_out(&unreadable);
        let unlabelled = self.unlabelled(&row, (&rows, MAX_STATUS_CHANGES), &snapshot).await?;
        match Tenant::parse(row.name.as_str(), &object.data["spec"]) {
            Err(faults) => {
                // The namespaces are there, and a status without any would allow the deletion.
                let known = rows.into_iter().filter(|row| row.status.counts());
                outcome.namespaces.allowed = known.map(|row| (row.name, row.status)).collect();
                outcome.conditions.push(Condition::invalid(row.name.as_str(), &faults));
            }
            Ok(tenant) => {
                let of = (&row, &*object);
                let known = (rows, &unlabelled);
                let work = self.carry_out(of, &tenant, known, &snapshot, &mut outcome);
                Box::pin(work).await?;
            }
        }
        let failures = Box::pin(self.transfer_released(&row, &unlabelled.relabelled)).await?;
        outcome.failures.extend(failures);
        if row.status == TenantStatus::Resuming && !outcome.is_resumption_open {
            self.advance(&mut row, TenantStatus::Resuming, TenantStatus::Active).await?;
            // Before the status says that the tenant is active, because members use it then.
            let (workspaces, id) = (self.workspaces.clone(), row.id);
            // A task of its own goes on if this run ends early because of a suspension: an account that
            // is made too late is deleted again only at the end of its work.
            let accounts =
                tokio::spawn(async move { workspaces.make_accounts_of_members(id).await });
            if let Ok(Ok(made)) = tokio::time::timeout(ACCOUNTS_TIMEOUT, accounts).await {
                made?;
            }
        }
        self.finish(&row, &object, outcome).await.map(Some)
    }

    /// Writes the status of the object.
    async fn finish(
        &self,
        row: &TenantRow,
        object: &DynamicObject,
        mut outcome: RunReport,
    ) -> Result<Run, ReconcileError> {
        if !outcome.failures.is_empty() {
            let error = outcome.failures.join("; ");
            tracing::warn!(tenant = %row.name, error, "objects of a tenant could not be changed");
            let named = &outcome.failures[..outcome.failures.len().min(MAX_FAILURES)];
            outcome.conditions.push(Condition::apply_failed(&row.name, named));
        }
        let names = outcome.namespaces.names();
        let conditions = &outcome.conditions;
        let written = self.report((row.group, object), row.status, &names, conditions).await?;
        if !written {
            outcome.again(RACE_INTERVAL);
        }
        // The rights of a tenant that is suspended or resumed change without drift.
        let run = outcome.run();
        let is_active = row.status == TenantStatus::Active;
        let converged = if is_active { outcome.converged } else { BTreeSet::new() };
        self.drift.set_converged(&row.name, object, converged);
        Ok(run)
    }

    /// Claims namespaces, and brings all objects to the desired state: additions, withdrawals, and
    /// last the amounts of quotas.
    async fn carry_out(
        &self,
        (row, object): (&TenantRow, &DynamicObject),
        tenant: &Tenant,
        (rows, unlabelled): (Vec<NamespaceRow>, &Unlabelled),
        snapshot: &Snapshot,
        outcome: &mut RunReport,
    ) -> Result<(), ReconcileError> {
        let is_suspended = is_suspension(row.status);
        let is_enforced = outcome.failures.is_empty();
        let claimed = self.claim_namespaces(row, tenant, (rows, unlabelled), snapshot).await?;
        let unreadable = std::mem::take(&mut outcome.namespaces.unreadable);
        outcome.namespaces = TenantNamespaces { unreadable, ..claimed };
        outcome.conditions.extend(outcome.namespaces.conditions(tenant));
        if outcome.namespaces.waits_for_tenants {
            outcome.again(UNKNOWN_INTERVAL);
        }
        if outcome.namespaces.has_more_claims || outcome.namespaces.has_more_changes {
            outcome.again(Duration::ZERO);
        }
        let members = self.members(row).await?;
        // A foreign home is never adopted, because a binding in it would count as ownership.
        let is_home_taken = self.is_home_taken(row, snapshot).await?;
        if is_home_taken {
            outcome.conditions.push(Condition::home_taken(&row.name));
        }
        let allowed: Vec<&str> = outcome.namespaces.allowed.keys().map(String::as_str).collect();
        let mut desired = desired_state(&Inputs {
            tenant,
            // Without a home nobody can be told from a stranger, so nobody has rights.
            suspended: is_suspended || is_home_taken,
            members: &members,
            namespaces: &allowed,
            settings: &self.settings,
            tiers: &self.tiers,
        });
        if is_home_taken {
            desired.home.clear();
        }
        outcome.conditions.append(&mut desired.conditions);
        if let Some(exceeded) = quota_use::exceeded_condition(tenant, &outcome.namespaces, snapshot)
        {
            // Use is a reason for a run only once the watch has this condition.
            if !quota_use::is_reported(object) {
                outcome.again(EXCEEDED_INTERVAL);
            }
            outcome.conditions.push(exceeded);
        }
        let mut drift = self.drift_in((row, object), snapshot, &desired, &outcome.namespaces);
        drift.extend(unlabelled.released.iter().map(|name| Drift::released(name)));
        let failures = self.grant_all(row, snapshot, &desired, is_suspended, outcome).await?;
        outcome.failures.extend(failures);
        // Rights go before amounts are divided, because a tenant that uses its quota all the time
        // could keep a run busy with that.
        // A suspension that is not enforced finds some namespaces by their bindings.
        if !is_suspended || is_enforced {
            self.withdraw_all(row, snapshot, &desired, unlabelled, outcome).await;
        }
        self.record_drift(&row.name, drift, &outcome.failures).await?;
        let is_claimed =
            outcome.namespaces.allowed.values().any(|it| *it == NamespaceStatus::Creating);
        if is_suspended && is_claimed {
            // The next run labels it.
            outcome.again(RACE_INTERVAL);
        }
        if !desired.shared_quotas.is_empty()
            && let Some(pause) = pause_of_quotas(row, self.clock.now_ms())
        {
            outcome.again(pause);
            return Ok(());
        }
        self.divide_all(row, &desired, outcome).await;
        Box::pin(self.end_unnamed_memberships(row, tenant, &members)).await;
        Ok(())
    }

    /// Whether the namespace with the name of the home is another one. The snapshot has the home
    /// itself by its label.
    async fn is_home_taken(
        &self,
        row: &TenantRow,
        snapshot: &Snapshot,
    ) -> Result<bool, ReconcileError> {
        let (home, tenant) = (home_name(&row.name), row.name.as_str());
        let state = match snapshot.namespace(&home) {
            Some(labelled) => HomeState::of(labelled, tenant),
            None => self.cluster.home_state(&home, tenant).await?,
        };
        Ok(state == HomeState::Foreign)
    }

    /// Objects that others deleted or altered. A namespace that is new has not had all of its objects yet.
    fn drift_in(
        &self,
        (row, object): (&TenantRow, &DynamicObject),
        snapshot: &Snapshot,
        desired: &Desired,
        namespaces: &TenantNamespaces,
    ) -> Vec<Drift> {
        let home = home_name(&row.name);
        let is_active = |name: &str| namespaces.allowed.get(name) == Some(&NamespaceStatus::Active);
        drift_of(&row.name, snapshot, desired, |name| {
            (name == home || is_active(name)) && self.was_converged(row, object, name)
        })
    }

    /// Deletes and changes what is not desired; what cannot be is a failure of the run.
    async fn withdraw_all(
        &self,
        row: &TenantRow,
        snapshot: &Snapshot,
        desired: &Desired,
        unlabelled: &Unlabelled,
        outcome: &mut RunReport,
    ) {
        for (object, error) in self.withdraw(withdrawals(&row.name, snapshot, desired)).await {
            let (namespace, text) = (namespace_of(object), error_chain(&error));
            outcome.converged.remove(namespace);
            let advice = if unlabelled.released.contains(namespace) { RELEASED_ADVICE } else { "" };
            outcome.failures.push(format!("{}: {text}{advice}", title(object)));
        }
    }

    /// Divides the amounts of the quotas that count in the whole tenant.
    async fn divide_all(&self, row: &TenantRow, desired: &Desired, outcome: &mut RunReport) {
        let division =
            self.divide_quotas(&row.name, &desired.shared_quotas, &outcome.namespaces).await;
        let Division { is_open, without_quota } = match division {
            Ok(division) => division,
            Err(error) => {
                outcome.failures.push(format!("amounts of quotas: {}", error_chain(&error)));
                return;
            }
        };
        let terminating = &outcome.namespaces.terminating;
        let pending: BTreeSet<&str> = without_quota
            .into_iter()
            .filter(|name| terminating.iter().any(|it| it == name))
            .collect();
        if !pending.is_empty() {
            outcome.conditions.push(Condition::quota_pending(&row.name, &pending));
        }
        if let Some(pause) = self.unfinished_divisions.record(&row.name, is_open) {
            outcome.again(pause);
        }
    }

    /// Adds what is missing in the home, and then in all namespaces. Namespaces with all of their
    /// objects become active. Returns what failed.
    async fn grant_all(
        &self,
        row: &TenantRow,
        snapshot: &Snapshot,
        desired: &Desired,
        is_suspended: bool,
        outcome: &mut RunReport,
    ) -> Result<Vec<String>, ReconcileError> {
        let shared: BTreeSet<&str> = desired.shared_quotas.keys().map(String::as_str).collect();
        let home = Box::pin(self.grant(snapshot, &desired.home, &shared, is_suspended, None)).await;
        if home.is_complete() {
            outcome.converged.insert(home_name(&row.name));
        }
        outcome.is_resumption_open |= !home.failures.is_empty();
        let mut failures = home.failures;
        let left_to_request = outcome.namespaces.left_to_request.clone();
        let requests: Vec<_> = desired
            .namespaces
            .iter()
            .map(|(name, objects)| {
                // A suspension waits for no request.
                let is_left = !is_suspended && left_to_request.contains_key(name);
                let incoming = outcome.namespaces.incoming.get(name);
                let shared = &shared;
                Box::pin(async move {
                    let granted = if is_left {
                        self.reduce_all(snapshot, objects).await
                    } else {
                        self.grant(snapshot, objects, shared, is_suspended, incoming).await
                    };
                    (name, granted)
                })
            })
            .collect();
        let results: BTreeMap<&String, Granted> =
            stream::iter(requests).buffer_unordered(MAX_IN_FLIGHT).collect().await;
        for (name, granted) in results {
            if granted.is_complete() {
                outcome.converged.insert(name.clone());
            }
            let status = outcome.namespaces.allowed.get(name);
            if granted.is_complete() && status == Some(&NamespaceStatus::Creating) {
                let (creating, active) = ([NamespaceStatus::Creating], NamespaceStatus::Active);
                self.tenants.set_namespace_status(row.id, name, &creating, active).await?;
            }
            if granted.is_complete()
                && let Some(complete) = outcome.namespaces.incoming.get(name)
                && let Err(error) = self.end_move(&row.name, complete).await
            {
                failures.push(format!("limits from before in {name}: {}", error_chain(&error)));
            }
            if granted.is_name_taken {
                self.release_conflicting_claim(row, name).await?;
            }
            if granted.waits {
                let left = left_to_request.get(name).copied();
                outcome.again(left.unwrap_or(ENFORCEMENT_INTERVAL));
            }
            failures.extend(granted.failures);
        }
        Ok(failures)
    }

    /// Ends the claim of a namespace that was never created, if somebody else has one of that name.
    /// Its creation would fail in every run.
    async fn release_conflicting_claim(
        &self,
        row: &TenantRow,
        name: &str,
    ) -> Result<(), ReconcileError> {
        let is_foreign = match self.cluster.namespace(name).await {
            Ok(live) => live.is_some_and(|live| !row.name.is_tenant_of(&live.metadata)),
            // The next run asks again.
            Err(_) => false,
        };
        if is_foreign {
            let (creating, gone) = ([NamespaceStatus::Creating], NamespaceStatus::Gone);
            self.tenants.set_namespace_status(row.id, name, &creating, gone).await?;
            tracing::warn!(
                tenant = %row.name, namespace = name,
                "claim of a namespace released, because somebody else created one of that name"
            );
        }
        Ok(())
    }
}

/// How long the amounts of quotas are left as they are; `None` if they may be divided. A run that a
/// suspension interrupted may have a request under way.
fn pause_of_quotas(row: &TenantRow, now: i64) -> Option<Duration> {
    match row.status {
        TenantStatus::Closed => None,
        // It was never suspended.
        TenantStatus::Active if row.status_changed_at == row.created_at => None,
        TenantStatus::Suspending => Some(IN_FLIGHT_TIMEOUT),
        TenantStatus::Suspended | TenantStatus::Resuming | TenantStatus::Active => {
            let age = u64::try_from(now.saturating_sub(row.status_changed_at)).unwrap_or(0);
            let left = IN_FLIGHT_TIMEOUT.saturating_sub(Duration::from_millis(age));
            Some(left).filter(|left| !left.is_zero())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_wait_for_requests_of_a_run_that_a_suspension_interrupted() {
        let row = |status| TenantRow {
            status_changed_at: 1_000,
            ..TenantRow::for_tests("solar", status)
        };
        let pause = |status, now| pause_of_quotas(&row(status), now);
        let suspended = TenantStatus::Suspended;
        assert_eq!(pause(suspended, 5_000), Some(Duration::from_secs(12)));
        assert_eq!(pause(suspended, 900), Some(IN_FLIGHT_TIMEOUT), "another clock");
        assert_eq!(pause(suspended, 17_000), None);
        assert_eq!(pause(TenantStatus::Suspending, 99_000), Some(IN_FLIGHT_TIMEOUT));
        assert_eq!(pause(TenantStatus::Active, 5_000), Some(Duration::from_secs(12)), "resumed");
        let new = TenantRow { created_at: 1_000, ..row(TenantStatus::Active) };
        assert_eq!(pause_of_quotas(&new, 1_000), None);
    }

    #[test]
    fn a_failure_counts_more_than_another_run() {
        let mut outcome = RunReport::default();
        assert_eq!(outcome.run(), Run::Done);
        outcome.again(RACE_INTERVAL);
        outcome.again(ENFORCEMENT_INTERVAL);
        let earliest = RACE_INTERVAL.min(ENFORCEMENT_INTERVAL);
        assert_eq!(outcome.run(), Run::Again(earliest), "the earliest reason");
        outcome.failures.push("RoleBinding x".to_owned());
        assert_eq!(outcome.run(), Run::Failed);
    }
}
