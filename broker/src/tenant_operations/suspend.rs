//! Suspension and resumption of a tenant by administrators. The decision is recorded first; the
//! controller carries it out, on whichever replica, and the request waits for that a moment.

use std::time::{Duration, Instant};

use tenant_shared::{RoleBindingName, Step, TenantCondition, TenantSuspension};
use uuid::Uuid;

use super::{TenantOperations, error::TenantError, revocation_steps::add_revocation_steps};
use crate::{
    access::{Permit, SuspendTenants},
    audit::{self, Action},
    identity::Caller,
    tenant::{CachedTenant, ConditionType, TenantName, TenantRow, TenantStatus, decision_reason},
    workspace::{Steps, TOKEN_CACHE_MS, WorkspaceError},
};

/// How long a request waits for the controller.
const CARRY_OUT_TIMEOUT: Duration = Duration::from_secs(10);
/// First pause between two looks at the row. It doubles up to [`MAX_POLL_INTERVAL`].
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Longest pause between two looks at the row.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Step in which the controller restores the home, removes the labels of a suspended tenant, and lets the
/// tenant be active.
const RESTORE: &str = "restore";
/// Step in which the controller restores the rights in each namespace. Those in which it fails keep
/// nobody of the tenant from the others.
const NAMESPACES: &str = "namespaces";

impl TenantOperations {
    /// Suspends a tenant: nobody joins it, creates a namespace or gets a credential after the commit
    /// of the first step, and then the controller revokes all rights in the cluster. Idempotent. A
    /// resumption that is under way is undone.
    ///
    /// # Errors
    /// The caller is no administrator, there is no such tenant, or the decision could not be
    /// recorded. A revocation that is not complete is no error: its step is open in the result, and
    /// the controller goes on.
    #[tracing::instrument(level = "debug", skip_all, fields(tenant = %name))]
    pub async fn suspend(
        &self,
        caller: &Caller,
        name: &TenantName,
        reason: Option<String>,
    ) -> Result<TenantSuspension, TenantError> {
        let permit = self.authorize(caller, name.as_str(), Action::SuspendTenant).await?;
        let row = self.open_row(name).await?;
        let mut steps = Steps::default();
        let event = decision(&permit, Action::SuspendTenant, name, reason.as_deref());
        let began = steps.run("record", self.suspensions.begin_suspension(row.id, event)).await?;
        self.decided(name, Action::SuspendTenant, began);
        let began = Instant::now();
        let decided = self.suspensions.by_id(row.id).await?.ok_or(TenantError::NotFound)?;
        let (via, wanted) = (TenantStatus::Suspending, TenantStatus::Suspended);
        let deadline = tokio::time::Instant::now() + CARRY_OUT_TIMEOUT;
        let completed_at =
            self.reach(&row, via, wanted, deadline).await.ok().map(|()| Instant::now());
        let attempts = self.controller.revocation_steps(row.id, decided.status_changed_at);
        add_revocation_steps(&mut steps, &attempts, began, completed_at);
        self.response(&row, steps.into_steps(&[]), Vec::new()).await
    }

    /// Resumes a suspended tenant: the controller restores the rights that the Tenant gives, and
    /// members get new ServiceAccounts, so that no old token works again. Idempotent.
    ///
    /// # Errors
    /// The caller is no administrator, there is no such tenant, its suspension is not complete or
    /// too recent, or the decision could not be recorded.
    #[tracing::instrument(level = "debug", skip_all, fields(tenant = %name))]
    pub async fn resume(
        &self,
        caller: &Caller,
        name: &TenantName,
        reason: Option<String>,
    ) -> Result<TenantSuspension, TenantError> {
        let permit = self.authorize(caller, name.as_str(), Action::ResumeTenant).await?;
        let row = self.open_row(name).await?;
        let mut steps = Steps::default();
        let event = decision(&permit, Action::ResumeTenant, name, reason.as_deref());
        let began = steps.run("record", self.begin_resumption(&row, event)).await?;
        self.decided(name, Action::ResumeTenant, began);
        let (via, wanted) = (TenantStatus::Resuming, TenantStatus::Active);
        let deadline = tokio::time::Instant::now() + CARRY_OUT_TIMEOUT;
        let restored = steps.run(RESTORE, self.reach(&row, via, wanted, deadline)).await;
        let mut not_restored = Vec::new();
        if restored.is_ok() {
            let began = Instant::now();
            let failure = self.failure_after_resumption(&row, deadline).await;
            steps.add_result(NAMESPACES, began.elapsed(), failure.as_deref());
            not_restored = self.suspensions.deleted_bindings(row.id).await?;
        }
        self.response(&row, steps.into_steps(&[NAMESPACES]), not_restored).await
    }

    async fn open_row(&self, name: &TenantName) -> Result<TenantRow, TenantError> {
        self.suspensions.by_name(name).await?.ok_or(TenantError::NotFound)
    }

    /// Records that the tenant is to be resumed; `false` if it is active or being resumed.
    async fn begin_resumption(
        &self,
        row: &TenantRow,
        event: audit::Event,
    ) -> Result<bool, TenantError> {
        // Rights that come back earlier would be those of old tokens, too.
        let suspended_at = self.clock.now_ms() - TOKEN_CACHE_MS;
        if self.suspensions.begin_resumption(row.id, suspended_at, event).await? {
            return Ok(true);
        }
        let now = self.suspensions.by_id(row.id).await?.ok_or(TenantError::NotFound)?;
        refuse_resumption(&now, self.clock.now_ms()).map(|()| false)
    }

    /// Counts a decision that was recorded, and has the controller act on it, also again.
    fn decided(&self, name: &TenantName, action: Action, began: bool) {
        if began {
            self.metrics.action(action.as_str(), "success");
        }
        match action {
            Action::SuspendTenant => self.controller.suspend_soon(name),
            _ => self.controller.reconcile_soon(name),
        }
    }

    /// The response to a decision: the state as it is now, and the steps.
    async fn response(
        &self,
        row: &TenantRow,
        steps: Vec<Step>,
        not_restored: Vec<(String, String)>,
    ) -> Result<TenantSuspension, TenantError> {
        let now = self.suspensions.by_id(row.id).await?.ok_or(TenantError::NotFound)?;
        let state = name_of(now.status).ok_or(TenantError::NotFound)?;
        let bindings =
            not_restored.into_iter().map(|(namespace, name)| RoleBindingName { namespace, name });
        Ok(TenantSuspension {
            name: row.name.to_string(),
            state: state.to_owned(),
            steps,
            bindings_not_restored: bindings.collect(),
        })
    }

    /// Waits until the status of the Tenant says that the controller has restored everything. Returns what
    /// failed, or is not known, at this time.
    async fn failure_after_resumption(
        &self,
        row: &TenantRow,
        deadline: tokio::time::Instant,
    ) -> Option<String> {
        let mut pause = MIN_POLL_INTERVAL;
        loop {
            let cached = self.cache.tenant(&row.name).filter(|cached| cached.group == row.group);
            let failure = match &cached {
                _ if self.cache.interrupted_since().is_some() => {
                    "the broker cannot watch Tenants, so it does not know their status"
                }
                Some(cached) => open_in_namespaces(cached)?,
                None => "the Tenant breaks a rule of its definition, or is not read yet",
            };
            if tokio::time::Instant::now() + pause > deadline {
                return Some(failure.to_owned());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_POLL_INTERVAL);
        }
    }

    /// Waits until the controller has carried out a decision: the tenant has the wanted status. Ends at
    /// the deadline, or when it has another status than the one before it.
    async fn reach(
        &self,
        row: &TenantRow,
        via: TenantStatus,
        wanted: TenantStatus,
        deadline: tokio::time::Instant,
    ) -> Result<(), NotReached> {
        let reached = self.poll_status(row.id, via, wanted);
        let reached = tokio::time::timeout_at(deadline, reached).await.unwrap_or(Err(NotReached));
        if reached.is_err() {
            tracing::warn!(
                tenant = %row.name, status = via.as_str(),
                "a decision on a tenant is not carried out yet"
            );
        }
        reached
    }

    async fn poll_status(
        &self,
        id: Uuid,
        via: TenantStatus,
        wanted: TenantStatus,
    ) -> Result<(), NotReached> {
        let mut pause = MIN_POLL_INTERVAL;
        loop {
            // The decision is on record, so a failure of the database is no reason to report another
            // one.
            match self.suspensions.by_id(id).await {
                Ok(Some(row)) if row.status == wanted => return Ok(()),
                Ok(Some(row)) if row.status == via => {}
                Ok(_) | Err(_) => return Err(NotReached),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_POLL_INTERVAL);
        }
    }
}

/// A decision is not carried out yet, or another one was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NotReached;

/// The audit event of a decision. There is no column for the tenant.
fn decision(
    permit: &Permit<SuspendTenants>,
    action: Action,
    name: &TenantName,
    reason: Option<&str>,
) -> audit::Event {
    let reason = decision_reason(name, reason);
    audit::Event { reason: Some(reason), ..permit.caller().event(action) }
}

/// Why a tenant is not resumed, as of this time in milliseconds since 1970; nothing if it is active or
/// being resumed.
fn refuse_resumption(row: &TenantRow, now: i64) -> Result<(), TenantError> {
    match row.status {
        TenantStatus::Active | TenantStatus::Resuming => Ok(()),
        TenantStatus::Suspending => Err(TenantError::NotReady {
            reason: format!(
                "tenant {} is still being suspended; resume it when no step is open",
                row.name
            ),
        }),
        TenantStatus::Suspended => {
            let left = u64::try_from(row.status_changed_at + TOKEN_CACHE_MS - now).unwrap_or(0);
            Err(WorkspaceError::TooEarly(left.div_ceil(1000).max(1)).into())
        }
        TenantStatus::Closed => Err(TenantError::NotFound),
    }
}

/// What the status of a resumed tenant says about rights that are not restored.
fn open_in_namespaces(cached: &CachedTenant) -> Option<&str> {
    if cached.state == "Suspended" {
        return Some("the status of the Tenant is not written yet");
    }
    let failed =
        |condition: &&TenantCondition| condition.kind == ConditionType::ApplyFailed.as_str();
    cached.conditions.iter().find(failed).map(|condition| condition.message.as_str())
}

/// The status of an open tenant, as people see it.
fn name_of(status: TenantStatus) -> Option<&'static str> {
    match status {
        TenantStatus::Active => Some("Active"),
        TenantStatus::Suspending => Some("Suspending"),
        TenantStatus::Suspended => Some("Suspended"),
        TenantStatus::Resuming => Some("Resuming"),
        TenantStatus::Closed => None,
    }
}

#[cfg(test)]
mod tests {
    use tenant_shared::Role;

    use super::*;
    use crate::{access, base::clock::Clock};

    fn row(status: TenantStatus) -> TenantRow {
        TenantRow { status_changed_at: 100_000, ..TenantRow::for_tests("solar", status) }
    }

    #[test]
    fn a_resumption_waits_for_the_end_of_the_suspension() {
        let refused = |status, now| refuse_resumption(&row(status), now);
        for status in [TenantStatus::Active, TenantStatus::Resuming] {
            assert!(refused(status, 0).is_ok());
        }
        let early = refused(TenantStatus::Suspending, 0).unwrap_err();
        assert!(matches!(early, TenantError::NotReady { .. }), "{early:?}");
        assert!(
            early.to_string().starts_with("tenant solar is still being suspended; "),
            "{early}"
        );
        assert!(matches!(refused(TenantStatus::Closed, 0), Err(TenantError::NotFound)));
        for (now, seconds) in [(100_000, 10), (100_001, 10), (109_000, 1), (109_999, 1)] {
            let error = refused(TenantStatus::Suspended, now).unwrap_err();
            let early = TenantError::Workspace(WorkspaceError::TooEarly(seconds)).to_string();
            assert_eq!(error.to_string(), early, "{now}");
        }
    }

    #[test]
    fn the_audit_row_of_a_decision_names_the_tenant() {
        let clock = Clock::manual("2026-01-02T03:04:05Z".parse().unwrap());
        let admin = Caller::for_tests(&clock, clock.random_id(), Role::Admin);
        let permit = access::authorize_all::<SuspendTenants>(&admin).unwrap();
        let solar = "solar".parse().unwrap();
        for (reason, expected) in
            [(None, "tenant solar"), (Some("leak".to_owned()), "tenant solar: leak")]
        {
            let event = decision(&permit, Action::SuspendTenant, &solar, reason.as_deref());
            assert_eq!(event.reason.as_deref(), Some(expected));
            assert_eq!(event.user_id, Some(admin.user_id()));
        }
        let user = Caller::for_tests(&clock, clock.random_id(), Role::User);
        assert!(access::authorize_all::<SuspendTenants>(&user).is_err());
    }
}
