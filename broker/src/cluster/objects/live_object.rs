//! Objects of tenants as the cluster has them: reads, and changes of one object to its desired
//! state.
//!
//! A change names the version of the object that it was decided on, so that it fails if somebody
//! changed the object meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{LimitRange, Namespace, ResourceQuota},
        rbac::v1::{RoleBinding, Subject},
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    difference::{Compared, Difference},
    revoke::{delete_if_exists, remove_finalizers, segment},
};
use crate::cluster::{Cluster, ClusterError, Object};

impl Object {
    /// The metadata of the object.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Namespace(object) => &object.metadata,
            Self::ResourceQuota(object) => &object.metadata,
            Self::LimitRange(object) => &object.metadata,
            Self::ServiceAccount(object) => &object.metadata,
            Self::RoleBinding(object) => &object.metadata,
            Self::NetworkPolicy(object) => &object.metadata,
        }
    }

    /// How the object differs from the desired one. An object of another kind is foreign.
    pub fn difference(&self, wanted: &Self) -> Option<Difference> {
        match (self, wanted) {
            (Self::Namespace(live), Self::Namespace(wanted)) => live.compare(wanted),
            (Self::ResourceQuota(live), Self::ResourceQuota(wanted)) => live.compare(wanted),
            (Self::LimitRange(live), Self::LimitRange(wanted)) => live.compare(wanted),
            (Self::ServiceAccount(live), Self::ServiceAccount(wanted)) => live.compare(wanted),
            (Self::RoleBinding(live), Self::RoleBinding(wanted)) => live.compare(wanted),
            (Self::NetworkPolicy(live), Self::NetworkPolicy(wanted)) => live.compare(wanted),
            _ => Some(Difference::Foreign),
        }
    }

    /// Whether a RoleBinding binds somebody whom the other one does not bind.
    pub fn binds_more_than(&self, other: &Self) -> bool {
        let (Self::RoleBinding(one), Self::RoleBinding(other)) = (self, other) else {
            return false;
        };
        let (one, other) = (subjects(one), subjects(other));
        !one.is_subset(&other)
    }

    /// The desired RoleBinding with only those of its subjects that the live one has already; `None`
    /// for one that has no such subject, binds another role or is not the tenant's.
    pub fn with_common_subjects(&self, wanted: &Self) -> Option<Self> {
        if !matches!(self.difference(wanted), None | Some(Difference::Subjects)) {
            return None;
        }
        let (Self::RoleBinding(live), Self::RoleBinding(wanted)) = (self, wanted) else {
            return None;
        };
        let known = subjects(live);
        let mut common = wanted.clone();
        let is_known = |it: &Subject| {
            known.contains(&(it.kind.as_str(), it.namespace.as_deref(), it.name.as_str()))
        };
        common.subjects.get_or_insert_default().retain(is_known);
        let has_some = common.subjects.as_ref().is_some_and(|subjects| !subjects.is_empty());
        has_some.then_some(Self::RoleBinding(common))
    }
}

impl Cluster {
    /// Gets a namespace; `None` if it does not exist.
    ///
    /// # Errors
    /// The request failed.
    pub async fn namespace(&self, name: &str) -> Result<Option<Namespace>, ClusterError> {
        let api: Api<Namespace> = Api::all(self.client());
        Ok(api.get_opt(name).await?)
    }

    /// Creates an object of a tenant. Returns what the API server made of it.
    ///
    /// # Errors
    /// The request failed; [`ClusterError::Conflict`] if an object of this name exists.
    pub async fn create_object(&self, wanted: &Object) -> Result<Object, ClusterError> {
        Ok(match wanted {
            Object::Namespace(wanted) => {
                let api: Api<Namespace> = Api::all(self.client());
                Object::Namespace(Box::new(create(&api, &**wanted).await?))
            }
            Object::ResourceQuota(wanted) => {
                Object::ResourceQuota(Box::new(create(&self.api_of(&**wanted), &**wanted).await?))
            }
            Object::LimitRange(wanted) => {
                Object::LimitRange(Box::new(create(&self.api_of(&**wanted), &**wanted).await?))
            }
            Object::RoleBinding(wanted) => {
                Object::RoleBinding(Box::new(create(&self.api_of(&**wanted), &**wanted).await?))
            }
            Object::ServiceAccount(_) | Object::NetworkPolicy(_) => return Err(unexpected(wanted)),
        })
    }

    /// Gets the object with the kind and name of a desired one; `None` if it does not exist.
    ///
    /// # Errors
    /// The request failed.
    pub async fn get_object(&self, wanted: &Object) -> Result<Option<Object>, ClusterError> {
        Ok(match wanted {
            Object::Namespace(wanted) => {
                let live = self.namespace(&wanted.name_any()).await?;
                live.map(|live| Object::Namespace(Box::new(live)))
            }
            Object::ResourceQuota(wanted) => {
                let live = get(&self.api_of(&**wanted), &**wanted).await?;
                live.map(|live| Object::ResourceQuota(Box::new(live)))
            }
            Object::LimitRange(wanted) => {
                let live = get(&self.api_of(&**wanted), &**wanted).await?;
                live.map(|live| Object::LimitRange(Box::new(live)))
            }
            Object::RoleBinding(wanted) => {
                let live = get(&self.api_of(&**wanted), &**wanted).await?;
                live.map(|live| Object::RoleBinding(Box::new(live)))
            }
            Object::ServiceAccount(_) | Object::NetworkPolicy(_) => return Err(unexpected(wanted)),
        })
    }

    /// Changes subjects, amounts or limits of an object to the desired ones. Labels and annotations
    /// of others stay.
    ///
    /// # Errors
    /// The request failed; [`ClusterError::Conflict`] if the object was changed since it was read.
    pub async fn update_object(
        &self,
        live: &Object,
        wanted: &Object,
    ) -> Result<Object, ClusterError> {
        Ok(match (live, wanted) {
            (Object::RoleBinding(live), Object::RoleBinding(wanted)) => {
                let mut next = RoleBinding::clone(live);
                next.subjects.clone_from(&wanted.subjects);
                add_labels(&mut next.metadata, &wanted.metadata);
                Object::RoleBinding(Box::new(replace(&self.api_of(&next), &next).await?))
            }
            (Object::LimitRange(live), Object::LimitRange(wanted)) => {
                let mut next = LimitRange::clone(live);
                next.spec.clone_from(&wanted.spec);
                add_labels(&mut next.metadata, &wanted.metadata);
                Object::LimitRange(Box::new(replace(&self.api_of(&next), &next).await?))
            }
            (Object::ResourceQuota(live), Object::ResourceQuota(wanted)) => {
                let mut next = ResourceQuota::clone(live);
                next.spec.clone_from(&wanted.spec);
                add_labels(&mut next.metadata, &wanted.metadata);
                Object::ResourceQuota(Box::new(replace(&self.api_of(&next), &next).await?))
            }
            _ => return Err(unexpected(wanted)),
        })
    }

    /// Writes the amounts of a ResourceQuota, if it still has this version.
    ///
    /// # Errors
    /// The request failed; [`ClusterError::Conflict`] if the quota was changed, which its use does,
    /// too.
    pub async fn write_quota(
        &self,
        live: &ResourceQuota,
        hard: &BTreeMap<String, Quantity>,
    ) -> Result<ResourceQuota, ClusterError> {
        let mut next = live.clone();
        next.spec.get_or_insert_default().hard = Some(hard.clone());
        replace(&self.api_of(&next), &next).await
    }

    /// Sets labels and annotations of a namespace, and removes those whose value is `None`, if the
    /// namespace still has this version.
    ///
    /// # Errors
    /// The request failed; [`ClusterError::Conflict`] if the namespace was changed since it was
    /// read.
    pub async fn patch_namespace(
        &self,
        live: &Namespace,
        labels: &BTreeMap<String, Option<String>>,
        annotations: &BTreeMap<String, Option<String>>,
    ) -> Result<Namespace, ClusterError> {
        let mut metadata = json!({
            "uid": live.metadata.uid,
            "resourceVersion": live.metadata.resource_version,
        });
        for (field, values) in [("labels", labels), ("annotations", annotations)] {
            if !values.is_empty() {
                metadata[field] = json!(values);
            }
        }
        let patch: Patch<Value> = Patch::Merge(json!({"metadata": metadata}));
        let api: Api<Namespace> = Api::all(self.client());
        Ok(api.patch(&live.name_any(), &PatchParams::default(), &patch).await?)
    }

    /// Deletes an object of this uid, and removes the finalizers that hold a RoleBinding, because it
    /// gives its role until it is gone. An object that does not exist is no error.
    ///
    /// # Errors
    /// The request failed.
    pub async fn delete_object(&self, live: &Object) -> Result<(), ClusterError> {
        match live {
            Object::RoleBinding(live) => {
                let namespace = live.namespace().unwrap_or_default();
                self.delete_role_binding(&namespace, &live.name_any(), live.uid().as_deref()).await
            }
            Object::ResourceQuota(live) => delete(&self.api_of(&**live), &**live).await,
            Object::LimitRange(live) => delete(&self.api_of(&**live), &**live).await,
            Object::Namespace(_) | Object::ServiceAccount(_) | Object::NetworkPolicy(_) => {
                Err(unexpected(live))
            }
        }
    }

    /// Deletes a RoleBinding; with a uid, only one of this uid. One that a finalizer holds loses its
    /// subjects before its finalizers, because a webhook may refuse one of the two. A binding that
    /// does not exist is no error.
    ///
    /// # Errors
    /// The request failed.
    pub async fn delete_role_binding(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) -> Result<(), ClusterError> {
        let api: Api<RoleBinding> = Api::namespaced(self.client(), namespace);
        let held = match delete_if_exists(&api, name, uid).await? {
            Some(held) if !held.finalizers().is_empty() => held,
            _ => return Ok(()),
        };
        let uid = held.uid();
        let emptied = RoleBinding { subjects: None, ..held };
        // The binding is gone without its finalizers, so only their removal has to succeed.
        let _ = replace(&api, &emptied).await;
        remove_finalizers(&api, name, uid.as_deref()).await
    }

    /// Removes the subjects of a RoleBinding, which then grants nothing and still names its tenant. One that
    /// does not exist is no error.
    ///
    /// # Errors
    /// A request failed, or somebody changed the binding meanwhile.
    pub async fn empty_role_binding(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<(), ClusterError> {
        let api: Api<RoleBinding> = Api::namespaced(self.client(), namespace);
        let Some(binding) = api.get_opt(&segment(name)).await? else { return Ok(()) };
        if binding.subjects.as_ref().is_some_and(|subjects| !subjects.is_empty()) {
            // A patch, because those are in the priority level of suspensions.
            let ObjectMeta { uid, resource_version, .. } = binding.metadata;
            let metadata = json!({"uid": uid, "resourceVersion": resource_version});
            let patch = Patch::Merge(json!({"metadata": metadata, "subjects": null}));
            api.patch(&segment(name), &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    fn api_of<K>(&self, object: &K) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client(), &object.namespace().unwrap_or_default())
    }
}

/// The subjects of a RoleBinding, comparable.
fn subjects(binding: &RoleBinding) -> BTreeSet<(&str, Option<&str>, &str)> {
    let subjects = binding.subjects.iter().flatten();
    subjects.map(|it| (it.kind.as_str(), it.namespace.as_deref(), it.name.as_str())).collect()
}

/// Adds the labels of the desired object.
fn add_labels(metadata: &mut ObjectMeta, wanted: &ObjectMeta) {
    let labels = wanted.labels.clone().unwrap_or_default();
    metadata.labels.get_or_insert_default().extend(labels);
}

/// The error for a kind that no tenant has, which only a defect causes.
fn unexpected(object: &Object) -> ClusterError {
    ClusterError::Conflict(format!("no tenant has objects of the kind {}", object.kind()))
}

async fn create<K>(api: &Api<K>, wanted: &K) -> Result<K, ClusterError>
where
    K: Clone + Serialize + DeserializeOwned + Debug,
{
    Ok(api.create(&PostParams::default(), wanted).await?)
}

async fn get<K>(api: &Api<K>, wanted: &K) -> Result<Option<K>, ClusterError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    Ok(api.get_opt(&segment(&wanted.name_any())).await?)
}

async fn replace<K>(api: &Api<K>, next: &K) -> Result<K, ClusterError>
where
    K: Resource + Clone + Serialize + DeserializeOwned + Debug,
{
    Ok(api.replace(&segment(&next.name_any()), &PostParams::default(), next).await?)
}

async fn delete<K>(api: &Api<K>, live: &K) -> Result<(), ClusterError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let preconditions = Preconditions { uid: live.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    match api.delete(&segment(&live.name_any()), &params).await.map_err(ClusterError::from) {
        Ok(_) | Err(ClusterError::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
