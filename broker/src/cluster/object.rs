//! Create and verify: an object is made, or it is there already exactly as we would have made it.

use std::collections::BTreeMap;

use k8s_openapi::{
    ClusterResourceScope, NamespaceResourceScope,
    api::{
        core::v1::{LimitRange, Namespace, ResourceQuota, ServiceAccount},
        networking::v1::NetworkPolicy,
        rbac::v1::RoleBinding,
    },
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, PostParams, Preconditions},
    core::Status,
};
use serde::{Serialize, de::DeserializeOwned};
use tenant_shared::{MANAGED_BY_LABEL, MANAGED_BY_VALUE, WORKSPACE_LABEL};

use super::{
    Cluster, ClusterError,
    difference::{Compared, Difference},
};

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
    /// Who may connect to its pods.
    NetworkPolicy(Box<NetworkPolicy>),
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

/// How an object of the cluster compares with how it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What is wrong with it.
    pub difference: Option<Difference>,
    /// The uid of what is there; empty if nothing is.
    pub uid: String,
}

/// Runs one body for whichever kind an object is: it gets the API of the kind and what is wanted.
macro_rules! for_kind {
    ($cluster:expr, $object:expr, |$api:ident, $wanted:ident| $body:expr) => {
        match $object {
            Object::Namespace($wanted) => {
                let ($api, $wanted) = (cluster_api($cluster), &**$wanted);
                $body
            }
            Object::ResourceQuota($wanted) => {
                let ($api, $wanted) = (namespaced_api($cluster, &**$wanted), &**$wanted);
                $body
            }
            Object::LimitRange($wanted) => {
                let ($api, $wanted) = (namespaced_api($cluster, &**$wanted), &**$wanted);
                $body
            }
            Object::ServiceAccount($wanted) => {
                let ($api, $wanted) = (namespaced_api($cluster, &**$wanted), &**$wanted);
                $body
            }
            Object::RoleBinding($wanted) => {
                let ($api, $wanted) = (namespaced_api($cluster, &**$wanted), &**$wanted);
                $body
            }
            Object::NetworkPolicy($wanted) => {
                let ($api, $wanted) = (namespaced_api($cluster, &**$wanted), &**$wanted);
                $body
            }
        }
    };
}

impl Object {
    /// Its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Namespace(_) => Namespace::NAME,
            Self::ResourceQuota(_) => ResourceQuota::NAME,
            Self::LimitRange(_) => LimitRange::NAME,
            Self::ServiceAccount(_) => ServiceAccount::NAME,
            Self::RoleBinding(_) => RoleBinding::NAME,
            Self::NetworkPolicy(_) => NetworkPolicy::NAME,
        }
    }
}

impl Cluster {
    /// Makes an object, or checks that the one that is there is ours and as it has to be.
    ///
    /// # Errors
    /// [`ClusterError::Conflict`] if it is not; the object is left as it is.
    pub async fn create_or_verify(&self, object: &Object) -> Result<Outcome, ClusterError> {
        let outcome = self.create_or_see(object).await?;
        match outcome.1 {
            None => Ok(outcome.0),
            Some(difference) => Err(in_the_way(object, difference)),
        }
    }

    /// As [`Cluster::create_or_verify`], but what limits a workspace may have been changed by an
    /// administrator: a quota or limits that are ours with another spec are taken as they are.
    ///
    /// # Errors
    /// As [`Cluster::create_or_verify`].
    pub async fn create_or_keep(&self, object: &Object) -> Result<Outcome, ClusterError> {
        let outcome = self.create_or_see(object).await?;
        match outcome.1 {
            None | Some(Difference::Spec) => Ok(outcome.0),
            Some(difference) => Err(in_the_way(object, difference)),
        }
    }

    async fn create_or_see(
        &self,
        object: &Object,
    ) -> Result<(Outcome, Option<Difference>), ClusterError> {
        for_kind!(self, object, |api, wanted| ensure(&api, wanted).await)
    }

    /// Looks how an object is.
    ///
    /// # Errors
    /// The cluster's.
    pub async fn see(&self, object: &Object) -> Result<Seen, ClusterError> {
        for_kind!(self, object, |api, wanted| see(&api, wanted).await)
    }

    /// Deletes an object if it is still this one.
    ///
    /// # Errors
    /// The cluster's; [`ClusterError::Conflict`] if it is another one now.
    pub async fn delete_this(&self, object: &Object, uid: &str) -> Result<(), ClusterError> {
        for_kind!(self, object, |api, wanted| delete(&api, wanted, uid).await)
    }
}

fn in_the_way(object: &Object, difference: Difference) -> ClusterError {
    let name = for_name(object);
    ClusterError::Conflict(format!("{} {name} {}", object.kind(), difference.text()))
}

fn for_name(object: &Object) -> String {
    match object {
        Object::Namespace(it) => it.name_any(),
        Object::ResourceQuota(it) => it.name_any(),
        Object::LimitRange(it) => it.name_any(),
        Object::ServiceAccount(it) => it.name_any(),
        Object::RoleBinding(it) => it.name_any(),
        Object::NetworkPolicy(it) => it.name_any(),
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

async fn ensure<K>(api: &Api<K>, wanted: &K) -> Result<(Outcome, Option<Difference>), ClusterError>
where
    K: Compared + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let kind = K::NAME;
    match api.create(&PostParams::default(), wanted).await {
        Ok(made) => {
            let uid = made.uid().unwrap_or_default();
            Ok((Outcome { kind, uid, created: true }, None))
        }
        Err(kube::Error::Api(status)) if already_exists(&status) => {
            let there = api.get(&wanted.name_any()).await?;
            let uid = there.uid().unwrap_or_default();
            Ok((Outcome { kind, uid, created: false }, there.compare(wanted)))
        }
        Err(error) => Err(error.into()),
    }
}

async fn see<K>(api: &Api<K>, wanted: &K) -> Result<Seen, ClusterError>
where
    K: Compared + Clone + DeserializeOwned + std::fmt::Debug,
{
    Ok(match api.get_opt(&wanted.name_any()).await? {
        None => Seen { difference: Some(Difference::Missing), uid: String::new() },
        Some(there) => {
            Seen { difference: there.compare(wanted), uid: there.uid().unwrap_or_default() }
        }
    })
}

async fn delete<K>(api: &Api<K>, wanted: &K, uid: &str) -> Result<(), ClusterError>
where
    K: Compared + Clone + DeserializeOwned + std::fmt::Debug,
{
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let this = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    match api.delete(&wanted.name_any(), &this).await.map_err(ClusterError::from) {
        Ok(_) | Err(ClusterError::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

fn already_exists(status: &Status) -> bool {
    status.code == 409
}

pub(super) fn label<K: Resource>(object: &K, name: &str) -> Option<String> {
    object.meta().labels.as_ref().and_then(|labels| labels.get(name)).cloned()
}

/// Whether an object names the same workspace.
pub(super) fn is_ours<K: Resource>(there: &K, wanted: &K) -> bool {
    label(there, WORKSPACE_LABEL) == label(wanted, WORKSPACE_LABEL)
}

/// The labels of every object of a workspace.
pub fn labels_of(workspace: uuid::Uuid) -> BTreeMap<String, String> {
    BTreeMap::from([
        (MANAGED_BY_LABEL.to_owned(), MANAGED_BY_VALUE.to_owned()),
        (WORKSPACE_LABEL.to_owned(), workspace.to_string()),
    ])
}
