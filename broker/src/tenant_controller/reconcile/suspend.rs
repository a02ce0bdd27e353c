//! Suspension of a tenant in the cluster. The decision is in the row.
//!
//! A suspension needs the row and those of the namespaces only: neither the object, nor for the
//! revocation the lease, because each step is idempotent. A replica that has the lease records the
//! end. Each step is tried whatever becomes of the others.

use std::time::{Duration, Instant};

use futures_util::{FutureExt as _, StreamExt as _, stream};
use tenant_shared::{MEMBER_PREFIX, TENANT_LABEL};
use uuid::Uuid;

use super::{revocation_attempt::RevocationAttempt, revocation_progress::RevocationStep};
use crate::{
    base::error_chain,
    cluster::ClusterError,
    tenant::{TenantName, TenantRow, TenantStatus, home_name},
    tenant_controller::{
        TenantController, error::ReconcileError, objects::withdraw::MAX_IN_FLIGHT, queue::Run,
    },
};

/// Interval at which a run looks whether the tenant was suspended or resumed meanwhile.
const STATUS_INTERVAL: Duration = Duration::from_millis(200);

/// How long the members wait for the label of the home.
const LABEL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a replica without the lease revokes rights while it cannot read the status of the tenant. A
/// suspended tenant may be resumed 10 s after the suspension was complete.
const UNKNOWN_STATUS_TIMEOUT: Duration = Duration::from_secs(4);

/// How long after the end of a suspension a RoleBinding may appear that the API server admitted before the
/// namespace had its label. The server ends requests after a minute (`--request-timeout`).
const LATE_WRITES_TIMEOUT: Duration = Duration::from_secs(65);

/// A suspension that a run has enforced.
#[derive(Debug)]
pub(in crate::tenant_controller) struct Enforced {
    /// The tenant.
    pub(in crate::tenant_controller) tenant: Uuid,
    /// Whether the lease was held. Without it the rights are revoked, and that is not recorded.
    pub(in crate::tenant_controller) held_lease: bool,
    /// Texts of failures.
    pub(in crate::tenant_controller) failures: Vec<String>,
    /// When to look for RoleBindings that were admitted before the suspension.
    pub(in crate::tenant_controller) look_again: Option<Duration>,
}

impl Enforced {
    /// The result of a run that ends after this one.
    pub(in crate::tenant_controller) fn end(&self, otherwise: Run) -> Run {
        match (otherwise, self.look_again) {
            _ if !self.failures.is_empty() => Run::Failed,
            (Run::Done, Some(pause)) => Run::Again(pause),
            (Run::Again(earlier), Some(pause)) => Run::Again(earlier.min(pause)),
            (otherwise, _) => otherwise,
        }
    }
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
            let (tenant, held_lease) = (row.id, false);
            return Ok(Some(Enforced { tenant, held_lease, failures, look_again: None }));
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
        let failures = tokio::select! {
            failures = self.revoke_rights(&row).boxed() => failures,
            // Nobody decides anything while the database fails, so this waits on.
            () = self.wait_until_other_decision(&row, Duration::MAX).boxed() => return Ok(None),
        };
        if failures.is_empty() {
            let (from, to) = (TenantStatus::Suspending, TenantStatus::Suspended);
            self.advance(&mut row, from, to).await?;
            self.revocations.forget_namespaces(row.id);
        }
        let look_again = time_of_late_writes(&row, self.clock.now_ms());
        Ok(Some(Enforced { tenant: row.id, held_lease: true, failures, look_again }))
    }

    /// Revokes the rights unless the suspension was recorded as done. Ends when it is, because the
    /// tenant may be resumed from then on.
    async fn revoke_without_lease(&self, row: &TenantRow) -> Result<Vec<String>, ReconcileError> {
        if row.status != TenantStatus::Suspending {
            return Ok(Vec::new());
        }
        tokio::select! {
            failures = Box::pin(self.revoke_rights(row)) => Ok(failures),
            () = self.wait_until_other_decision(row, UNKNOWN_STATUS_TIMEOUT).boxed() => Ok(Vec::new()),
        }
    }

    /// Waits until the row of a tenant has another decision than the one that was read, or until that has
    /// not been known for `unknown_timeout`, because the database fails. The lease does not keep others from
    /// a decision: the lease of a process that its machine paused has expired, and a tenant may be resumed
    /// while a run looks for rights in it.
    async fn wait_until_other_decision(&self, row: &TenantRow, unknown_timeout: Duration) {
        let decision = |row: &TenantRow| (row.status, row.status_changed_at);
        let mut known_at = Instant::now();
        loop {
            tokio::time::sleep(STATUS_INTERVAL).await;
            let asked_at = Instant::now();
            // A connection that has died without a sign never answers.
            let timeout = unknown_timeout.saturating_sub(known_at.elapsed());
            let timeout = timeout.min(UNKNOWN_STATUS_TIMEOUT);
            match tokio::time::timeout(timeout, self.tenants.by_id(row.id)).await {
                Ok(Ok(Some(now))) if decision(&now) == decision(row) => known_at = asked_at,
                Ok(Ok(_)) => return,
                Ok(Err(_)) | Err(_) if known_at.elapsed() >= unknown_timeout => return,
                Ok(Err(_)) | Err(_) => {}
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
    /// another status than `from`, or if the status was changed since the row was read.
    ///
    /// # Errors
    /// The database failed.
    pub(in crate::tenant_controller) async fn advance(
        &self,
        row: &mut TenantRow,
        from: TenantStatus,
        to: TenantStatus,
    ) -> Result<(), ReconcileError> {
        if row.status == from
            && let Some(changed) = self.tenants.advance(row, to).await?
        {
            tracing::info!(
                tenant = %row.name, was = from.as_str(), status = to.as_str(),
                "status of a tenant changed"
            );
            *row = changed;
        }
        Ok(())
    }

    /// Revokes all rights in a tenant that is being suspended, or that has regained some. Home and
    /// members need no rows of namespaces, so they wait for none. Returns what failed, for people.
    async fn revoke_rights(&self, row: &TenantRow) -> Vec<String> {
        let home = home_name(&row.name);
        let in_namespaces = async {
            Box::pin(self.revoke_in_namespaces(row)).await.unwrap_or_else(|error| {
                vec![format!("namespaces of the tenant: {}", error_chain(&error))]
            })
        };
        let began = Instant::now();
        let in_namespaces = self.end_step(row, RevocationStep::Namespaces, began, in_namespaces);
        let (mut failures, in_namespaces) =
            tokio::join!(Box::pin(self.revoke_in_home(row, &home)), Box::pin(in_namespaces));
        failures.extend(in_namespaces);
        for failure in &failures {
            tracing::error!(
                tenant = %row.name, error = failure, "a step of a tenant's suspension is open"
            );
        }
        failures
    }

    /// The home has its label before the members lose their ServiceAccounts, so that nobody gets
    /// another one. If the label takes long, they lose them before it as well. Deletions that hang in the
    /// home delay no members.
    async fn revoke_in_home(&self, row: &TenantRow, home: &str) -> Vec<String> {
        let started = Instant::now();
        let attempt = RevocationAttempt::new();
        let mut label = Box::pin(attempt.in_flight(self.label(row, home, None)));
        let early = async {
            tokio::time::sleep(LABEL_TIMEOUT).await;
            // What fails in that is tried again after the label.
            self.revoke_members(row).await
        };
        let labelled = tokio::select! {
            labelled = &mut label => labelled,
            _ = Box::pin(early) => label.await,
        };
        let of_home = async {
            let begun = self.begin_labelled(row, home, labelled, &attempt).await;
            self.finish_in(row, begun, &attempt).await
        };
        let of_home = self.end_step(row, RevocationStep::Home, started, of_home);
        let members = Box::pin(self.revoke_members(row));
        let members = self.end_step(row, RevocationStep::Members, Instant::now(), members);
        let (members, mut failures) = tokio::join!(members, of_home);
        failures.extend(members);
        failures
    }

    /// Waits for a step that began at this time, and records its end for the response to the request.
    /// Returns what failed.
    async fn end_step(
        &self,
        row: &TenantRow,
        step: RevocationStep,
        began: Instant,
        work: impl Future<Output = Vec<String>>,
    ) -> Vec<String> {
        let failures = work.await;
        self.revocations.end_step(row, step, began, &failures);
        failures
    }

    async fn revoke_members(&self, row: &TenantRow) -> Vec<String> {
        if row.status != TenantStatus::Suspending {
            return Vec::new();
        }
        // A ServiceAccount that a slow provisioning makes is deleted by the next attempt.
        let revoked = Box::pin(self.workspaces.revoke_tokens_of_members(row.id)).await;
        let unknown = self.delete_unknown_accounts(row).await;
        let errors = [
            revoked.err().map(|error| error_chain(&error)),
            unknown.err().map(|error| error_chain(&error)),
        ];
        let errors = errors.into_iter().flatten();
        errors.map(|error| format!("ServiceAccounts of members: {error}")).collect()
    }

    /// Deletes the ServiceAccounts of members whose rows were lost, for example by a restore. A member
    /// who joins again would take over the account with its old tokens.
    async fn delete_unknown_accounts(&self, row: &TenantRow) -> Result<(), ReconcileError> {
        let home = home_name(&row.name);
        let label = (TENANT_LABEL, row.name.as_str());
        let accounts = self.cluster.service_accounts_in(&home, label).await?;
        // After the list: a row is older than its account.
        let members = self.workspaces.accounts_of_members(row.id).await?;
        let unknown = accounts
            .iter()
            .filter(|(name, _)| name.starts_with(MEMBER_PREFIX) && !members.contains(name));
        let requests: Vec<_> = unknown
            .map(|(name, uid)| self.cluster.delete_service_account(&home, name, Some(uid)))
            .collect();
        let results: Vec<Result<(), ClusterError>> =
            stream::iter(requests).buffer_unordered(MAX_IN_FLIGHT).collect().await;
        Ok(results.into_iter().collect::<Result<(), _>>()?)
    }
}

/// The rest of [`LATE_WRITES_TIMEOUT`] after the end of a suspension, as of this time in milliseconds since
/// 1970.
fn time_of_late_writes(row: &TenantRow, now: i64) -> Option<Duration> {
    let age = u64::try_from(now.saturating_sub(row.status_changed_at)).unwrap_or_default();
    let rest = LATE_WRITES_TIMEOUT.checked_sub(Duration::from_millis(age));
    rest.filter(|_| row.status == TenantStatus::Suspended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_step_makes_the_run_a_failed_one() {
        let enforced = |failures| Enforced {
            tenant: Uuid::nil(),
            held_lease: true,
            failures,
            look_again: None,
        };
        assert_eq!(enforced(Vec::new()).end(Run::Done), Run::Done);
        assert_eq!(enforced(vec!["label in solar-a".to_owned()]).end(Run::Done), Run::Failed);
    }

    #[test]
    fn a_suspended_tenant_is_looked_at_until_no_earlier_write_can_appear() {
        let suspended = TenantRow {
            status_changed_at: 1_000,
            ..TenantRow::for_tests("solar", TenantStatus::Suspended)
        };
        for (now, rest) in [(0, 65_000), (1_000, 65_000), (2_000, 64_000), (66_000, 0)] {
            let rest = Some(Duration::from_millis(rest));
            assert_eq!(time_of_late_writes(&suspended, now), rest, "{now}");
        }
        assert_eq!(time_of_late_writes(&suspended, 66_001), None);
        let suspending = TenantRow { status: TenantStatus::Suspending, ..suspended };
        assert_eq!(time_of_late_writes(&suspending, 2_000), None);

        let pause = Duration::from_secs(64);
        let enforced = Enforced {
            tenant: Uuid::nil(),
            held_lease: true,
            failures: Vec::new(),
            look_again: Some(pause),
        };
        assert_eq!(enforced.end(Run::Done), Run::Again(pause));
        assert_eq!(enforced.end(Run::Again(Duration::ZERO)), Run::Again(Duration::ZERO));
        assert_eq!(enforced.end(Run::Again(pause * 2)), Run::Again(pause));
        assert_eq!(enforced.end(Run::Failed), Run::Failed);
    }
}
