//! One tenant, whose lease is held: the order of reads and changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use kube::api::DynamicObject;
use uuid::Uuid;

use super::{
    TenantController,
    error::ReconcileError,
    grant::Granted,
    identify::{RACE_INTERVAL, UNKNOWN_INTERVAL},
    namespaces::TenantNamespaces,
    resource_of,
    schedule::Run,
    snapshot::Snapshot,
    withdraw::{MAX_IN_FLIGHT, withdrawals},
};
use crate::{
    base::error_chain,
    cluster::{CustomObject, HomeState},
    tenant::{
        Condition, Desired, Inputs, NamespaceRow, NamespaceStatus, Tenant, TenantRow, TenantStatus,
        desired_state, home_name,
    },
};

/// Pause before a tenant is reconciled again whose new quotas are not enforced yet.
const ENFORCEMENT_INTERVAL: Duration = Duration::from_millis(250);
/// Pause before the amounts of quotas are divided again that were used meanwhile.
const BALANCE_INTERVAL: Duration = Duration::from_millis(100);
/// Failures that the status names.
const MAX_FAILURES: usize = 20;

/// What a run found and did.
#[derive(Debug, Default)]
struct Outcome {
    namespaces: TenantNamespaces,
    conditions: Vec<Condition>,
    /// What failed, for people.
    failures: Vec<String>,
    /// The earliest reason for another run.
    again: Option<Duration>,
}

impl Outcome {
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
    /// Brings the objects of an open tenant to the desired state, and writes its status.
    ///
    /// # Errors
    /// The cluster or the database failed before anything was changed, or the status could not be
    /// written. Failures of single objects are in the status.
    pub(super) async fn converge(&self, id: Uuid) -> Result<Run, ReconcileError> {
        // Read again, because another replica may have changed both before the lease was held.
        let Some(mut row) = self.tenants.by_id(id).await? else { return Ok(Run::Done) };
        let resource = resource_of(row.group);
        let object = match self.cluster.get_custom(&resource, row.name.as_str()).await? {
            CustomObject::Found(object)
                if row.status != TenantStatus::Closed
                    && object.metadata.uid.as_deref() == Some(row.object_uid.as_str()) =>
            {
                object
            }
            CustomObject::Found(_) | CustomObject::Missing => return Ok(Run::Again(RACE_INTERVAL)),
            CustomObject::Unknown => return Ok(Run::Again(UNKNOWN_INTERVAL)),
        };
        let rows = self.tenants.namespaces(row.id).await?;
        let mut snapshot = Snapshot::read(&self.cluster, &row.name).await?;
        let mut outcome = Outcome::default();
        match row.status {
            TenantStatus::Suspending | TenantStatus::Suspended => {
                outcome.failures = Box::pin(self.enforce_suspension(&row, &snapshot)).await?;
                if outcome.failures.is_empty() {
                    let (from, to) = (TenantStatus::Suspending, TenantStatus::Suspended);
                    self.advance(&mut row, from, to).await?;
                }
                snapshot = Snapshot::read(&self.cluster, &row.name).await?;
            }
            TenantStatus::Resuming => {
                outcome.failures = Box::pin(self.resume_namespaces(&row, &snapshot)).await?;
                snapshot = Snapshot::read(&self.cluster, &row.name).await?;
            }
            TenantStatus::Active | TenantStatus::Closed => {}
        }
        match Tenant::parse(row.name.as_str(), &object.data["spec"]) {
            Err(faults) => {
                // The namespaces are there, and a status without any would allow the deletion.
                let known = rows.into_iter().filter(|row| row.status.counts());
                outcome.namespaces.allowed = known.map(|row| (row.name, row.status)).collect();
                outcome.conditions.push(Condition::invalid(row.name.as_str(), &faults));
            }
            Ok(tenant) => {
                let work = self.carry_out(&row, &tenant, rows, &snapshot, &mut outcome);
                Box::pin(work).await?;
            }
        }
        if outcome.failures.is_empty() {
            self.advance(&mut row, TenantStatus::Resuming, TenantStatus::Active).await?;
        }
        self.finish(&row, &object, outcome).await
    }

    /// Sets the status of a row whose suspension or resumption is complete. Does nothing if it has
    /// another status than `from`.
    async fn advance(
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

    /// Writes the status of the object.
    async fn finish(
        &self,
        row: &TenantRow,
        object: &DynamicObject,
        mut outcome: Outcome,
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
        Ok(outcome.run())
    }

    /// Claims namespaces, and brings all objects to the desired state: additions first, withdrawals
    /// last.
    async fn carry_out(
        &self,
        row: &TenantRow,
        tenant: &Tenant,
        rows: Vec<NamespaceRow>,
        snapshot: &Snapshot,
        outcome: &mut Outcome,
    ) -> Result<(), ReconcileError> {
        let is_suspended = matches!(row.status, TenantStatus::Suspending | TenantStatus::Suspended);
        outcome.namespaces = self.claim_namespaces(row, tenant, rows, snapshot).await?;
        outcome.conditions.extend(outcome.namespaces.conditions(tenant));
        let members = self.members(row).await?;
        // A foreign home is never adopted, because a binding in it would count as ownership.
        let home = self.cluster.home_state(&home_name(&row.name), row.name.as_str()).await?;
        let is_home_taken = home == HomeState::Foreign;
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
        let failures = self.grant_all(snapshot, &desired, is_suspended, outcome).await?;
        outcome.failures.extend(failures);
        let growing: BTreeSet<&str> =
            outcome.namespaces.allowed.keys().map(String::as_str).collect();
        let balanced = self.balance(&row.name, &desired.shared_quotas, &growing).await;
        match balanced {
            Ok(true) => {}
            Ok(false) => outcome.again(BALANCE_INTERVAL),
            // Rights are taken away even so.
            Err(error) => {
                outcome.failures.push(format!("amounts of quotas: {}", error_chain(&error)));
            }
        }
        let withdrawn = self.withdraw(withdrawals(&row.name, snapshot, &desired)).await;
        for (what, error) in withdrawn {
            outcome.failures.push(format!("{what}: {}", error_chain(&error)));
        }
        Ok(())
    }

    /// Adds what is missing in the home, and then in all namespaces. Namespaces with all of their
    /// objects become active. Returns what failed.
    async fn grant_all(
        &self,
        snapshot: &Snapshot,
        desired: &Desired,
        is_suspended: bool,
        outcome: &mut Outcome,
    ) -> Result<Vec<String>, ReconcileError> {
        let shared: BTreeSet<&str> = desired.shared_quotas.keys().map(String::as_str).collect();
        let home = Box::pin(self.grant(snapshot, &desired.home, &shared, is_suspended)).await;
        let mut failures = home.failures;
        let requests: Vec<_> = desired
            .namespaces
            .iter()
            .map(|(name, wanted)| {
                let grant = Box::pin(self.grant(snapshot, wanted, &shared, is_suspended));
                async move { (name, grant.await) }
            })
            .collect();
        let results: BTreeMap<&String, Granted> =
            stream::iter(requests).buffer_unordered(MAX_IN_FLIGHT).collect().await;
        for (name, granted) in results {
            let status = outcome.namespaces.allowed.get(name);
            if granted.is_complete() && status == Some(&NamespaceStatus::Creating) {
                let (creating, active) = ([NamespaceStatus::Creating], NamespaceStatus::Active);
                self.tenants.set_namespace_status(name, &creating, active).await?;
            }
            if granted.waits {
                outcome.again(ENFORCEMENT_INTERVAL);
            }
            failures.extend(granted.failures);
        }
        Ok(failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_counts_more_than_another_run() {
        let mut outcome = Outcome::default();
        assert_eq!(outcome.run(), Run::Done);
        outcome.again(BALANCE_INTERVAL);
        outcome.again(ENFORCEMENT_INTERVAL);
        assert_eq!(outcome.run(), Run::Again(BALANCE_INTERVAL), "the earliest reason");
        outcome.failures.push("RoleBinding x".to_owned());
        assert_eq!(outcome.run(), Run::Failed);
    }
}
