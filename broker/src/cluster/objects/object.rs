//! Idempotent creation: an object is created, or it exists already exactly as the broker would
//! have created it.

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

use super::difference::{Compared, Difference};
use crate::cluster::{Cluster, ClusterError};

/// The desired state of an object of a workspace or of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Object {
    /// The namespace of a workspace, or the home or a namespace of a tenant.
    Namespace(Box<Namespace>),
    /// The total resources of the namespace.
    ResourceQuota(Box<ResourceQuota>),
    /// The defaults of containers that name no requests or limits.
    LimitRange(Box<LimitRange>),
    /// The account whose tokens the workspace's users get.
    ServiceAccount(Box<ServiceAccount>),
    /// The role that those tokens have in the namespace.
    RoleBinding(Box<RoleBinding>),
    /// The sources that may connect to pods of the namespace.
    NetworkPolicy(Box<NetworkPolicy>),
}

/// An object that exists as desired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnsuredObject {
    pub kind: &'static str,
    /// The object's `metadata.uid`.
    pub uid: String,
    /// Whether this call created it.
    pub created: bool,
}

/// An object of the cluster, compared with the desired one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectComparison {
    /// The difference, if there is one.
    pub difference: Option<Difference>,
    /// The uid of the existing object; empty if there is none.
    pub uid: String,
}

/// Runs one body for whichever kind an object is: it gets the API of the kind and the desired
/// object.
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
    /// The kind, for example `RoleBinding`.
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
    /// Creates an object, or verifies that the existing one belongs to the workspace or tenant and
    /// is as desired.
    ///
    /// # Errors
    /// The request failed; [`ClusterError::Conflict`] if the existing object differs. It is not
    /// changed then.
    pub async fn create_or_verify(&self, object: &Object) -> Result<EnsuredObject, ClusterError> {
        let (ensured, difference) = self.create_or_compare(object).await?;
        match difference {
            None => Ok(ensured),
            Some(difference) => Err(conflict(object, difference)),
        }
    }

    /// Like [`Cluster::create_or_verify`], but a quota or limit range of the workspace with another
    /// spec is accepted, because an administrator may have changed it.
    ///
    /// # Errors
    /// See [`Cluster::create_or_verify`].
    pub async fn create_or_accept(&self, object: &Object) -> Result<EnsuredObject, ClusterError> {
        let (ensured, difference) = self.create_or_compare(object).await?;
        match difference {
            None | Some(Difference::Spec) => Ok(ensured),
            Some(difference) => Err(conflict(object, difference)),
        }
    }

    async fn create_or_compare(
        &self,
        object: &Object,
    ) -> Result<(EnsuredObject, Option<Difference>), ClusterError> {
        for_kind!(self, object, |api, wanted| ensure(&api, wanted).await)
    }

    /// Gets an object and compares it with the desired one.
    ///
    /// # Errors
    /// The request failed.
    pub async fn get_and_compare(&self, object: &Object) -> Result<ObjectComparison, ClusterError> {
        for_kind!(self, object, |api, wanted| get_and_compare(&api, wanted).await)
    }

    /// Deletes an object if it still has this uid; an object that does not exist is no error.
    ///
    /// # Errors
    /// The request failed; [`ClusterError::Conflict`] if the object has another uid.
    pub async fn delete_with_uid(&self, object: &Object, uid: &str) -> Result<(), ClusterError> {
        for_kind!(self, object, |api, wanted| delete(&api, wanted, uid).await)
    }
}

fn conflict(object: &Object, difference: Difference) -> ClusterError {
    let name = name_of(object);
    ClusterError::Conflict(format!("{} {name} {}", object.kind(), difference.text()))
}

fn name_of(object: &Object) -> String {
    match object {
        Object::Namespace(object) => object.name_any(),
        Object::ResourceQuota(object) => object.name_any(),
        Object::LimitRange(object) => object.name_any(),
        Object::ServiceAccount(object) => object.name_any(),
        Object::RoleBinding(object) => object.name_any(),
        Object::NetworkPolicy(object) => object.name_any(),
    }
}

fn cluster_api<K>(cluster: &Cluster) -> Api<K>
where
    K: Resource<Scope = ClusterResourceScope, DynamicType = ()>,
{
    Api::all(cluster.client())
}

fn namespaced_api<K>(cluster: &Cluster, object: &K) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(cluster.client(), &object.namespace().unwrap_or_default())
}

async fn ensure<K>(
    api: &Api<K>,
    wanted: &K,
) -> Result<(EnsuredObject, Option<Difference>), ClusterError>
where
    K: Compared + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let kind = K::NAME;
    match api.create(&PostParams::default(), wanted).await {
        Ok(created) => {
            let uid = created.uid().unwrap_or_default();
            Ok((EnsuredObject { kind, uid, created: true }, None))
        }
        Err(kube::Error::Api(status)) if already_exists(&status) => {
            let existing = api.get(&wanted.name_any()).await?;
            let uid = existing.uid().unwrap_or_default();
            Ok((EnsuredObject { kind, uid, created: false }, existing.compare(wanted)))
        }
        Err(error) => Err(error.into()),
    }
}

async fn get_and_compare<K>(api: &Api<K>, wanted: &K) -> Result<ObjectComparison, ClusterError>
where
    K: Compared + Clone + DeserializeOwned + std::fmt::Debug,
{
    Ok(match api.get_opt(&wanted.name_any()).await? {
        None => ObjectComparison { difference: Some(Difference::Missing), uid: String::new() },
        Some(existing) => ObjectComparison {
            difference: existing.compare(wanted),
            uid: existing.uid().unwrap_or_default(),
        },
    })
}

async fn delete<K>(api: &Api<K>, wanted: &K, uid: &str) -> Result<(), ClusterError>
where
    K: Compared + Clone + DeserializeOwned + std::fmt::Debug,
{
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    match api.delete(&wanted.name_any(), &params).await.map_err(ClusterError::from) {
        Ok(_) | Err(ClusterError::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

fn already_exists(status: &Status) -> bool {
    status.code == 409
}
