//! Whether the namespace of a workspace is still the one that the broker made.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{Api, ResourceExt as _};
use tenant_shared::{SERVICE_ACCOUNT_NAME, WORKSPACE_LABEL};
use uuid::Uuid;

use super::{Cluster, ClusterError, object::label};

/// The uids (`metadata.uid`) of what the broker made for a workspace, as far as they are on record.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordedUids<'a> {
    /// Of the namespace.
    pub namespace: Option<&'a str>,
    /// Of the ServiceAccount that tokens are asked of.
    pub service_account: Option<&'a str>,
    /// Of the one before it, which is to be deleted.
    pub retired_service_account: Option<&'a str>,
}

/// What the namespace of a workspace is to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceStanding {
    /// It carries the label of the workspace.
    Managed {
        /// Its uid.
        uid: String,
    },
    /// It is the one that the broker made, and somebody took the label off: no policy holds there.
    Relabelled {
        /// Its uid.
        uid: String,
    },
    /// It is another one of the same name.
    Foreign,
    /// There is none.
    Missing,
}

impl Cluster {
    /// Looks at the namespace of a workspace.
    ///
    /// # Errors
    /// The cluster's.
    pub async fn namespace_standing(
        &self,
        namespace: &str,
        workspace: Uuid,
        recorded: RecordedUids<'_>,
    ) -> Result<NamespaceStanding, ClusterError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let Some(there) = api.get_opt(namespace).await? else {
            return Ok(NamespaceStanding::Missing);
        };
        let uid = there.uid().unwrap_or_default();
        if label(&there, WORKSPACE_LABEL) == Some(workspace.to_string()) {
            return Ok(NamespaceStanding::Managed { uid });
        }
        match recorded.namespace {
            Some(known) if known == uid => return Ok(NamespaceStanding::Relabelled { uid }),
            Some(_) => return Ok(NamespaceStanding::Foreign),
            None => {}
        }
        // Workspaces of before the namespace's uid was recorded.
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let account = api.get_opt(SERVICE_ACCOUNT_NAME).await?.and_then(|it| it.uid());
        let known = [recorded.service_account, recorded.retired_service_account];
        Ok(match account {
            Some(account) if known.contains(&Some(&*account)) => {
                NamespaceStanding::Relabelled { uid }
            }
            _ => NamespaceStanding::Foreign,
        })
    }
}
