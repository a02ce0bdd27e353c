//! The object of a tenant in the cluster, and its form in the API.

use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::Value;
use tenant_shared::TenantObject;

use super::{TenantError, TenantOperations, TenantWriteError};
use crate::{
    cluster::CustomObject,
    tenant::{ApiGroup, TenantName},
};

impl TenantOperations {
    /// The object of this name in our API group; `None` if there is none in any group.
    ///
    /// # Errors
    /// [`TenantWriteError::OtherGroup`] if there is one in Capsule's group alone, which the broker
    /// does not write; the API server does not serve Tenants; or the request failed.
    pub(super) async fn broker_object(
        &self,
        name: &TenantName,
    ) -> Result<Option<DynamicObject>, TenantWriteError> {
        match self.object(ApiGroup::TenantBroker, name).await? {
            CustomObject::Found(object) => Ok(Some(*object)),
            CustomObject::Unknown => Err(TenantWriteError::NotServed),
            CustomObject::Missing => match self.object(ApiGroup::Capsule, name).await? {
                CustomObject::Found(_) => Err(TenantWriteError::OtherGroup(name.clone())),
                CustomObject::Missing | CustomObject::Unknown => Ok(None),
            },
        }
    }

    /// The object of this name in one API group.
    ///
    /// # Errors
    /// The request failed.
    pub(super) async fn object(
        &self,
        group: ApiGroup,
        name: &TenantName,
    ) -> Result<CustomObject, TenantError> {
        Ok(self.cluster.get_custom(&group.resource(), name.as_str()).await?)
    }
}

/// Checks that the object is the one that a request names, and that nobody changed its `spec` since.
///
/// # Errors
/// [`TenantWriteError::Changed`].
pub(super) fn check_precondition(
    name: &TenantName,
    object: Option<&DynamicObject>,
    uid: Option<&str>,
    generation: Option<i64>,
) -> Result<(), TenantWriteError> {
    let live = object.map(|object| &object.metadata);
    let is_same = uid.is_none_or(|uid| live.is_some_and(|it| it.uid.as_deref() == Some(uid)))
        && generation.is_none_or(|given| live.is_some_and(|it| it.generation == Some(given)));
    if is_same { Ok(()) } else { Err(TenantWriteError::Changed(name.clone())) }
}

/// The specification of an object; null if it has none.
pub(super) fn spec_of(object: &DynamicObject) -> &Value {
    &object.data["spec"]
}

pub(super) fn to_api(group: ApiGroup, object: &DynamicObject) -> TenantObject {
    TenantObject {
        name: object.name_any(),
        api_group: group.name().to_owned(),
        uid: object.uid().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or_default(),
        spec: spec_of(object).clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_precondition_holds_for_the_object_that_was_read() {
        let solar: TenantName = "solar".parse().unwrap();
        let object: DynamicObject = serde_json::from_value(json!({
            "metadata": {"name": "solar", "uid": "u1", "generation": 3}, "spec": {"owners": []},
        }))
        .unwrap();
        let holds =
            |object, uid, generation| check_precondition(&solar, object, uid, generation).is_ok();
        assert!(holds(Some(&object), None, None) && holds(None, None, None));
        assert!(holds(Some(&object), Some("u1"), Some(3)));
        assert!(!holds(Some(&object), Some("u2"), Some(3)));
        assert!(!holds(Some(&object), Some("u1"), Some(2)));
        assert!(!holds(None, Some("u1"), None) && !holds(None, None, Some(3)));
    }
}
