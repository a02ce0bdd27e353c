//! Rows of the table `workspaces`.

use sqlx::FromRow;
use tenant_shared::{Quota, Workspace, WorkspaceStatus};
use uuid::Uuid;

use super::restored::UNKNOWN_ACCOUNT;
use crate::{
    access::{Grants, Resource},
    base::clock::timestamp,
    cluster::RecordedUids,
    tenant::tenant_of_home,
    workspace::{WorkspaceError, progress, state::WorkspaceKind},
};

/// `sweep_at` of ServiceAccounts that are not replaced before the tenant is resumed, in
/// milliseconds since 1970: the end of the year 9999.
pub(super) const NEVER_MS: i64 = 253_402_300_799_000;

/// A row of `workspaces`. Holding one grants no permission.
#[derive(Clone, Debug, FromRow)]
pub struct WorkspaceRow {
    pub(in crate::workspace) id: Uuid,
    pub(in crate::workspace) tenant_id: Uuid,
    pub(in crate::workspace) user_id: Uuid,
    pub(in crate::workspace) cluster: String,
    /// Its own namespace; of a membership, the home of its tenant.
    pub(in crate::workspace) k8s_namespace: String,
    /// The home of its tenant; `None` for a personal workspace.
    home_namespace: Option<String>,
    pub(in crate::workspace) k8s_sa_name: String,
    pub(in crate::workspace) k8s_namespace_uid: Option<String>,
    pub(in crate::workspace) k8s_sa_uid: Option<String>,
    pub(in crate::workspace) retired_sa_uid: Option<String>,
    pub(in crate::workspace) tier: String,
    pub(super) quota_cpu: String,
    pub(super) quota_memory: String,
    pub(super) status: String,
    pub(in crate::workspace) status_changed_at: i64,
    pub(super) created_at: i64,
    pub(in crate::workspace) sweep_at: i64,
    pub(in crate::workspace) sweep_attempts: i64,
    pub(in crate::workspace) open_step: Option<String>,
    left_status: Option<String>,
}

/// The status of a workspace and its ServiceAccount.
#[derive(Clone, Debug, FromRow)]
pub struct WorkspaceStatusRow {
    pub id: Uuid,
    status: String,
    /// Uid of its current ServiceAccount; `None` while there is none to issue tokens for.
    #[sqlx(rename = "k8s_sa_uid")]
    pub service_account_uid: Option<String>,
}

impl WorkspaceStatusRow {
    #[cfg(test)]
    pub(crate) fn for_tests(id: Uuid, status: WorkspaceStatus, account: Option<&str>) -> Self {
        let service_account_uid = account.map(str::to_owned);
        Self { id, status: status.as_str().to_owned(), service_account_uid }
    }

    /// The status. A value that this version does not know counts as failed.
    pub fn status(&self) -> WorkspaceStatus {
        WorkspaceStatus::parse(&self.status).unwrap_or(WorkspaceStatus::Failed)
    }
}

impl Resource for WorkspaceRow {
    type Id = Uuid;

    fn id(&self) -> Uuid {
        self.id
    }

    fn workspace(&self) -> Option<Uuid> {
        Some(self.id)
    }

    fn grants(&self) -> Grants {
        Grants::owned_by(self.user_id)
    }
}

impl WorkspaceRow {
    /// The status. A value that this version does not know counts as failed, so nothing is issued.
    pub fn status(&self) -> WorkspaceStatus {
        WorkspaceStatus::parse(&self.status).unwrap_or(WorkspaceStatus::Failed)
    }

    /// Name of its namespace in the cluster.
    pub fn namespace(&self) -> &str {
        &self.k8s_namespace
    }

    /// Name of the ServiceAccount that tokens are issued for.
    pub fn service_account(&self) -> &str {
        &self.k8s_sa_name
    }

    /// Name of the cluster that it is in.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Identifier of the tenant that it is a membership in. A personal workspace has a tenant
    /// without a name.
    pub fn tenant_id(&self) -> Uuid {
        self.tenant_id
    }

    /// Name of the tenant that it is a membership in; `None` for a personal workspace.
    pub fn tenant_name(&self) -> Option<String> {
        let home = self.home_namespace.as_deref()?;
        Some(tenant_of_home(home).map_or_else(|| home.to_owned(), |name| name.to_string()))
    }

    /// The objects that it consists of.
    pub(in crate::workspace) fn kind(&self) -> WorkspaceKind {
        match self.home_namespace {
            Some(_) => WorkspaceKind::Membership,
            None => WorkspaceKind::Personal,
        }
    }

    /// The status in which its user left the tenant; `None` while the user is a member, and for a
    /// personal workspace. A value that this version does not know counts as suspended, so the user
    /// does not get back what an administrator took.
    pub(in crate::workspace) fn former_status(&self) -> Option<WorkspaceStatus> {
        let status = self.left_status.as_deref()?;
        Some(WorkspaceStatus::parse(status).unwrap_or(WorkspaceStatus::Suspended))
    }

    /// Checks that the user did not leave the tenant.
    ///
    /// # Errors
    /// [`WorkspaceError::NotMember`].
    pub(in crate::workspace) fn require_member(&self) -> Result<(), WorkspaceError> {
        match (&self.left_status, self.tenant_name()) {
            (Some(_), Some(tenant)) => Err(WorkspaceError::NotMember(tenant)),
            _ => Ok(()),
        }
    }

    /// The recorded uids of its objects.
    pub(in crate::workspace) fn recorded_uids(&self) -> RecordedUids<'_> {
        RecordedUids {
            namespace: self.k8s_namespace_uid.as_deref(),
            service_account: self.k8s_sa_uid.as_deref(),
            retired_service_account: self.retired_sa_uid.as_deref(),
        }
    }

    /// Whether an object that grants rights was ever created for it.
    pub(in crate::workspace) fn had_rights(&self) -> bool {
        let uids = [&self.k8s_namespace_uid, &self.k8s_sa_uid, &self.retired_sa_uid];
        uids.iter().any(|uid| uid.is_some())
    }

    /// Whether its ServiceAccount has to be replaced before anything is issued.
    pub(crate) fn is_rotating(&self) -> bool {
        self.status() == WorkspaceStatus::Provisioned && self.retired_sa_uid.is_some()
    }

    /// The tenant whose suspension or end retired its ServiceAccount.
    pub(in crate::workspace) fn inactive_tenant(&self) -> Option<String> {
        let is_held = self.is_rotating() && self.sweep_at == NEVER_MS;
        self.tenant_name().filter(|_| is_held)
    }

    /// Whether its retired ServiceAccount is the one that the cluster has, whichever that is,
    /// because a backup was restored.
    pub(in crate::workspace) fn has_unknown_account(&self) -> bool {
        self.retired_sa_uid.as_deref() == Some(UNKNOWN_ACCOUNT)
    }

    /// Whether tokens are requested for the ServiceAccount with this uid.
    pub(crate) fn issues_with(&self, uid: &str) -> bool {
        self.status() == WorkspaceStatus::Provisioned && self.k8s_sa_uid.as_deref() == Some(uid)
    }

    /// The API form of the row, without drift.
    pub fn to_api(&self) -> Workspace {
        Workspace {
            id: self.id,
            namespace: self.k8s_namespace.clone(),
            status: self.status(),
            quota: Quota { cpu: self.quota_cpu.clone(), memory: self.quota_memory.clone() },
            tier: self.tier.clone(),
            cluster: self.cluster.clone(),
            owner: self.user_id,
            owner_email: None,
            created_at: timestamp(self.created_at).into(),
            unfinished: progress::unfinished(self),
            drift: Vec::new(),
            tenant: self.tenant_name(),
        }
    }
}
