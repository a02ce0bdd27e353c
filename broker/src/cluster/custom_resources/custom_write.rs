//! Writes of objects of a custom resource for people. The API server validates strictly: a field
//! that the definition does not have is refused and not dropped.

use http::{Method, Request};
use kube::{api::DynamicObject, core::Status};
use serde_json::{Value, json};

use super::managed_fields::FIELD_MANAGER;
use crate::cluster::{Cluster, ClusterError, CustomResource};

/// Faults that an error names.
const MAX_FAULTS: usize = 10;

/// Whether the API server persists a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// It validates the write completely, admission policies included, and persists nothing.
    DryRun,
    /// It persists the write.
    Persist,
}

/// An object of a custom resource was not written.
#[derive(Debug, thiserror::Error)]
pub enum CustomWriteError {
    /// An object of this name exists, or the object was changed since it was read.
    #[error("the object exists, or was changed meanwhile")]
    Conflict,
    /// The object does not exist.
    #[error("the object does not exist")]
    Missing,
    /// The API server does not serve the resource.
    #[error("the API server does not serve the resource")]
    NotServed,
    /// The object breaks rules of the definition; each text has its field.
    #[error("{}", .0.join("; "))]
    Invalid(Vec<String>),
    /// RBAC, an admission policy or a webhook refused the request.
    #[error("{0}")]
    Forbidden(String),
    /// The request failed. It is unknown whether it was carried out.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

impl Cluster {
    /// Creates an object that has a `spec` and no other metadata than its name.
    ///
    /// # Errors
    /// [`CustomWriteError::Conflict`] if one of this name exists.
    pub async fn create_custom(
        &self,
        resource: &CustomResource,
        name: &str,
        spec: &Value,
        persistence: Persistence,
    ) -> Result<DynamicObject, CustomWriteError> {
        let object = json!({
            "apiVersion": resource.api_resource().api_version,
            "kind": resource.api_resource().kind,
            "metadata": {"name": name},
            "spec": spec,
        });
        self.write_custom(Method::POST, &path(resource, None, persistence), &object).await
    }

    /// Replaces an object, if nobody changed it since it was read.
    ///
    /// # Errors
    /// [`CustomWriteError::Conflict`] if it was changed.
    pub async fn replace_custom(
        &self,
        resource: &CustomResource,
        object: &DynamicObject,
        persistence: Persistence,
    ) -> Result<DynamicObject, CustomWriteError> {
        let mut object = object.clone();
        // The API server keeps them if they are absent.
        object.metadata.managed_fields = None;
        let name = object.metadata.name.clone().unwrap_or_default();
        let path = path(resource, Some(&name), persistence);
        let object = serde_json::to_value(object).map_err(kube::Error::SerdeError);
        self.write_custom(Method::PUT, &path, &object.map_err(ClusterError::from)?).await
    }

    /// Deletes an object, if it is still the one with this uid. Returns whether it still exists,
    /// because finalizers hold it.
    ///
    /// # Errors
    /// [`CustomWriteError::Conflict`] if it is another one.
    pub async fn delete_custom(
        &self,
        resource: &CustomResource,
        object: &DynamicObject,
    ) -> Result<bool, CustomWriteError> {
        let metadata = &object.metadata;
        let path = path(resource, metadata.name.as_deref(), Persistence::Persist);
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": metadata.uid},
        });
        let answer: Value = self.write_custom(Method::DELETE, &path, &options).await?;
        Ok(answer["metadata"]["deletionTimestamp"].is_string())
    }

    async fn write_custom<T: serde::de::DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<T, CustomWriteError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(|error| ClusterError::from(kube::Error::HttpError(error)))?;
        match self.client().request(request).await {
            Ok(answer) => Ok(answer),
            Err(kube::Error::Api(status)) => Err(refusal(*status)),
            Err(error) => Err(ClusterError::from(error).into()),
        }
    }
}

fn path(resource: &CustomResource, name: Option<&str>, persistence: Persistence) -> String {
    let kind = resource.api_resource();
    let name = name.map(|name| format!("/{name}")).unwrap_or_default();
    let dry_run = match persistence {
        Persistence::DryRun => "&dryRun=All",
        Persistence::Persist => "",
    };
    format!(
        "/apis/{}/{}/{}{name}?fieldManager={FIELD_MANAGER}&fieldValidation=Strict{dry_run}",
        kind.group, kind.version, kind.plural
    )
}

fn refusal(status: Status) -> CustomWriteError {
    match status.code {
        409 => CustomWriteError::Conflict,
        404 if status.details.as_ref().is_some_and(|details| !details.name.is_empty()) => {
            CustomWriteError::Missing
        }
        404 => CustomWriteError::NotServed,
        400 | 422 => CustomWriteError::Invalid(faults(status)),
        403 => CustomWriteError::Forbidden(status.message),
        _ => ClusterError::from(kube::Error::Api(status.boxed())).into(),
    }
}

/// The faults that the API server names. A strict decoding error has none, and lists them in its
/// message.
fn faults(status: Status) -> Vec<String> {
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    let mut faults: Vec<String> = causes
        .into_iter()
        .take(MAX_FAULTS)
        .map(|cause| match cause.field.as_str() {
            "" | "<nil>" => cause.message,
            field => format!("{field}: {}", cause.message),
        })
        .collect();
    if faults.is_empty() {
        faults.push(status.message);
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, details: &Value) -> Status {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "refused", "reason": "Invalid", "details": details, "code": code,
        });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn an_invalid_object_has_the_field_of_each_fault() {
        let causes = json!({"causes": [
            {"reason": "FieldValueInvalid", "message": "too large", "field": "spec.owners"},
            {"reason": "FieldValueInvalid", "message": "some rule", "field": "<nil>"},
        ]});
        let error = refusal(status(422, &causes));
        assert_eq!(error.to_string(), "spec.owners: too large; some rule");
        let error = refusal(status(400, &Value::Null));
        assert!(matches!(&error, CustomWriteError::Invalid(faults) if faults == &["refused"]));
    }

    #[test]
    fn other_refusals_are_told_apart() {
        assert!(matches!(refusal(status(409, &Value::Null)), CustomWriteError::Conflict));
        assert!(matches!(refusal(status(403, &Value::Null)), CustomWriteError::Forbidden(_)));
        let named = json!({"name": "solar", "kind": "tenants"});
        assert!(matches!(refusal(status(404, &named)), CustomWriteError::Missing));
        assert!(matches!(refusal(status(404, &Value::Null)), CustomWriteError::NotServed));
        for code in [429, 500, 504] {
            let error = refusal(status(code, &Value::Null));
            let CustomWriteError::Cluster(error) = error else { panic!("{error:?}") };
            assert!(matches!(error, ClusterError::Unavailable(_)), "{code}");
        }
    }

    #[test]
    fn a_dry_run_is_in_the_path() {
        let resource = CustomResource::new("tenant-broker.io", "v1alpha1", "Tenant");
        assert_eq!(
            path(&resource, Some("solar"), Persistence::DryRun),
            "/apis/tenant-broker.io/v1alpha1/tenants/solar?fieldManager=tenant-broker&\
             fieldValidation=Strict&dryRun=All"
        );
        assert!(!path(&resource, None, Persistence::Persist).contains("dryRun"));
    }
}
