//! Objects of custom resources: their reads, and writes of their status.

use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
    core::Status,
};
use serde_json::{Value, json};

use super::{Cluster, ClusterError};

/// A cluster-scoped resource that a `CustomResourceDefinition` defines. The name in paths is the
/// kind in lower case and plural.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomResource(ApiResource);

/// What the API server says about an object of a custom resource.
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

impl CustomResource {
    /// The resource of this kind.
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        Self(ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)))
    }

    /// The resource, as the client names it.
    pub(super) fn api_resource(&self) -> &ApiResource {
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
    }
}
