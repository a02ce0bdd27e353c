//! Empty Secrets that tokens are bound to: a token dies with its Secret, and takes no other with it.

use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, ResourceExt as _, api::PostParams};
use uuid::Uuid;

use super::{Cluster, ClusterError, object, revoke};

/// The type that the fence allows; it says nothing about what is inside.
pub const SECRET_TYPE: &str = "Opaque";

/// A Secret that a token can be bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSecret {
    /// Its name.
    pub name: String,
    /// Its `metadata.uid`, which the token names.
    pub uid: String,
}

impl Cluster {
    /// Makes an empty Secret in a workspace's namespace. It is immutable, so that nothing is ever put
    /// into it.
    ///
    /// # Errors
    /// The cluster's.
    pub async fn create_token_secret(
        &self,
        namespace: &str,
        workspace: Uuid,
        name: &str,
    ) -> Result<TokenSecret, ClusterError> {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(object::labels_of(workspace)),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            immutable: Some(true),
            ..Secret::default()
        };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let made = api.create(&PostParams::default(), &secret).await?;
        Ok(TokenSecret { name: name.to_owned(), uid: made.uid().unwrap_or_default() })
    }

    /// Deletes such a Secret, if it is there; with a uid only the one of this uid.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] if it is not as the broker made it.
    pub async fn delete_token_secret(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) -> Result<(), ClusterError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        revoke::delete_if_there(&api, name, uid).await.map(drop)
    }
}
