//! Ownership of a namespace: whether it is still the one that the broker made for a workspace.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{Api, ResourceExt as _};
use tenant_shared::{SERVICE_ACCOUNT_NAME, WORKSPACE_LABEL};
use uuid::Uuid;

use crate::cluster::{Cluster, ClusterError, objects::labels::label};

/// The recorded uids (`metadata.uid`) of the objects that the broker made for a workspace.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordedUids<'a> {
    pub namespace: Option<&'a str>,
    /// Uid of the ServiceAccount that tokens are requested for.
    pub service_account: Option<&'a str>,
    /// Uid of the previous ServiceAccount, which is to be deleted.
    pub retired_service_account: Option<&'a str>,
}

/// The relation of a namespace to the workspace of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceOwnership {
    /// It carries the label of the workspace.
    Managed {
        /// Uid of the namespace.
        uid: String,
    },
    /// It is the one that the broker made, but somebody removed the label, so no admission policy
    /// applies to it.
    Relabelled {
        /// Uid of the namespace.
        uid: String,
    },
    /// It is another namespace of the same name.
    Foreign,
    /// It does not exist.
    Missing,
}

impl Cluster {
    /// Gets the namespace of a workspace and determines its ownership.
    ///
    /// # Errors
    /// The request failed.
    pub async fn namespace_ownership(
        &self,
        namespace: &str,
        workspace: Uuid,
        recorded: RecordedUids<'_>,
    ) -> Result<NamespaceOwnership, ClusterError> {
        let api: Api<Namespace> = Api::all(self.client());
        let Some(existing) = api.get_opt(namespace).await? else {
            return Ok(NamespaceOwnership::Missing);
        };
        let uid = existing.uid().unwrap_or_default();
        if label(&existing, WORKSPACE_LABEL) == Some(workspace.to_string()) {
            return Ok(NamespaceOwnership::Managed { uid });
        }
        match recorded.namespace {
            Some(recorded) if recorded == uid => return Ok(NamespaceOwnership::Relabelled { uid }),
            Some(_) => return Ok(NamespaceOwnership::Foreign),
            None => {}
        }
        // The workspace was made before uids of namespaces were recorded.
        let api: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let account = api.get_opt(SERVICE_ACCOUNT_NAME).await?.and_then(|it| it.uid());
        let recorded_accounts = [recorded.service_account, recorded.retired_service_account];
        Ok(match account {
            Some(account) if recorded_accounts.contains(&Some(&*account)) => {
                NamespaceOwnership::Relabelled { uid }
            }
            _ => NamespaceOwnership::Foreign,
        })
    }
}
