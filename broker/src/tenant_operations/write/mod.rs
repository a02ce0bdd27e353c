//! Writes of Tenants that administrators request (`tenants.write`).
//!
//! A Tenant may have other managers, such as a GitOps tool or people with kubectl. A write replaces
//! `spec` alone, as of the version that was read just before, and is refused if it changes a field
//! that another manager has set. The API server validates each write as a dry run first, so the
//! audit row, which is committed before the write, is of one that was valid.
//!
//! | file | responsibility |
//! |---|---|
//! | `create`, `apply`, `delete`, `read` | the operations |
//! | `object` | the object of a tenant in the cluster, and its form in the API |
//! | `changes`, `rights` | differences between two specifications, and in whose rights |

mod apply;
mod changes;
mod create;
mod delete;
mod error;
mod object;
mod read;
mod rights;

pub use delete::DeleteOptions;
pub use error::TenantWriteError;

use serde_json::Value;
use tenant_shared::{TenantCondition, TenantWriteResult};

use rights::changed_rights;

use super::{TenantOperations, error::TenantError};
use crate::{
    access::{AccessError, ManageTenants, Permit},
    audit::{self, Action},
    cluster::CustomWriteError,
    identity::{Caller, users},
    tenant::{Tenant, TenantName},
};

/// How a Tenant is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// Whether the API server validates the write and persists nothing.
    pub dry_run: bool,
    /// Whether fields that other managers have set are changed, too.
    pub force: bool,
}

/// A write of `spec` that an administrator requested.
struct PendingWrite<'a> {
    permit: &'a Permit<ManageTenants>,
    tenant: &'a Tenant,
    spec: &'a Value,
    options: WriteOptions,
    reason: Option<&'a str>,
    /// The audit row that is committed already. An attempt that lost a race needs no other one.
    recorded: Option<String>,
}

/// Attempts of a write while others, such as the controller with its status, change the object.
const MAX_ATTEMPTS: usize = 8;

impl TenantOperations {
    /// Authorizes a write. Whether the broker writes Tenants at all is told to administrators alone.
    async fn authorize_write(
        &self,
        caller: &Caller,
        name: &str,
        action: Action,
    ) -> Result<Permit<ManageTenants>, TenantWriteError> {
        let permit = self.authorize::<ManageTenants>(caller, name, action).await?;
        if self.settings.write { Ok(permit) } else { Err(TenantWriteError::Disabled) }
    }

    /// Validates the name and the specification of a request.
    fn validate(name: &str, spec: &Value) -> Result<Tenant, TenantWriteError> {
        Tenant::parse(name, spec).map_err(TenantWriteError::Invalid)
    }

    /// Conditions for the parts of a Tenant that the broker does not implement.
    fn conditions_of(&self, tenant: &Tenant) -> Vec<TenantCondition> {
        let conditions = self.controller.conditions_of(tenant).into_iter();
        let conditions = conditions.map(|condition| TenantCondition {
            kind: condition.kind.as_str().to_owned(),
            message: condition.message,
        });
        conditions.collect()
    }

    /// Commits the audit row of a write that is about to be sent, if the caller is an administrator
    /// still: the API server may have taken its time until now.
    async fn record_write(
        &self,
        permit: &Permit<ManageTenants>,
        action: Action,
        reason: String,
    ) -> Result<(), TenantWriteError> {
        let event = audit::Event { reason: Some(reason), ..permit.caller().event(action) };
        let mut tx = self.db.begin().await?;
        if !users::lock_administrator(&mut tx, permit.caller().user_id()).await? {
            return Err(AccessError::NotAdministrator.into());
        }
        audit::record(&mut tx, &self.clock, event).await?;
        tx.commit().await?;
        self.metrics.action(action.as_str(), "success");
        Ok(())
    }

    /// Commits the audit row of a write of `spec`, unless an earlier attempt did. The row names whose
    /// rights change before anything else.
    async fn record_change(
        &self,
        write: &mut PendingWrite<'_>,
        action: Action,
        (before, after): (&Value, &Value),
        changes: &[String],
    ) -> Result<(), TenantWriteError> {
        let rights = changed_rights(before, after);
        let reason = reason_of(&write.tenant.name, &rights, changes, write.reason);
        if write.recorded.as_ref() != Some(&reason) {
            self.record_write(write.permit, action, reason.clone()).await?;
            write.recorded = Some(reason);
        }
        Ok(())
    }

    /// Records that a write was refused. A failure, a request that is not valid, and a dry run have
    /// no row.
    async fn record_refused_write<T>(
        &self,
        caller: &Caller,
        (name, action): (&TenantName, Action),
        result: Result<T, TenantWriteError>,
        dry_run: bool,
    ) -> Result<T, TenantWriteError> {
        if let Err(error) = &result
            && error.is_refusal()
            && !dry_run
        {
            self.metrics.action(action.as_str(), "refused");
            let reason = shortened(&format!("tenant {name}: {error}"));
            audit::record_refusal(&self.db, &self.clock, caller.event(action), &reason).await?;
        }
        result
    }
}

/// Whether an error says that the object changed since it was read, so that the write may be tried
/// again.
fn is_conflict(error: &TenantWriteError) -> bool {
    matches!(error, TenantWriteError::Write(CustomWriteError::Conflict))
}

/// The text of an audit row: what is done to the Tenant, and why.
fn reason_of(name: &TenantName, rights: &str, changes: &[String], reason: Option<&str>) -> String {
    let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    let rights = if rights.is_empty() { String::new() } else { format!(" [{rights}]") };
    let changes =
        if changes.is_empty() { String::new() } else { format!(" ({})", changes.join("; ")) };
    shortened(&format!("tenant {name}{why}{rights}{changes}"))
}

/// Characters of a reason in the audit trail.
const MAX_REASON_CHARS: usize = 12_000;

/// A text without control characters, of limited length.
fn shortened(text: &str) -> String {
    let printable = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().take(MAX_REASON_CHARS).map(printable).collect()
}

/// The first characters of a text, and an ellipsis if there are more.
fn truncated(mut text: impl Iterator<Item = char>, max_chars: usize) -> String {
    let mut first: String = text.by_ref().take(max_chars).collect();
    if text.next().is_some() {
        first.push('…');
    }
    first
}

/// The result of a write by its audited action.
fn result_of(action: Action) -> TenantWriteResult {
    match action {
        Action::CreateTenant => TenantWriteResult::Created,
        _ => TenantWriteResult::Configured,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audit_row_has_the_reason_and_the_change_and_is_limited() {
        let solar: TenantName = "solar".parse().unwrap();
        assert_eq!(reason_of(&solar, "", &[], None), "tenant solar");
        let changes = ["spec.tier: basic -> gold".to_owned()];
        assert_eq!(
            reason_of(&solar, "User \"joe\" gets admin", &changes, Some("ticket 7\n")),
            "tenant solar: ticket 7\u{fffd} [User \"joe\" gets admin] (spec.tier: basic -> gold)"
        );
        assert_eq!(
            reason_of(&solar, "", &["x".repeat(20_000)], None).chars().count(),
            MAX_REASON_CHARS
        );
    }
}
