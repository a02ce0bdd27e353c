//! Workspaces after the restore of a backup. Their rows are older than the cluster, so nothing in
//! them revives access that ended since:
//!
//! | in the backup | after the restore |
//! |---|---|
//! | provisioned | its ServiceAccount is replaced, whichever the cluster has, before anything is issued |
//! | provisioned or provisioning, and the namespace has the suspended label | suspended |
//! | provisioning, failed | the ServiceAccount that the cluster has is deleted before the next one |
//! | suspending, suspended, resuming | suspended again, with all its steps |
//!
//! A namespace whose workspace is not in the backup is reported ([`orphaned_namespaces`]) and never
//! changed.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use tenant_shared::WorkspaceStatus as Status;
use uuid::Uuid;

use super::{
    WorkspaceError, WorkspaceRow, Workspaces,
    audit_events::broker_event,
    state::{Event, WorkspaceKind},
    store::{self, membership, restored},
};
use crate::{
    audit::{self, Action},
    base::{
        clock::Clock,
        db::{Db, Tx},
        lease,
    },
    cluster::{Cluster, NamespaceOwnership},
};

/// Rows of workspaces in one read.
const ROWS_PER_READ: u32 = 1_000;

/// Numbers of workspaces that a restore changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RestoredWorkspaces {
    /// Workspaces that get another ServiceAccount.
    pub(crate) replaced: u64,
    /// Workspaces that are suspended again.
    pub(crate) suspended: u64,
}

/// Changes the rows of a restored database as the table of this module says. The sweep does the
/// rest in the cluster.
///
/// # Errors
/// The database failed.
pub(crate) async fn invalidate_restored(
    tx: &mut Tx,
    clock: &Clock,
) -> sqlx::Result<RestoredWorkspaces> {
    lease::delete_all(tx).await?;
    let replaced = restored::retire_accounts(tx, clock, Status::Provisioned).await?;
    for status in [Status::Provisioning, Status::Failed] {
        restored::retire_accounts(tx, clock, status).await?;
    }
    let mut suspended = 0;
    for status in [Status::Suspending, Status::Suspended, Status::Resuming] {
        suspended += restored::suspend_all(tx, clock, status).await?;
    }
    Ok(RestoredWorkspaces { replaced, suspended })
}

/// Schedules the suspension of a workspace that was suspended after the backup; `false` if it is
/// not in the backup, or is suspended there. A membership whose user left stays suspended if the user
/// joins again. The reason goes into the audit trail.
///
/// # Errors
/// The database failed.
pub(crate) async fn suspend_restored(
    tx: &mut Tx,
    clock: &Clock,
    id: Uuid,
    reason: &str,
) -> sqlx::Result<bool> {
    if !store::advance(tx, clock, id, Event::Suspend).await?
        && !membership::mark_suspended_on_rejoin(tx, id).await?
    {
        return Ok(false);
    }
    let event = audit::Event {
        workspace_id: Some(id),
        reason: Some(reason.to_owned()),
        ..audit::Event::success(Action::SuspendWorkspace)
    };
    audit::record(tx, clock, event).await?;
    Ok(true)
}

/// Whether a workspace is in the restored database.
///
/// # Errors
/// The database failed.
pub(crate) async fn is_restored(tx: &mut Tx, id: Uuid) -> sqlx::Result<bool> {
    restored::exists(tx, id).await
}

/// Like [`suspend_restored`], for all workspaces of a user. Returns their number.
///
/// # Errors
/// The database failed.
pub(crate) async fn suspend_restored_of(
    tx: &mut Tx,
    clock: &Clock,
    user: Uuid,
    reason: &str,
) -> sqlx::Result<u64> {
    let mut suspended = 0;
    for workspace in store::for_user_in(tx, user).await? {
        suspended += u64::from(suspend_restored(tx, clock, workspace.id, reason).await?);
    }
    Ok(suspended)
}

/// Names of the managed namespaces of a cluster that no workspace in the database has, sorted. They
/// are of workspaces that were created after a restored backup, or of another broker.
///
/// # Errors
/// The cluster or the database failed.
pub async fn orphaned_namespaces(
    cluster: &Cluster,
    db: &Db,
) -> Result<BTreeSet<String>, WorkspaceError> {
    let mut names = BTreeSet::new();
    cluster
        .list_managed(|namespace: Namespace| {
            names.insert(namespace.name_any());
        })
        .await?;
    let mut after = Uuid::nil();
    loop {
        let rows = restored::namespaces(db, cluster.name(), after, ROWS_PER_READ).await?;
        let Some((last, _)) = rows.last() else { return Ok(names) };
        after = *last;
        for (_, namespace) in &rows {
            names.remove(namespace);
        }
    }
}

impl Workspaces {
    /// Finds out and records which ServiceAccount a restored workspace has in the cluster, and
    /// returns the row with it. A workspace that was suspended in the cluster is suspended instead.
    ///
    /// # Errors
    /// [`WorkspaceError::Suspended`]; the namespace is not the broker's or does not exist, which
    /// drift detection reports; or the cluster or the database failed.
    pub(super) async fn identify_account(
        &self,
        workspace: &WorkspaceRow,
    ) -> Result<WorkspaceRow, WorkspaceError> {
        let (cluster, namespace) = (self.cluster_of(workspace)?, workspace.k8s_namespace.as_str());
        let name = workspace.service_account();
        if workspace.kind() == WorkspaceKind::Membership {
            // It is known by its name, whatever became of the home.
            let account = cluster.service_account_uid(namespace, name).await?;
            return self.record_account(workspace, account.as_deref()).await;
        }
        let ownership =
            cluster.namespace_ownership(namespace, workspace.id, workspace.recorded_uids()).await?;
        // The creation of the objects decides about another namespace of the name.
        let may_be_missing = workspace.status() == Status::Provisioning;
        let account = match ownership {
            NamespaceOwnership::Managed { .. } => {
                if cluster.is_marked_suspended(namespace).await? {
                    self.keep_suspended(workspace).await?;
                    return Err(WorkspaceError::Suspended);
                }
                cluster.service_account_uid(namespace, name).await?
            }
            NamespaceOwnership::Missing | NamespaceOwnership::Foreign if may_be_missing => None,
            NamespaceOwnership::Relabelled { .. } => {
                return Err(WorkspaceError::relabelled(workspace));
            }
            NamespaceOwnership::Missing => {
                return Err(WorkspaceError::Conflict(format!("there is no Namespace {namespace}")));
            }
            NamespaceOwnership::Foreign => {
                let why = format!("the Namespace {namespace} is not managed by the broker");
                return Err(WorkspaceError::Conflict(why));
            }
        };
        self.record_account(workspace, account.as_deref()).await
    }

    /// Records the uid of the ServiceAccount that the cluster has, and returns the row with it.
    async fn record_account(
        &self,
        workspace: &WorkspaceRow,
        uid: Option<&str>,
    ) -> Result<WorkspaceRow, WorkspaceError> {
        let uid = uid.unwrap_or(restored::NO_ACCOUNT);
        restored::identify_account(&self.db, workspace.id, uid).await?;
        Ok(store::by_id(&self.db, workspace.id).await?.ok_or(sqlx::Error::RowNotFound)?)
    }

    /// Deletes the retired ServiceAccount of a workspace whose provisioning was begun before a
    /// restore, so that its tokens end before the next account is recorded.
    ///
    /// # Errors
    /// See [`Self::identify_account`].
    pub(super) async fn delete_retired_account(
        &self,
        workspace: &WorkspaceRow,
    ) -> Result<(), WorkspaceError> {
        let identified;
        let workspace = if workspace.has_unknown_account() {
            identified = Box::pin(self.identify_account(workspace)).await?;
            &identified
        } else {
            workspace
        };
        let retired =
            workspace.retired_sa_uid.as_deref().filter(|uid| *uid != restored::NO_ACCOUNT);
        match retired {
            Some(uid) if workspace.status() == Status::Provisioning => {
                let cluster = self.cluster_of(workspace)?;
                let (namespace, name) = (workspace.namespace(), workspace.service_account());
                Ok(cluster.delete_service_account(namespace, name, Some(uid)).await?)
            }
            _ => Ok(()),
        }
    }

    /// Schedules the suspension of a workspace whose namespace was suspended after the backup.
    async fn keep_suspended(&self, workspace: &WorkspaceRow) -> Result<(), WorkspaceError> {
        let why =
            "the namespace has the suspended label: it was suspended after the restored backup";
        let event = audit::Event {
            reason: Some(why.to_owned()),
            ..broker_event(workspace, Action::SuspendWorkspace)
        };
        self.advance_and_record(workspace, Event::Suspend, event).await?;
        tracing::warn!(
            workspace_id = %workspace.id, namespace = workspace.k8s_namespace,
            "a restored workspace stays suspended, because its namespace is"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{On, SA_UID, Storage, on_both_engines};

    on_both_engines!(
        a_restored_row_grants_nothing,
        a_suspended_row_does_not_name_an_older_account,
        only_one_replica_identifies_the_account,
        a_suspension_after_the_backup_is_repeated_once,
    );

    async fn row(storage: &Storage, id: Uuid) -> WorkspaceRow {
        store::by_id(&storage.db, id).await.unwrap().unwrap()
    }

    async fn invalidate(storage: &Storage) -> RestoredWorkspaces {
        let mut tx = storage.db.begin().await.unwrap();
        let changed = invalidate_restored(&mut tx, &storage.clock).await.unwrap();
        tx.commit().await.unwrap();
        changed
    }

    async fn a_restored_row_grants_nothing(on: On) {
        let storage = Storage::new(on).await;
        let user = storage.user().await;
        let mut made = Vec::new();
        for status in Status::ALL {
            made.push((status, storage.workspace(user, status).await));
        }
        let changed = invalidate(&storage).await;
        assert_eq!(changed, RestoredWorkspaces { replaced: 1, suspended: 3 });
        for (before, id) in made {
            let now = row(&storage, id).await;
            let suspends =
                matches!(before, Status::Suspending | Status::Suspended | Status::Resuming);
            let expected = if suspends { Status::Suspending } else { before };
            assert_eq!(now.status(), expected, "{before:?}");
            assert_eq!(now.has_unknown_account(), !suspends, "{before:?}");
            assert_eq!(now.is_rotating(), before == Status::Provisioned, "{before:?}");
            assert!(!now.issues_with(SA_UID), "{before:?}");
        }
        let issuing = storage.number("SELECT COUNT(*) FROM active_service_accounts").await;
        assert_eq!(issuing, 0);
        // The sweep takes up all of them but the failed one.
        let due = store::work::due(&storage.db, storage.clock.now_ms(), 100).await.unwrap();
        assert_eq!(due.len(), Status::ALL.len() - 1);
    }

    async fn a_suspended_row_does_not_name_an_older_account(on: On) {
        let storage = Storage::new(on).await;
        let user = storage.user().await;
        let known = storage.workspace(user, Status::Suspended).await;
        let of_earlier_version = storage.workspace(user, Status::Suspended).await;
        let before = row(&storage, known).await;
        store::set_namespace_uid(&storage.db, &before, "ns-1").await.unwrap();
        invalidate(&storage).await;
        let now = row(&storage, known).await;
        assert_eq!(now.k8s_namespace_uid.as_deref(), Some("ns-1"));
        assert_eq!(now.k8s_sa_uid, None);
        // This uid is all that identifies the namespace.
        let now = row(&storage, of_earlier_version).await;
        assert_eq!(now.k8s_sa_uid.as_deref(), Some(SA_UID));
    }

    async fn only_one_replica_identifies_the_account(on: On) {
        let storage = Storage::new(on).await;
        let user = storage.user().await;
        let id = storage.workspace(user, Status::Provisioned).await;
        invalidate(&storage).await;
        for uid in ["sa-2", "sa-3"] {
            restored::identify_account(&storage.db, id, uid).await.unwrap();
            let now = row(&storage, id).await;
            assert_eq!(now.retired_sa_uid.as_deref(), Some("sa-2"));
            assert!(now.is_rotating() && !now.has_unknown_account());
        }
    }

    async fn a_suspension_after_the_backup_is_repeated_once(on: On) {
        let storage = Storage::new(on).await;
        let user = storage.user().await;
        let id = storage.workspace(user, Status::Provisioned).await;
        invalidate(&storage).await;
        let mut tx = storage.db.begin().await.unwrap();
        for (id, changes) in [(id, true), (id, false), (storage.clock.random_id(), false)] {
            let suspended = suspend_restored(&mut tx, &storage.clock, id, "why").await.unwrap();
            assert_eq!(suspended, changes);
        }
        tx.commit().await.unwrap();
        assert_eq!(row(&storage, id).await.status(), Status::Suspending);
        let rows = storage
            .number("SELECT COUNT(*) FROM audit_logs WHERE action = 'SuspendWorkspace'")
            .await;
        assert_eq!(rows, 1);
    }
}
