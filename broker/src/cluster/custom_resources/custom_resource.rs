//! Objects of custom resources: their reads, and writes of their status; and whether their
//! definitions are served.

use std::collections::BTreeSet;

use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
    core::Status,
};
use serde_json::{Value, json};

use crate::cluster::{Cluster, ClusterError};

/// Objects per page of a list.
const PAGE_SIZE: u32 = 500;

/// A cluster-scoped resource that a `CustomResourceDefinition` defines. The name in paths is the
/// kind in lower case and plural.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomResource(ApiResource);

/// State of a custom resource at the API server.
#[derive(Clone, Debug)]
pub enum CustomObject {
    /// It exists.
    Found(Box<DynamicObject>),
    /// It does not exist.
    Missing,
    /// The API server does not serve the resource, or the broker may not read it, so it is unknown
    /// whether the object exists.
    Unknown,
}

/// State of the `CustomResourceDefinition` of a custom resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionState {
    /// There is none, or it does not serve this version, or the API server never accepted it.
    NotServed,
    /// It is being deleted, and all of its objects with it.
    Terminating,
    /// The API server serves it.
    Served,
}

impl CustomResource {
    /// The resource of this kind.
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        Self(ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)))
    }

    /// Name of the `CustomResourceDefinition`.
    pub fn definition_name(&self) -> String {
        format!("{}.{}", self.0.plural, self.0.group)
    }

    /// The resource, as the client names it.
    pub(in crate::cluster) fn api_resource(&self) -> &ApiResource {
        &self.0
    }
}

impl Cluster {
    /// Gets an object of a custom resource.
    ///
    /// # Errors
    /// The request failed.
    pub async fn get_custom(
        &self,
        resource: &CustomResource,
        name: &str,
    ) -> Result<CustomObject, ClusterError> {
        let api: Api<DynamicObject> = Api::all_with(self.client(), &resource.0);
        match api.get(name).await {
            Ok(object) => Ok(CustomObject::Found(Box::new(object))),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(missing(&status, name)),
            // Permissions are checked before the resource is looked for.
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(CustomObject::Unknown),
            Err(error) => Err(error.into()),
        }
    }

    /// The state of the definition of a custom resource.
    ///
    /// # Errors
    /// The request failed; [`ClusterError::Refused`] if the broker may not read the definition.
    pub async fn definition_state(
        &self,
        resource: &CustomResource,
    ) -> Result<DefinitionState, ClusterError> {
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let api: Api<DynamicObject> = Api::all_with(self.client(), &ApiResource::from_gvk(&kind));
        let definition = api.get_opt(&resource.definition_name()).await?;
        Ok(definition.map_or(DefinitionState::NotServed, |it| state_of(&it, &resource.0.version)))
    }

    /// Names of all objects of a custom resource; `None` if the API server does not serve it, or
    /// the broker may not list it.
    ///
    /// # Errors
    /// A request failed.
    pub async fn custom_names(
        &self,
        resource: &CustomResource,
    ) -> Result<Option<BTreeSet<String>>, ClusterError> {
        let api: Api<DynamicObject> = Api::all_with(self.client(), &resource.0);
        let (mut names, mut next) = (BTreeSet::new(), None);
        loop {
            let page = ListParams { continue_token: next, ..ListParams::default() };
            let page = match api.list_metadata(&page.limit(PAGE_SIZE)).await {
                Ok(page) => page,
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            };
            names.extend(page.items.into_iter().filter_map(|object| object.metadata.name));
            next = page.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(Some(names));
            }
        }
    }

    /// Writes the status of an object, if nobody changed the object since it was read.
    ///
    /// # Errors
    /// The request failed; [`ClusterError::Conflict`] if the object was changed or replaced.
    pub async fn write_custom_status(
        &self,
        resource: &CustomResource,
        object: &DynamicObject,
        status: &Value,
    ) -> Result<(), ClusterError> {
        let api: Api<DynamicObject> = Api::all_with(self.client(), &resource.0);
        let metadata = json!({"uid": object.uid(), "resourceVersion": object.resource_version()});
        let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
        api.patch_status(&object.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// The meaning of a 404. The API server names the object that does not exist; of a resource that it
/// does not serve it knows no objects.
fn missing(status: &Status, name: &str) -> CustomObject {
    let named = status.details.as_ref().is_some_and(|details| details.name == name);
    if named { CustomObject::Missing } else { CustomObject::Unknown }
}

fn state_of(definition: &DynamicObject, version: &str) -> DefinitionState {
    if definition.metadata.deletion_timestamp.is_some() {
        return DefinitionState::Terminating;
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let conditions = list(&definition.data["status"]["conditions"]);
    let is_established =
        conditions.iter().any(|it| it["type"] == "Established" && it["status"] == "True");
    let versions = list(&definition.data["spec"]["versions"]);
    let is_served = versions.iter().any(|it| it["name"] == version && it["served"] == true);
    if is_established && is_served { DefinitionState::Served } else { DefinitionState::NotServed }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a definition that is not served would look like the deletion of all its objects.
    #[test]
    fn a_resource_that_is_not_served_is_no_missing_object() {
        let missing_object: Status = serde_json::from_value(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "tenants.tenant-broker.io \"solar\" not found", "reason": "NotFound",
            "details": {"name": "solar", "group": "tenant-broker.io", "kind": "tenants"},
            "code": 404,
        }))
        .unwrap();
        assert!(matches!(missing(&missing_object, "solar"), CustomObject::Missing));
        assert!(matches!(missing(&missing_object, "lunar"), CustomObject::Unknown));
        let not_served = Status::failure("404 page not found\n", "").with_code(404);
        assert!(matches!(missing(&not_served, "solar"), CustomObject::Unknown));
    }

    #[test]
    fn the_name_in_paths_is_the_plural_of_the_kind() {
        let resource = CustomResource::new("tenant-broker.io", "v1alpha1", "Tenant");
        let named = &resource.0;
        assert_eq!((named.plural.as_str(), named.kind.as_str()), ("tenants", "Tenant"));
        assert_eq!(named.api_version, "tenant-broker.io/v1alpha1");
        assert_eq!(resource.definition_name(), "tenants.tenant-broker.io");
    }

    #[test]
    fn a_definition_serves_its_objects_until_its_deletion_begins() {
        let definition = |deleted: Value, established: &str, version: &str| -> DynamicObject {
            let metadata = json!({"name": "tenants.example.com", "deletionTimestamp": deleted});
            serde_json::from_value(json!({
                "metadata": metadata,
                "spec": {"versions": [{"name": version, "served": true}]},
                "status": {"conditions": [{"type": "Established", "status": established}]},
            }))
            .unwrap()
        };
        let deleted = json!("2026-01-02T03:04:05Z");
        for (definition, state) in [
            (definition(Value::Null, "True", "v1"), DefinitionState::Served),
            (definition(deleted.clone(), "True", "v1"), DefinitionState::Terminating),
            (definition(deleted, "False", "v1"), DefinitionState::Terminating),
            (definition(Value::Null, "False", "v1"), DefinitionState::NotServed),
            (definition(Value::Null, "True", "v2"), DefinitionState::NotServed),
        ] {
            assert_eq!(state_of(&definition, "v1"), state, "{definition:?}");
        }
    }
}
