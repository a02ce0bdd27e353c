//! Empty Secrets that tokens are bound to: deleting a Secret invalidates its token and no other.

use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, ResourceExt as _, api::PostParams};
use uuid::Uuid;

use crate::cluster::{Cluster, ClusterError, labels_of, objects::revoke};

/// The Secret type that the broker's admission policies allow; it implies no content.
pub const SECRET_TYPE: &str = "Opaque";

/// A Secret that a token can be bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSecret {
    pub name: String,
    /// The `metadata.uid` that the token names.
    pub uid: String,
}

impl Cluster {
    /// Creates an empty Secret in a workspace's namespace. It is immutable, so that nobody ever
    /// puts data into it.
    ///
    /// # Errors
    /// The request failed.
    pub async fn create_token_secret(
        &self,
        namespace: &str,
        workspace: Uuid,
        name: &str,
    ) -> Result<TokenSecret, ClusterError> {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels_of(workspace)),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            immutable: Some(true),
            ..Secret::default()
        };
        let api: Api<Secret> = Api::namespaced(self.client(), namespace);
        let created = api.create(&PostParams::default(), &secret).await?;
        Ok(TokenSecret { name: name.to_owned(), uid: created.uid().unwrap_or_default() })
    }

    /// Deletes such a Secret, if it exists; with a uid, only a Secret of this uid.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] if the Secret is not as the broker made it.
    pub async fn delete_token_secret(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) -> Result<(), ClusterError> {
        let api: Api<Secret> = Api::namespaced(self.client(), namespace);
        revoke::delete_if_exists(&api, name, uid).await.map(drop)
    }
}
