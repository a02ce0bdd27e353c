//! Drift of memberships in tenants: their ServiceAccounts. The tenant has all other objects.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt as _;
use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use super::examine::{Examination, examine_object};
use crate::{
    cluster::{Cluster, Difference, Object},
    workspace::{
        WorkspaceError, WorkspaceRow, Workspaces, membership::require_home, objects,
        store::membership,
    },
};

impl Workspaces {
    /// Adds the memberships of a cluster whose ServiceAccount is missing, replaced or unexpected.
    pub(super) async fn compare_memberships(
        &self,
        cluster: &Cluster,
        steady: &[WorkspaceRow],
        suspects: &mut BTreeSet<Uuid>,
    ) -> Result<(), WorkspaceError> {
        if steady.is_empty() {
            return Ok(());
        }
        let mut uids = BTreeMap::new();
        cluster
            .list_of_tenants(|account: ServiceAccount| {
                let place = (account.namespace().unwrap_or_default(), account.name_any());
                uids.insert(place, account.uid());
            })
            .await?;
        for workspace in steady {
            let place = (workspace.namespace().to_owned(), workspace.service_account().to_owned());
            if !is_intact(workspace, uids.get(&place).and_then(Option::as_deref)) {
                suspects.insert(workspace.id);
            }
        }
        Ok(())
    }

    /// Examines the ServiceAccount of a membership, records its drift and repairs it.
    pub(super) async fn examine_membership(
        &self,
        workspace: &WorkspaceRow,
    ) -> Result<(), WorkspaceError> {
        // A suspended tenant has no ServiceAccounts until it is resumed.
        if workspace.is_rotating() {
            return Ok(());
        }
        let cluster = self.cluster_of(workspace)?;
        let mut examination = Examination::default();
        if workspace.status() == WorkspaceStatus::Suspended {
            let (home, name) = (workspace.namespace(), workspace.service_account());
            if !membership::is_succeeded(&self.db, workspace).await?
                && cluster.service_account_uid(home, name).await?.is_some()
            {
                examination.add_finding("ServiceAccount", Difference::Unexpected);
            }
        } else {
            match require_home(cluster, workspace).await {
                Ok(uid) => self.store_namespace_uid(workspace, &uid).await?,
                // The tenant gets its home back, or is suspended, before its members get accounts.
                Err(
                    WorkspaceError::NoHome(_)
                    | WorkspaceError::TenantNotActive(_)
                    | WorkspaceError::Conflict(_),
                ) => return Ok(()),
                Err(error) => return Err(error),
            }
            let account = Object::ServiceAccount(Box::new(objects::account_of(workspace)));
            examine_object(cluster, workspace, None, account, &mut examination).await?;
        }
        self.record_and_repair(workspace, examination).await
    }
}

/// Whether a membership has the ServiceAccount that it should have, if the account of its name has
/// this uid.
fn is_intact(workspace: &WorkspaceRow, uid: Option<&str>) -> bool {
    match workspace.status() {
        WorkspaceStatus::Suspended => uid.is_none(),
        _ => uid.is_some() && uid == workspace.k8s_sa_uid.as_deref(),
    }
}
