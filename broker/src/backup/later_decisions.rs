//! Suspensions that were decided after a backup, from an exported audit trail. Only what revokes
//! access is repeated, so a wrong trail can lock people out, but let nobody in.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader},
    path::Path,
};

use tenant_shared::AuditEntry;
use uuid::Uuid;

use super::error::BackupError;
use crate::{
    audit::{
        self, Action, Event,
        chain::{Head, Line, Start, verify_file},
    },
    base::{clock::Clock, db::Tx, signing::PublicKeys},
    identity::users,
    workspace,
};

/// The last decision of a trail on each user and workspace, after a backup.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LaterDecisions {
    /// Whether each user was suspended last, and not resumed.
    users: BTreeMap<Uuid, bool>,
    /// Whether each workspace was suspended last, and not resumed.
    workspaces: BTreeMap<Uuid, bool>,
    /// Number of rows after the backup.
    rows: u64,
}

/// What a restore repeated of a trail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepeatedDecisions {
    /// Rows of the trail after the backup.
    pub rows: u64,
    /// Users who were suspended.
    pub users: u64,
    /// Workspaces that were suspended, those of these users included.
    pub workspaces: u64,
}

impl LaterDecisions {
    /// Reads the rows after `head` of an exported trail, which must be verifiable and contain that
    /// head.
    ///
    /// # Errors
    /// The file cannot be read, is not intact, or does not continue the backup.
    pub(super) fn read(path: &Path, keys: &PublicKeys, head: Head) -> Result<Self, BackupError> {
        let failed = BackupError::reading(path);
        let open = || File::open(path).map(BufReader::new).map_err(failed);
        let refused = |why: String| BackupError::Trail { path: path.to_owned(), why };
        let report =
            verify_file(open()?, keys, Start::Whole, Some(head), |_| {}).map_err(failed)?;
        if let Some(fault) = report.fault {
            return Err(refused(format!("{fault}; the backup ends with row {head}")));
        }
        let mut decisions = Self::default();
        for text in open()?.lines() {
            let line = Line::parse(&text.map_err(failed)?).map_err(refused)?;
            if let Line::Row(sealed) = line
                && sealed.sequence > head.sequence
            {
                decisions.add(&AuditEntry::from(sealed.row));
            }
        }
        Ok(decisions)
    }

    fn add(&mut self, entry: &AuditEntry) {
        self.rows += 1;
        if entry.outcome != "success" {
            return;
        }
        let is = |action: Action| entry.action == action.as_str();
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
    }

    /// Suspends in a restored database who and what was suspended last.
    ///
    /// # Errors
    /// The database failed.
    pub(super) async fn repeat(
        &self,
        tx: &mut Tx,
        clock: &Clock,
    ) -> sqlx::Result<RepeatedDecisions> {
        const WHY: &str = "repeated from the audit trail, because the restored backup is older";
        let mut done = RepeatedDecisions { rows: self.rows, ..RepeatedDecisions::default() };
        for (user, _) in self.users.iter().filter(|(_, suspended)| **suspended) {
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
        let mut decisions = LaterDecisions::default();
        for (action, outcome, id) in [
            ("SuspendUser", "success", one),
            ("ResumeUser", "refused", one),
            ("SuspendUser", "success", two),
            ("ResumeUser", "success", two),
            ("SuspendUser", "refused", three),
            ("SignIn", "success", three),
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
        assert_eq!(decisions.users, BTreeMap::from([(one, true), (two, false)]));
        assert_eq!(decisions.workspaces, BTreeMap::from([(one, false), (two, true)]));
        assert_eq!(decisions.rows, 9);
    }
}
