//! Create and verify: an object is made, or it is there already exactly as we would have made it.

use std::collections::BTreeMap;

use k8s_openapi::{
    ClusterResourceScope, NamespaceResourceScope,
    api::{
        core::v1::{LimitRange, Namespace, ResourceQuota, ServiceAccount},
        rbac::v1::RoleBinding,
    },
};
use kube::{Api, Resource, ResourceExt as _, api::PostParams, core::Status};
use serde::{Serialize, de::DeserializeOwned};
use tenant_shared::{MANAGED_BY_LABEL, MANAGED_BY_VALUE, WORKSPACE_LABEL};

use super::{Cluster, ClusterError};

/// An object of a workspace, as it has to be.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Object {
    /// The tenant's namespace.
    Namespace(Box<Namespace>),
    /// What it may use.
    ResourceQuota(Box<ResourceQuota>),
    /// What a container gets that names no limits.
    LimitRange(Box<LimitRange>),
    /// Whose tokens people get.
    ServiceAccount(Box<ServiceAccount>),
    /// What those tokens may do.
    RoleBinding(Box<RoleBinding>),
}

/// How an object came to be as it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Kind of the object.
    pub kind: &'static str,
    /// The object's `metadata.uid`.
    pub uid: String,
    /// Whether it was made just now.
    pub created: bool,
}

impl Cluster {
    /// Makes an object, or checks that the one that is there is ours and as it has to be.
    ///
    /// # Errors
    /// [`ClusterError::Conflict`] if it is not; the object is left as it is.
    pub async fn create_or_verify(&self, object: &Object) -> Result<Outcome, ClusterError> {
        match object {
            Object::Namespace(wanted) => {
                let api = cluster_api(self);
                ensure(&api, "Namespace", &**wanted, |there| {
                    let active = there.status.as_ref().and_then(|s| s.phase.as_deref());
                    let level = "pod-security.kubernetes.io/enforce";
                    differs("is being deleted", active.unwrap_or("Active") != "Active")?;
                    differs(
                        "enforces another pod security level",
                        label(there, level) != label(&**wanted, level),
                    )
                })
                .await
            }
            Object::ResourceQuota(wanted) => {
                let api = namespaced_api(self, &**wanted);
                ensure(&api, "ResourceQuota", &**wanted, |there| {
                    let hard =
                        |quota: &ResourceQuota| quota.spec.as_ref().and_then(|s| s.hard.clone());
                    differs("has another spec", hard(there) != hard(wanted))
                })
                .await
            }
            Object::LimitRange(wanted) => {
                let api = namespaced_api(self, &**wanted);
                ensure(&api, "LimitRange", &**wanted, |there| {
                    differs("has another spec", there.spec != wanted.spec)
                })
                .await
            }
            Object::ServiceAccount(wanted) => {
                let api = namespaced_api(self, &**wanted);
                ensure(&api, "ServiceAccount", &**wanted, |_| Ok(())).await
            }
            Object::RoleBinding(wanted) => {
                let api = namespaced_api(self, &**wanted);
                ensure(&api, "RoleBinding", &**wanted, |there| {
                    differs("binds another role", there.role_ref != wanted.role_ref)?;
                    differs("binds somebody else", there.subjects != wanted.subjects)
                })
                .await
            }
        }
    }
}

fn cluster_api<K>(cluster: &Cluster) -> Api<K>
where
    K: Resource<Scope = ClusterResourceScope, DynamicType = ()>,
{
    Api::all(cluster.client.clone())
}

fn namespaced_api<K>(cluster: &Cluster, object: &K) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(cluster.client.clone(), &object.namespace().unwrap_or_default())
}

/// What is wrong with an object that is there.
struct Difference(&'static str);

fn differs(what: &'static str, is_so: bool) -> Result<(), Difference> {
    if is_so { Err(Difference(what)) } else { Ok(()) }
}

async fn ensure<K>(
    api: &Api<K>,
    kind: &'static str,
    wanted: &K,
    compare: impl FnOnce(&K) -> Result<(), Difference>,
) -> Result<Outcome, ClusterError>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    match api.create(&PostParams::default(), wanted).await {
        Ok(made) => Ok(Outcome { kind, uid: made.uid().unwrap_or_default(), created: true }),
        Err(kube::Error::Api(status)) if already_exists(&status) => {
            let there = api.get(&wanted.name_any()).await?;
            let in_the_way =
                |what: &str| ClusterError::Conflict(format!("{kind} {} {what}", wanted.name_any()));
            if !is_ours(&there, wanted) {
                return Err(in_the_way("exists and is not ours"));
            }
            if there.meta().deletion_timestamp.is_some() {
                return Err(in_the_way("is being deleted"));
            }
            compare(&there).map_err(|Difference(what)| in_the_way(what))?;
            Ok(Outcome { kind, uid: there.uid().unwrap_or_default(), created: false })
        }
        Err(error) => Err(error.into()),
    }
}

fn already_exists(status: &Status) -> bool {
    status.code == 409
}

fn label<K: Resource>(object: &K, name: &str) -> Option<String> {
    object.meta().labels.as_ref().and_then(|labels| labels.get(name)).cloned()
}

/// Whether an object carries our labels and names the same workspace.
pub(super) fn is_ours<K: Resource>(there: &K, wanted: &K) -> bool {
    label(there, MANAGED_BY_LABEL).as_deref() == Some(MANAGED_BY_VALUE)
        && label(there, WORKSPACE_LABEL) == label(wanted, WORKSPACE_LABEL)
}

/// The labels of every object of a workspace.
pub fn labels_of(workspace: uuid::Uuid) -> BTreeMap<String, String> {
    BTreeMap::from([
        (MANAGED_BY_LABEL.to_owned(), MANAGED_BY_VALUE.to_owned()),
        (WORKSPACE_LABEL.to_owned(), workspace.to_string()),
    ])
}
