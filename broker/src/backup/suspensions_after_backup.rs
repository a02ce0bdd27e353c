//! Suspensions that were decided after a backup, from an exported audit trail. Only what revokes
//! access is repeated, so a wrong trail gives nobody more than the backup does. It can withhold
//! suspensions, though: one that was cut off at an earlier checkpoint is intact, so the report says
//! where the trail ends.

use std::{collections::BTreeMap, fs::File, io::BufReader, path::Path};

use tenant_shared::{AuditEntry, WireTime};
use uuid::Uuid;

use super::error::BackupError;
use crate::{
    audit::{
        self, Action, Event,
        chain::{Head, Start, verify_file_rows},
    },
    base::{clock::Clock, db::Tx, signing::PublicKeys},
    identity::users,
    tenant::{self, TenantName, tenant_of_decision},
    workspace,
};

/// The last decision of a trail on each user, workspace and tenant, after a backup.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SuspensionsAfterBackup {
    /// Whether each user was suspended last, and not resumed.
    users: BTreeMap<Uuid, bool>,
    /// Whether each workspace was suspended last, and not resumed.
    workspaces: BTreeMap<Uuid, bool>,
    /// Whether each tenant was suspended last, and not resumed.
    tenants: BTreeMap<TenantName, bool>,
    /// Memberships that began or began again, by their identifiers.
    joined: BTreeMap<Uuid, JoinedMembership>,
    /// Users who were created, with the reason in that row: the connector and the role.
    created: BTreeMap<Uuid, Option<String>>,
    /// Number of rows after the backup.
    rows: u64,
    /// The last row of the trail, also if it is in the backup.
    last: Option<LastRow>,
}

/// The last row of an exported trail. Nothing is known about decisions after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRow {
    /// Sequence number of the row.
    pub sequence: i64,
    /// When the row was recorded.
    pub at: WireTime,
}

/// The membership of an audit row `JoinTenant`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct JoinedMembership {
    user: Option<Uuid>,
    tenant: Option<TenantName>,
}

/// A user who was suspended after the backup and is not in it. They can sign in at a provider as a
/// new user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserNotInBackup {
    /// Identifier of the user in the trail.
    pub id: Uuid,
    /// How the trail says that they were created, for example `from google, role user`.
    pub created: Option<String>,
}

/// A membership that was suspended after the backup and is not in it. The person can join the tenant
/// again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipNotInBackup {
    /// Identifier of the membership in the trail.
    pub id: Uuid,
    /// The person.
    pub user: Option<Uuid>,
    /// The tenant.
    pub tenant: Option<TenantName>,
}

/// Suspensions of a trail that a restore applied again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReappliedSuspensions {
    /// Rows of the trail after the backup.
    pub rows: u64,
    /// Users who were suspended.
    pub users: u64,
    /// Workspaces that were suspended, those of these users included.
    pub workspaces: u64,
    /// Tenants that were suspended.
    pub tenants: u64,
    /// Suspended users who are not in the backup. Nothing was repeated for them.
    pub not_in_backup: Vec<UserNotInBackup>,
    /// Suspended memberships that are not in the backup. Nothing was repeated for them.
    pub memberships_not_in_backup: Vec<MembershipNotInBackup>,
    /// The last row of the trail; `None` if it has no rows.
    pub last: Option<LastRow>,
}

impl SuspensionsAfterBackup {
    /// Reads the rows after `head` of an exported trail, which must be verifiable and contain that
    /// head. The file is read once, so it may be a pipe.
    ///
    /// # Errors
    /// The file cannot be read, is not intact, or does not continue the backup.
    pub(super) fn read(path: &Path, keys: &PublicKeys, head: Head) -> Result<Self, BackupError> {
        let failed = BackupError::reading(path);
        let refused = |why: String| BackupError::Trail { path: path.to_owned(), why };
        let lines = File::open(path).map(BufReader::new).map_err(failed)?;
        let mut decisions = Self::default();
        let report = verify_file_rows(
            lines,
            keys,
            Start::Whole,
            Some(head),
            |_| {},
            |sealed| {
                let (sequence, entry) = (sealed.sequence, AuditEntry::from(sealed.row));
                decisions.last = Some(LastRow { sequence, at: entry.created_at });
                if sequence > head.sequence {
                    decisions.add(&entry);
                }
            },
        )
        .map_err(failed)?;
        if let Some(fault) = report.fault {
            return Err(refused(format!("{fault}; the backup ends with row {head}")));
        }
        let wanted = report.head.sequence - head.sequence;
        if i64::try_from(decisions.rows) != Ok(wanted) {
            let rows = decisions.rows;
            return Err(refused(format!("{rows} rows were read after the backup, not {wanted}")));
        }
        Ok(decisions)
    }

    fn add(&mut self, entry: &AuditEntry) {
        self.rows += 1;
        if entry.outcome != "success" {
            return;
        }
        let is = |action: Action| entry.action == action.as_str();
        // Who signs in at a provider for the first time creates themselves.
        if is(Action::CreateUser)
            && let Some(user) = entry.subject_user_id.or(entry.user_id)
        {
            self.created.insert(user, entry.reason.clone());
        }
        if (is(Action::SuspendUser) || is(Action::ResumeUser))
            && let Some(user) = entry.subject_user_id
        {
            self.users.insert(user, is(Action::SuspendUser));
        }
        if (is(Action::SuspendWorkspace) || is(Action::ResumeWorkspace))
            && let Some(workspace) = entry.workspace_id
        {
            self.workspaces.insert(workspace, is(Action::SuspendWorkspace));
        }
        let tenant = || entry.reason.as_deref().and_then(tenant_of_decision);
        if (is(Action::SuspendTenant) || is(Action::ResumeTenant))
            && let Some(tenant) = tenant()
        {
            self.tenants.insert(tenant, is(Action::SuspendTenant));
        }
        if is(Action::JoinTenant)
            && let Some(membership) = entry.workspace_id
        {
            let user = entry.subject_user_id.or(entry.user_id);
            self.joined.insert(membership, JoinedMembership { user, tenant: tenant() });
        }
    }

    /// Suspends in a restored database who and what was suspended last.
    ///
    /// # Errors
    /// The database failed.
    pub(super) async fn repeat(
        &self,
        tx: &mut Tx,
        clock: &Clock,
    ) -> sqlx::Result<ReappliedSuspensions> {
        const WHY: &str = "repeated from the audit trail, because the restored backup is older";
        let mut done = ReappliedSuspensions {
            rows: self.rows,
            last: self.last,
            ..ReappliedSuspensions::default()
        };
        for (user, _) in self.users.iter().filter(|(_, suspended)| **suspended) {
            if !users::exists(tx, *user).await? {
                let created = self.created.get(user).cloned().flatten();
                done.not_in_backup.push(UserNotInBackup { id: *user, created });
                continue;
            }
            if users::set_suspended(tx, *user).await? {
                let event =
                    Event { reason: Some(WHY.to_owned()), ..Event::success(Action::SuspendUser) };
                audit::record(tx, clock, event.to_user(*user)).await?;
                done.users += 1;
            }
            done.workspaces += workspace::suspend_restored_of(tx, clock, *user, WHY).await?;
        }
        for (id, _) in self.workspaces.iter().filter(|(_, suspended)| **suspended) {
            let suspended = workspace::suspend_restored(tx, clock, *id, WHY).await?;
            done.workspaces += u64::from(suspended);
            if let Some(JoinedMembership { user, tenant }) = self.joined.get(id)
                && !workspace::is_restored(tx, *id).await?
            {
                let (id, user, tenant) = (*id, *user, tenant.clone());
                done.memberships_not_in_backup.push(MembershipNotInBackup { id, user, tenant });
            }
        }
        for (name, _) in self.tenants.iter().filter(|(_, suspended)| **suspended) {
            let suspended = tenant::suspend_restored_tenant(tx, clock, name, WHY).await?;
            done.tenants += u64::from(suspended);
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_successful_decision_counts() {
        let (one, two, three) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
        let mut decisions = SuspensionsAfterBackup::default();
        for (action, outcome, id) in [
            ("SuspendUser", "success", one),
            ("ResumeUser", "refused", one),
            ("SuspendUser", "success", two),
            ("ResumeUser", "success", two),
            ("SuspendUser", "refused", three),
            ("SignIn", "success", three),
            ("CreateUser", "refused", one),
            ("CreateUser", "success", three),
        ] {
            decisions.add(&AuditEntry {
                action: action.to_owned(),
                outcome: outcome.to_owned(),
                subject_user_id: Some(id),
                ..AuditEntry::default()
            });
        }
        for (action, id) in
            [("SuspendWorkspace", one), ("ResumeWorkspace", one), ("SuspendWorkspace", two)]
        {
            decisions.add(&AuditEntry {
                action: action.to_owned(),
                outcome: "success".to_owned(),
                workspace_id: Some(id),
                ..AuditEntry::default()
            });
        }
        for (action, outcome, reason) in [
            ("SuspendTenant", "success", "tenant solar: leak"),
            ("ResumeTenant", "refused", "tenant solar"),
            ("SuspendTenant", "success", "tenant lunar"),
            ("ResumeTenant", "success", "tenant lunar: SuspendTenant"),
            ("JoinTenant", "success", "tenant solar"),
            ("JoinTenant", "refused", "tenant lunar"),
        ] {
            decisions.add(&AuditEntry {
                action: action.to_owned(),
                outcome: outcome.to_owned(),
                user_id: Some(one),
                workspace_id: Some(three),
                reason: Some(reason.to_owned()),
                ..AuditEntry::default()
            });
        }
        let [solar, lunar] = ["solar", "lunar"].map(|name| name.parse::<TenantName>().unwrap());
        assert_eq!(decisions.tenants, BTreeMap::from([(solar.clone(), true), (lunar, false)]));
        let joined = JoinedMembership { user: Some(one), tenant: Some(solar) };
        assert_eq!(decisions.joined, BTreeMap::from([(three, joined)]));
        assert_eq!(decisions.users, BTreeMap::from([(one, true), (two, false)]));
        assert_eq!(decisions.workspaces, BTreeMap::from([(one, false), (two, true)]));
        assert_eq!(decisions.created, BTreeMap::from([(three, None)]));
        assert_eq!(decisions.rows, 17);
    }
}
