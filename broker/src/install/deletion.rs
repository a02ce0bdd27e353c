//! Deletion of objects that `install` made. A delete names the uid of the object that was read,
//! because another program may have replaced the object since then.

use anyhow::Context as _;
use kube::api::{DeleteParams, DynamicObject, Preconditions};

use super::{
    Administrator,
    admin::{is_definition, name, title},
};

impl Administrator {
    /// Deletes an object, unless it is a definition that has objects. Returns the line of the
    /// report; `reason` follows the word "deleted" in it.
    pub(super) async fn remove(
        &self,
        object: &DynamicObject,
        reason: &str,
    ) -> anyhow::Result<String> {
        if object.metadata.deletion_timestamp.is_some() {
            return Ok(format!("{} is being deleted already", title(object)));
        }
        if let Some(line) = self.reason_to_keep(object).await? {
            return Ok(line);
        }
        self.delete(object).await?;
        Ok(format!("{} deleted{reason}", title(object)))
    }

    /// Deletes the object that was read. One that does not exist any more counts as deleted.
    async fn delete(&self, object: &DynamicObject) -> anyhow::Result<()> {
        let params = DeleteParams::default().preconditions(preconditions(object)?);
        match self.api(object).delete(&name(object), &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => {
                let is_conflict = matches!(&error, kube::Error::Api(status) if status.code == 409);
                let advice = if is_conflict {
                    ", because it was replaced or changed after it was read: find out by whom, and \
                     run this again"
                } else {
                    ""
                };
                Err(error).with_context(|| format!("cannot delete {}{advice}", title(object)))
            }
        }
    }
}

/// The identity of an object that was read; of a definition its version, too, because whether it
/// may be deleted depends on its contents.
fn preconditions(object: &DynamicObject) -> anyhow::Result<Preconditions> {
    let uid = object.metadata.uid.clone();
    let uid = uid.with_context(|| format!("the API server gave {} no uid", title(object)))?;
    let version = object.metadata.resource_version.clone().filter(|_| is_definition(object));
    Ok(Preconditions { uid: Some(uid), resource_version: version })
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        base::error_chain,
        testing::{StubApiServer, status},
    };

    /// An administrator at an API server that gives this response to all requests.
    fn administrator(code: StatusCode) -> (Administrator, StubApiServer) {
        let server = StubApiServer::new(move |_| status(code, "why"));
        (Administrator { client: server.client(), cluster: Value::Null }, server)
    }

    fn object(kind: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "example.com/v1", "kind": kind,
            "metadata": {"name": "x", "uid": "read", "resourceVersion": "7"},
        }))
        .unwrap()
    }

    /// Deletes the object at an API server that responds with this status. Returns also the bodies
    /// of the requests.
    async fn delete(
        object: &DynamicObject,
        status: StatusCode,
    ) -> (anyhow::Result<()>, Vec<Value>) {
        let (administrator, server) = administrator(status);
        let result = administrator.delete(object).await;
        (result, server.requests().into_iter().map(|request| request.body.unwrap()).collect())
    }

    #[tokio::test]
    async fn only_the_object_that_was_read_is_deleted() {
        for (kind, preconditions) in [
            ("ClusterRole", json!({"uid": "read"})),
            ("CustomResourceDefinition", json!({"uid": "read", "resourceVersion": "7"})),
        ] {
            for status in [StatusCode::OK, StatusCode::NOT_FOUND] {
                let (result, bodies) = delete(&object(kind), status).await;
                result.unwrap();
                assert_eq!(bodies, [json!({"preconditions": preconditions})], "{kind}");
            }
        }
        let mut unknown = object("ClusterRole");
        unknown.metadata.uid = None;
        let (result, bodies) = delete(&unknown, StatusCode::OK).await;
        assert!(result.unwrap_err().to_string().contains("no uid"));
        assert!(bodies.is_empty());
    }

    #[tokio::test]
    async fn a_replaced_object_is_an_error_that_says_so() {
        let (result, _) = delete(&object("ClusterRole"), StatusCode::CONFLICT).await;
        let error = format!("{:#}", result.unwrap_err());
        assert!(error.contains("cannot delete ClusterRole x, because it was replaced"), "{error}");
        let (result, _) = delete(&object("ClusterRole"), StatusCode::FORBIDDEN).await;
        let error = error_chain(result.unwrap_err().as_ref());
        assert_eq!(error, "cannot delete ClusterRole x: why");
    }

    #[tokio::test]
    async fn an_object_that_is_being_deleted_is_not_deleted_again() {
        let (administrator, server) = administrator(StatusCode::CONFLICT);
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "x", "deletionTimestamp": "2026-01-02T03:04:05Z"},
        }))
        .unwrap();
        let line = administrator.remove(&object, "").await.unwrap();
        assert_eq!(line, "CustomResourceDefinition x is being deleted already");
        assert!(server.requests().is_empty());
    }
}
