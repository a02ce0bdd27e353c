//! Another ServiceAccount in the place of one whose tokens must die.
//!
//! The uid of the old one is written down first, and from that commit nothing is issued with it.
//! Then it is deleted and made again under the same name, so that the RoleBinding stays good. A token
//! names the uid of its ServiceAccount, so no old one ever works again, except for what the API
//! server remembers: a token that it accepted is accepted for ten seconds more.

use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use super::{Found, Steps, WorkspaceError, Workspaces, objects, store};
use crate::{
    audit::{self, Action},
    cluster::{ClusterError, Object},
    db::Tx,
};

/// Steps of a rotation after the decision is on record.
pub(crate) const ROTATION: [&str; 3] =
    ["delete_service_account", "create_service_account", "finish"];

impl Workspaces {
    /// Writes down, in a transaction that does more, that the ServiceAccount of this uid has to go;
    /// `false` if it is not the one that tokens are asked of. From the commit on nothing is issued
    /// until [`Workspaces::rotate`] or the sweep has made another.
    ///
    /// # Errors
    /// The database's.
    pub(crate) async fn intend_rotation(
        &self,
        tx: &mut Tx,
        workspace: Uuid,
        uid: &str,
    ) -> sqlx::Result<bool> {
        store::retire_service_account(tx, &self.clock, workspace, uid).await
    }

    /// Does what was written down, if anything was. Two at once do no harm: only the ServiceAccount
    /// of the old uid is deleted, and both find the same new one.
    ///
    /// # Errors
    /// The cluster or the database failed, and the sweep goes on; or the workspace was suspended
    /// meanwhile.
    pub(crate) async fn rotate(
        &self,
        found: &Found,
        steps: &mut Steps,
    ) -> Result<(), WorkspaceError> {
        let Some(retired) = found.retired_sa_uid.as_deref().filter(|_| found.is_rotating()) else {
            return Ok(());
        };
        let namespace = found.k8s_namespace.as_str();
        let deleted = Box::pin(self.cluster.delete_service_account(namespace, Some(retired)));
        steps.run("delete_service_account", deleted).await?;
        let made = self.make_service_account(found, retired);
        let uid = steps.run("create_service_account", made).await?;
        steps.run("finish", self.finish_rotation(found, retired, &uid)).await
    }

    /// The workspace as it is when no rotation is left to be done.
    ///
    /// # Errors
    /// As [`Workspaces::rotate`].
    pub(crate) async fn ready(&self, found: Found) -> Result<Found, WorkspaceError> {
        if !found.is_rotating() {
            return Ok(found);
        }
        self.rotate(&found, &mut Steps::default()).await?;
        Ok(store::by_id(&self.db, found.id).await?.ok_or(sqlx::Error::RowNotFound)?)
    }

    async fn make_service_account(
        &self,
        found: &Found,
        retired: &str,
    ) -> Result<String, ClusterError> {
        let account = objects::service_account(found.id, &found.k8s_namespace);
        let outcome =
            self.cluster.create_or_verify(&Object::ServiceAccount(Box::new(account))).await?;
        if outcome.uid == retired {
            // Somebody gave it a finalizer: it is there until that is gone.
            return Err(ClusterError::Conflict("the old ServiceAccount is still there".to_owned()));
        }
        Ok(outcome.uid)
    }

    async fn finish_rotation(
        &self,
        found: &Found,
        retired: &str,
        uid: &str,
    ) -> Result<(), WorkspaceError> {
        let mut tx = self.db.begin().await?;
        if store::replace_service_account(&mut tx, found.id, retired, uid).await? {
            let event = audit::Event {
                workspace_id: Some(found.id),
                ..audit::Event::success(Action::ServiceAccountReplaced)
            };
            audit::record(&mut tx, &self.clock, event).await?;
            tx.commit().await?;
            self.metrics.action(Action::ServiceAccountReplaced, "success");
            return Ok(());
        }
        drop(tx);
        let now = store::by_id(&self.db, found.id).await?.ok_or(sqlx::Error::RowNotFound)?;
        match now.status() {
            WorkspaceStatus::Suspending | WorkspaceStatus::Suspended => {
                // The kill switch came in between; what was made since must go again.
                self.revoke_again(&now).await?;
                Err(WorkspaceError::Suspended)
            }
            // Another replica was faster.
            _ => Ok(()),
        }
    }
}
